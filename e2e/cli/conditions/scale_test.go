package conditions

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

const (
	// fewPods are more than a chunk of a list has.
	fewPods    = 600
	podsANode  = 100
	atOnce     = 16
	crowdedKey = "example.com/crowded"
	// enoughMemory is more than any command needs for fewPods, in KiB.
	enoughMemory = 160 << 10
)

// crowded are commands for whole clusters. All read all pods, but for podless.
var crowded = []string{
	"preview node node-1 " + crowdedKey + ":NoExecute",
	"preview device " + taint,
	"taint device " + taint + " --yes --allow-unpublished --dry-run=server",
	"untaint device gpu.example.com example.com/broken",
	"devices",
	"status",
	"evictions -A",
	"evictions -A -o json",
	"approve node node-1 --taint " + crowdedKey + " --pods 3 --yes --dry-run=server",
	"explain pod crowd-0 -n NAMESPACE",
	"explain node node-1",
	"explain device gpu.example.com/pool/d0",
	"check --cluster -p MANIFEST",
}

// podless are those of crowded that need no pods.
var podless = []string{"untaint device gpu.example.com example.com/broken", "devices"}

// crowdPolicy guards what all pods of the crowd have.
const crowdPolicy = `
apiVersion: tollgate.dev/v1alpha1
kind: TolerationPolicy
metadata: {name: crowded}
spec: {taints: [{key: ` + crowdedKey + `}], grants: [{namespaces: [nowhere]}]}
`

// With TOLLGATE_CLI_PODS=10000 it measures what the benchmarks say of the commands.
func crowd(t *testing.T) {
	t.Helper()
	count := fewPods
	if text := os.Getenv("TOLLGATE_CLI_PODS"); text != "" {
		var err error
		count, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	populate(t, count)
	file := t.TempDir() + "/policy.yaml"
	require.NoError(t, os.WriteFile(file, []byte(crowdPolicy), 0o600))
	answers := make([]answer, len(crowded))
	for i, line := range crowded {
		var err error
		answers[i], err = ask(t.Context(), boss, line, file)
		require.NoError(t, err)
		require.NotContains(t, answers[i].notes, "is forbidden", line)
	}
	events := asked(t, boss) // The log is long.
	t.Log("| command | seconds | of a processor | MiB at most | lists of pods | exit code |")
	for i, line := range crowded {
		got, chunks := &answers[i], 0
		for k := range events {
			event := &events[k]
			if event.Verb != "list" || !got.during(event.RequestReceivedTimestamp.Time) {
				continue
			}
			require.Contains(t, event.RequestURI, "limit=500", "%s lists all at once", line)
			if event.ObjectRef.Resource == "pods" {
				chunks++
			}
		}
		t.Logf("| `%s` | %.2f | %.2f | %d | %d | %d |", line, got.took.Seconds(), got.worked.Seconds(), got.peak>>10, chunks, got.code)
		if slices.Contains(podless, line) {
			require.Zero(t, chunks, line)
		} else {
			require.GreaterOrEqual(t, chunks, 2, line)
		}
		if count == fewPods {
			require.Less(t, got.peak, int64(enoughMemory), line)
		}
	}
}

// populate has a number of pods run in the tenant's namespace, on nodes of which the first
// has a taint that they tolerate for a day.
func populate(t *testing.T, count int) {
	t.Helper()
	client, err := kubernetes.NewForConfig(shared.RESTConfig())
	require.NoError(t, err)
	var names []string
	for number := 2; number <= (count+podsANode-1)/podsANode; number++ {
		names = append(names, controlplane.NodeName(number))
	}
	require.NoError(t, shared.AddNodes(t.Context(), names...))
	begun := time.Now()
	errs, free := make([]error, atOnce), make(chan int, atOnce)
	for slot := range atOnce {
		free <- slot
	}
	for i := range count {
		slot := <-free
		go func() {
			_, err := client.CoreV1().Pods(team).Create(t.Context(), crowdPod(i), metav1.CreateOptions{})
			errs[slot] = errors.Join(errs[slot], err)
			free <- slot
		}()
	}
	for range atOnce {
		<-free
	}
	require.NoError(t, errors.Join(errs...))
	t.Logf("%d pods created in %s", count, time.Since(begun).Round(time.Second))
	waitRunning(t, client, count)
	_, err = client.CoreV1().Nodes().Patch(t.Context(), controlplane.NodeName(1), types.StrategicMergePatchType,
		[]byte(`{"spec":{"taints":[{"key":"`+crowdedKey+`","effect":"NoExecute"}]}}`), metav1.PatchOptions{})
	require.NoError(t, err)
}

func crowdPod(number int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "crowd-" + strconv.Itoa(number), Labels: map[string]string{"app": "crowd"}},
		Spec: corev1.PodSpec{
			NodeName:    controlplane.NodeName(1 + number/podsANode),
			Containers:  []corev1.Container{{Name: "c", Image: "image"}},
			Tolerations: []corev1.Toleration{{Key: crowdedKey, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(86400))}},
		},
	}
}

func waitRunning(t *testing.T, client kubernetes.Interface, want int) {
	t.Helper()
	eventually(t, time.Minute+time.Duration(want)*50*time.Millisecond, func(ctx context.Context) error {
		options := metav1.ListOptions{FieldSelector: "status.phase=Running", Limit: 500}
		running := 0
		for {
			list, err := client.CoreV1().Pods(team).List(ctx, options)
			if err != nil {
				return err
			}
			running += len(list.Items)
			if options.Continue = list.Continue; options.Continue == "" {
				break
			}
		}
		if running != want {
			return fmt.Errorf("%d of %d pods run", running, want)
		}
		return nil
	})
}
