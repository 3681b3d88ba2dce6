package policies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// patience is far above what anything here takes.
	patience = time.Minute
	// interval is how often it is looked whether something has come about.
	interval = 50 * time.Millisecond
)

// dryRun asks the API server to judge and not to store.
var dryRun = []string{metav1.DryRunAll}

// eventually returns when check does without an error, and fails the test with the
// last one if that takes too long.
func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	last := errors.New("never looked")
	err := wait.PollUntilContextTimeout(afterwards(t), interval, patience, true, func(ctx context.Context) (bool, error) {
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

// namespaces creates namespaces for the length of the test, and returns when pods can
// be created in them.
func namespaces(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		namespaceWith(t, name, nil)
	}
}

// namespaceWith creates a namespace with labels for the length of the test.
func namespaceWith(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	client := admin(t).CoreV1()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	// The one of an earlier run of the test may still be on its way out.
	eventually(t, "namespace "+name+" is created", func(ctx context.Context) error {
		_, err := client.Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		return err
	})
	t.Cleanup(func() { require.NoError(t, client.Namespaces().Delete(afterwards(t), name, metav1.DeleteOptions{})) })
	eventually(t, "namespace "+name+" can be used", func(ctx context.Context) error {
		_, err := client.ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// node adds a Ready node with labels and taints for the length of the test.
func node(t *testing.T, name string, labels map[string]string, taints ...corev1.Taint) {
	t.Helper()
	createNode(t, admin(t), name, labels, taints...)
	waitReady(t, name)
}

// createNode creates a Node object as somebody; it goes when the test is over.
func createNode(t *testing.T, as *person, name string, labels map[string]string, taints ...corev1.Taint) *corev1.Node {
	t.Helper()
	node, err := as.CoreV1().Nodes().Create(t.Context(), nodeObject(name, labels, taints...), metav1.CreateOptions{})
	require.NoError(t, err)
	deleteNodeAfter(t, name)
	return node
}

// deleteNodeAfter deletes a node when the test is over, if it is still there, and the pods
// on it: where there is no node, nobody ends them but the garbage collection of pods, after
// up to 80 seconds, and the namespaces of the test stay for as long.
func deleteNodeAfter(t *testing.T, name string) {
	t.Helper()
	t.Cleanup(func() {
		err := admin(t).CoreV1().Nodes().Delete(afterwards(t), name, metav1.DeleteOptions{})
		if !apierrors.IsNotFound(err) {
			require.NoError(t, err)
		}
		endPodsOn(t, name)
	})
}

// endPodsOn ends the pods on a node, as its kubelet does.
func endPodsOn(t *testing.T, node string) {
	t.Helper()
	client := admin(t).CoreV1()
	list, err := client.Pods(metav1.NamespaceAll).List(afterwards(t), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	require.NoError(t, err)
	group, ctx := errgroup.WithContext(afterwards(t))
	group.SetLimit(parallel)
	for i := range list.Items {
		pod := &list.Items[i]
		group.Go(func() error {
			err := client.Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
				GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID},
			})
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // it has gone, or another one has its name
				return nil
			}
			return err
		})
	}
	require.NoError(t, group.Wait())
}

func nodeObject(name string, labels map[string]string, taints ...corev1.Taint) *corev1.Node {
	all := map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"}
	maps.Copy(all, labels)
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: all}, Spec: corev1.NodeSpec{Taints: taints}}
}

// waitReady returns when a node is Ready and without the taint that all are born with.
func waitReady(t *testing.T, name string) {
	t.Helper()
	eventually(t, "node "+name+" is ready", func(ctx context.Context) error {
		node, err := admin(t).CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		if !ready || taintOf(node, corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule) != nil {
			return fmt.Errorf("conditions %v, taints %v", node.Status.Conditions, node.Spec.Taints)
		}
		return nil
	})
}

// nodeNow returns a node as it is stored.
func nodeNow(t *testing.T, name string) *corev1.Node {
	t.Helper()
	node, err := admin(t).CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return node
}

// taintOf returns the taint of a node with the key and the effect, or nil.
func taintOf(node *corev1.Node, key string, effect corev1.TaintEffect) *corev1.Taint {
	i := slices.IndexFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key && t.Effect == effect })
	if i < 0 {
		return nil
	}
	return &node.Spec.Taints[i]
}

// encode returns a value as JSON.
func encode(t *testing.T, value any) []byte {
	t.Helper()
	content, err := json.Marshal(value)
	require.NoError(t, err)
	return content
}

// mergePatch writes a merge patch of a node as somebody.
func (p *person) mergePatch(ctx context.Context, node string, patch any, subresources ...string) (*corev1.Node, error) {
	content, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	return p.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, content, metav1.PatchOptions{}, subresources...)
}

// taintNode puts one more taint on a node as somebody, as kubectl taint does.
func (p *person) taintNode(t *testing.T, name string, taint corev1.Taint) error {
	t.Helper()
	_, err := p.mergePatch(t.Context(), name, specTaints(append(nodeNow(t, name).Spec.Taints, taint)))
	return err
}

// specTaints is a patch of the taints of a node.
func specTaints(taints []corev1.Taint) any {
	return map[string]any{"spec": map[string]any{"taints": taints}}
}

// noSchedule is a taint with the effect.
func noSchedule(key, value string) corev1.Taint {
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffectNoSchedule}
}

// noExecute is a taint with the effect.
func noExecute(key, value string) corev1.Taint {
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffectNoExecute}
}
