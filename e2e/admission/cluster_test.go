package admission

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// patience is far above what anything here takes.
	patience = time.Minute
	// interval is how often it is looked whether something has come about.
	interval = 50 * time.Millisecond
)

// dryRun asks the API server to judge and not to store.
var dryRun = []string{metav1.DryRunAll}

func clientFor(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return client
}

// clientOf returns a client of the administrator.
func clientOf(t *testing.T) kubernetes.Interface {
	t.Helper()
	config := shared.RESTConfig()
	config.WarningHandler = rest.NoWarnings{}
	return clientFor(t, config)
}

// kubelet returns a client of the kubelet of a node.
func kubelet(t *testing.T, node string) kubernetes.Interface {
	t.Helper()
	return clientFor(t, shared.As("system:node:"+node, "system:nodes"))
}

// warnings keeps what the API server warns a client of.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

// take returns what came since it was called last.
func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	texts := w.texts
	w.texts = nil
	return texts
}

// clientWithWarnings returns a client of the administrator, and what it is warned of.
func clientWithWarnings(t *testing.T) (kubernetes.Interface, *warnings) {
	t.Helper()
	config := shared.RESTConfig()
	heard := &warnings{}
	config.WarningHandler = heard
	return clientFor(t, config), heard
}

// eventually returns when check does without an error, and fails the test with the
// last one if that takes too long.
func eventually(ctx context.Context, t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	last := errors.New("never looked")
	err := wait.PollUntilContextTimeout(ctx, interval, patience, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	require.NoError(t, err, "%s: %v", what, last)
}

// afterwards returns a context for what a test does once it is over.
func afterwards(t *testing.T) context.Context {
	t.Helper()
	return context.WithoutCancel(t.Context())
}

// namespaceOf creates a namespace for the test; its name begins as given.
func namespaceOf(t *testing.T, generateName string) string {
	t.Helper()
	namespace, err := shared.CreateNamespace(t.Context(), generateName)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := afterwards(t)
		require.NoError(t, clientOf(t).CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}))
	})
	return namespace
}

// label sets a label of a namespace, or removes it where the value is "null".
func label(t *testing.T, namespace, key, value string) {
	t.Helper()
	if value != "null" {
		value = `"` + value + `"`
	}
	patch := `{"metadata":{"labels":{"` + key + `":` + value + `}}}`
	_, err := clientOf(t).CoreV1().Namespaces().Patch(t.Context(), namespace, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
}

// podWith returns a pod with tolerations.
func podWith(tolerations ...corev1.Toleration) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"},
		Spec: corev1.PodSpec{
			Containers:  []corev1.Container{{Name: "c", Image: "image"}},
			Tolerations: tolerations,
		},
	}
}

// exists is a toleration of a key.
func exists(key string, effect corev1.TaintEffect) corev1.Toleration {
	return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
}

// forSeconds is a toleration of NoExecute taints with a key, for a while.
func forSeconds(key string, seconds int64) corev1.Toleration {
	toleration := exists(key, corev1.TaintEffectNoExecute)
	toleration.TolerationSeconds = &seconds
	return toleration
}

// admit asks whether a pod may be created, as a dry run.
func admit(ctx context.Context, client kubernetes.Interface, namespace string, pod *corev1.Pod) error {
	_, err := client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: dryRun})
	return err
}

// createPod creates a pod that must be let in.
func createPod(t *testing.T, namespace string, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	pod, err := clientOf(t).CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	return pod
}
