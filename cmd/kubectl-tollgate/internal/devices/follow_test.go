package devices

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// paper is what a follower writes to.
type paper struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (p *paper) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(data)
}

func (p *paper) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// follows runs devices -w until the test is over, which it ends without an error.
func follows(t *testing.T, r *cli.Clients, filter Filter, output string) (*paper, *clocktesting.FakeClock) {
	t.Helper()
	out, clk := &paper{}, clocktesting.NewFakeClock(time.Unix(0, 0))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- follow(ctx, r, clk, filter, output, out) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
	})
	// A fake tells of nothing that happens between a list and its watch.
	require.Eventually(t, func() bool { return watching(r) == len(allServed["resource.k8s.io/v1"])+1 }, 30*time.Second, time.Millisecond)
	return out, clk
}

// watching returns how many watches were opened.
func watching(r *cli.Clients) int {
	count := 0
	for _, action := range append(r.Kubernetes.(*fake.Clientset).Actions(), r.Dynamic.(*dynamicfake.FakeDynamicClient).Actions()...) {
		if action.GetVerb() == "watch" {
			count++
		}
	}
	return count
}

// waitFor steps the clock until the last lines that were written are these.
func waitFor(t *testing.T, out *paper, clk *clocktesting.FakeClock, want string) {
	t.Helper()
	require.Eventually(t, func() bool {
		clk.Step(batchDelay)
		return strings.HasSuffix(out.String(), want)
	}, 30*time.Second, 10*time.Millisecond, "want %q", want)
}

func TestWatchingWritesWhatChangesAndNothingElse(t *testing.T) {
	t.Parallel()
	r := clientsOf(t, allServed, "v1", nil, nil)
	out, clk := follows(t, r, Filter{}, "table")
	const device = "gpu.example.com/node-7/gpu-0  node-7  "
	first := "DRIVER/POOL/DEVICE            NODE    TAINTS  PATCHES  CLAIM   POD\n" + device + "<none>  <none>   ml/one  train\n"
	waitFor(t, out, clk, first)

	rules := r.Dynamic.Resource(informer.RuleResource.WithVersion("v1"))
	_, err := rules.Create(t.Context(), &unstructured.Unstructured{Object: *decoded[map[string]any](t, gpuRule)}, metav1.CreateOptions{})
	require.NoError(t, err)
	waitFor(t, out, clk, device+"hot:NoSchedule  <none>   ml/one  train\n")

	require.NoError(t, r.Kubernetes.ResourceV1().ResourceClaims("ml").Delete(t.Context(), "one", metav1.DeleteOptions{}))
	waitFor(t, out, clk, device+"hot:NoSchedule  <none>   <none>  <none>\n")

	class := decoded[resourcev1.DeviceClass](t, gpuClass)
	class.Name = "another" // It changes nothing that is shown.
	_, err = r.Kubernetes.ResourceV1().DeviceClasses().Create(t.Context(), class, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, r.Kubernetes.ResourceV1().ResourceSlices().Delete(t.Context(), "gpus", metav1.DeleteOptions{}))
	waitFor(t, out, clk, "gpu.example.com/node-7/gpu-0  <gone>  <none>          <none>   <none>  <none>\n")
	require.Len(t, strings.Split(out.String(), "\n"), 6, out.String())
}

func TestWatchingObeysFiltersAndWritesNames(t *testing.T) {
	t.Parallel()
	r := clientsOf(t, allServed, "v1", nil, nil)
	out, clk := follows(t, r, Filter{Tainted: true}, "name")
	rules := r.Dynamic.Resource(informer.RuleResource.WithVersion("v1"))
	_, err := rules.Create(t.Context(), &unstructured.Unstructured{Object: *decoded[map[string]any](t, gpuRule)}, metav1.CreateOptions{})
	require.NoError(t, err)
	waitFor(t, out, clk, "gpu.example.com/node-7/gpu-0\n")
	require.Equal(t, "gpu.example.com/node-7/gpu-0\n", out.String())
}

func TestWatchingNeedsRightsAndASerialFormat(t *testing.T) {
	t.Parallel()
	r := clientsOf(t, allServed, "v1", nil, nil)
	r.Kubernetes.(*fake.Clientset).PrependReactor("list", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(state.ClaimResource, "", errors.New("no"))
	})
	var out bytes.Buffer
	err := follow(t.Context(), r, clocktesting.NewFakeClock(time.Unix(0, 0)), Filter{}, "table", &out)
	require.ErrorContains(t, err, "ask for a ClusterRole with the verb list on resourceclaims of API group resource.k8s.io")
	require.Empty(t, out.String())
	require.EqualError(t, runDevices(t, "-w", "-o", "yaml"), `--output is "yaml", and --watch goes with table, wide and name`)
	err = follow(t.Context(), clientsOf(t, commandCluster{}, "v1", nil, nil), clocktesting.NewFakeClock(time.Unix(0, 0)), Filter{}, "table", &out)
	require.ErrorContains(t, err, "devices need Kubernetes 1.34 or later")
}
