package compatibility

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tollgate-dev/tollgate/e2e/install"
)

const (
	// patience is far above what anything here takes.
	patience = 2 * time.Minute
	// interval is how often it is looked whether something has come about.
	interval = 100 * time.Millisecond
)

// dryRun asks the API server to judge and not to store.
var dryRun = []string{metav1.DryRunAll}

// afterwards is the context of a test when the test is over.
func afterwards(t *testing.T) context.Context {
	t.Helper()
	return context.WithoutCancel(t.Context())
}

// eventually returns when check does without an error, and fails the test with the last one
// if that takes too long.
func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	last := errors.New("never looked")
	err := wait.PollUntilContextTimeout(t.Context(), interval, patience, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	require.NoError(t, err, "%s: %v", what, last)
}

// becomes is eventually for what takes no context.
func becomes(t *testing.T, what string, check func() error) {
	t.Helper()
	eventually(t, what, func(context.Context) error { return check() })
}

func clientFor(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	config.WarningHandler = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return client
}

// admin is the administrator.
func admin(t *testing.T) kubernetes.Interface {
	t.Helper()
	return clientFor(t, shared.RESTConfig())
}

// tenant is a user whom RBAC lets do everything but tolerate and taint.
func tenant(t *testing.T) kubernetes.Interface {
	t.Helper()
	return clientFor(t, shared.As("alice", tenants))
}

// kubectl runs kubectl, of the version of the control plane, as the administrator.
func kubectl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := install.Kubectl(afterwards(t), shared, args...)
	return string(out), err
}

func mustKubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := kubectl(t, args...)
	require.NoError(t, err, "kubectl %v: %s", args, out)
	return out
}

// sample applies one of deploy/samples for the length of the test.
func sample(t *testing.T, name string) {
	t.Helper()
	applied(t, filepath.Join(programs.Root, "deploy", "samples", name))
}

// apply applies a manifest for the length of the test.
func apply(t *testing.T, manifest string) {
	t.Helper()
	applied(t, file(t, manifest))
}

// file writes a file for the length of the test. Its path has no commas, unlike t.TempDir:
// kubectl would take them for several paths.
func file(t *testing.T, content string) string {
	t.Helper()
	f, err := os.CreateTemp("", "compatibility-*.yaml") //nolint:usetesting // See above.
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.Remove(f.Name())) })
	_, err = f.WriteString(content)
	require.NoError(t, errors.Join(err, f.Close()))
	return f.Name()
}

func applied(t *testing.T, path string) {
	t.Helper()
	t.Cleanup(func() { mustKubectl(t, "delete", "--ignore-not-found", "--wait=false", "-f", path) })
	mustKubectl(t, "apply", "-f", path)
}

// command runs a command of Tollgate as the administrator, and returns what it prints. Its
// error has what it says of it.
func command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), programs.Plugin(), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+shared.Kubeconfig())
	var out, said strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl tollgate %v: %w: %s", args, err, said.String())
	}
	return out.String(), nil
}

func mustCommand(t *testing.T, args ...string) string {
	t.Helper()
	out, err := command(t, args...)
	require.NoError(t, err)
	return out
}

// namespace creates a namespace, with labels, for the length of the test.
func namespace(t *testing.T, name string, labels map[string]string) string {
	t.Helper()
	client := admin(t).CoreV1()
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	eventually(t, "namespace "+name+" is created", func(ctx context.Context) error {
		_, err := client.Namespaces().Create(ctx, object, metav1.CreateOptions{})
		return err
	})
	t.Cleanup(func() { require.NoError(t, client.Namespaces().Delete(afterwards(t), name, metav1.DeleteOptions{})) })
	eventually(t, "namespace "+name+" can be used", func(ctx context.Context) error {
		_, err := client.ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return name
}

// pod is one with a name and tolerations, on a node or, if that is empty, on none.
func pod(name, node string, tolerations ...corev1.Toleration) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			NodeName: node, Tolerations: tolerations,
			Containers: []corev1.Container{{Name: "c", Image: "image"}},
		},
	}
}

// tolerates is a toleration of NoExecute taints with a key, for some seconds or, if there
// are none, for ever.
func tolerates(key string, seconds ...int64) corev1.Toleration {
	toleration := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	if len(seconds) > 0 {
		toleration.TolerationSeconds = &seconds[0]
	}
	return toleration
}

// create creates pods in a namespace.
func create(t *testing.T, namespace string, pods ...*corev1.Pod) {
	t.Helper()
	for _, pod := range pods {
		_, err := admin(t).CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
		require.NoError(t, err)
	}
}

// waitLeft waits until only the named pods of a namespace are not on their way out.
func waitLeft(t *testing.T, namespace string, names ...string) {
	t.Helper()
	eventually(t, "pods left", func(ctx context.Context) error {
		left, err := alive(ctx, admin(t), namespace)
		if err == nil && !slices.Equal(left, names) {
			err = fmt.Errorf("left are %v, not %v", left, names)
		}
		return err
	})
}

// alive returns the names of the pods that are not on their way out, sorted.
func alive(ctx context.Context, client kubernetes.Interface, namespace string) ([]string, error) {
	list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			names = append(names, list.Items[i].Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// taint puts a NoExecute taint on a node for the length of the test, and returns it as it
// is stored.
func taint(t *testing.T, node, key string) corev1.Taint {
	t.Helper()
	write := func(ctx context.Context, taints string) (*corev1.Node, error) {
		return admin(t).CoreV1().Nodes().Patch(ctx, node, types.MergePatchType,
			[]byte(`{"spec":{"taints":`+taints+`}}`), metav1.PatchOptions{})
	}
	t.Cleanup(func() {
		_, err := write(afterwards(t), "null")
		require.NoError(t, err)
	})
	stored, err := write(t.Context(), `[{"key":"`+key+`","effect":"NoExecute"}]`)
	require.NoError(t, err)
	require.Len(t, stored.Spec.Taints, 1)
	return stored.Spec.Taints[0]
}

// requireDenied fails unless Tollgate refused, for a reason.
func requireDenied(t *testing.T, err error, reason string) {
	t.Helper()
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, reason)
}

// ready returns when a policy is in force.
func ready(t *testing.T, policy string) {
	t.Helper()
	mustKubectl(t, "wait", "--for=condition=Ready", "--timeout="+patience.String(), policy)
}

// logLines returns how many lines of Tollgate's log have all of some words.
func logLines(words ...string) (int, error) {
	log, err := os.ReadFile(filepath.Clean(tollgate.LogPath))
	if err != nil {
		return 0, err
	}
	count := 0
	for line := range strings.Lines(string(log)) {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			count++
		}
	}
	return count, nil
}

// metrics returns what Tollgate counts.
func metrics(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, tollgate.MetricsURL, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(response.Body)
}
