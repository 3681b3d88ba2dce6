package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// stage is where one scenario takes place: a namespace, and nodes that its pods select by
// the label lane.
type stage struct {
	client.Client

	// lane is the name of the namespace, of the label's value, and in every name of an
	// object of the scenario that has no namespace. X stands for it in YAML.
	lane string
}

func newStage(t *testing.T, lane string) *stage {
	t.Helper()
	config := shared.RESTConfig()
	config.WarningHandler = rest.NoWarnings{}
	c, err := client.New(config, client.Options{})
	require.NoError(t, err)
	s := &stage{Client: c, lane: lane}
	s.apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: X}\n")
	eventually(t, "the namespace can be used", func(ctx context.Context) error {
		return s.Get(ctx, client.ObjectKey{Namespace: lane, Name: "default"}, &corev1.ServiceAccount{})
	})
	return s
}

// apply creates objects that are written as YAML, with --- between them, and returns when
// those of Tollgate are in force.
func (s *stage) apply(t *testing.T, text string) {
	t.Helper()
	for part := range strings.SplitSeq(strings.ReplaceAll(text, "X", s.lane), "\n---\n") {
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(part), &object.Object), part)
		kind := object.GroupVersionKind()
		mapping, err := s.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		require.NoError(t, err, part)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			object.SetNamespace(s.lane)
		}
		require.NoError(t, s.Create(t.Context(), object), part)
		if strings.HasSuffix(kind.Kind, "Policy") && kind.Group == "tollgate.dev" {
			eventually(t, "the policy is in force", func(ctx context.Context) error {
				if err := s.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
					return err
				}
				conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
				for _, c := range conditions {
					if condition, ok := c.(map[string]any); ok && condition["type"] == "Ready" && condition["status"] == "True" {
						return nil
					}
				}
				return fmt.Errorf("conditions %v", conditions)
			})
		}
	}
}

// node adds a Ready node with more labels and a list of taints.
func (s *stage) node(t *testing.T, name, labels, taints string) {
	t.Helper()
	s.apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Node
metadata: {name: X-%s, labels: {kubernetes.io/hostname: X-%s, kubernetes.io/os: linux, lane: X, %s}}
spec: {taints: [%s]}
`, name, name, labels, taints))
	eventually(t, "the node is ready", func(ctx context.Context) error {
		node, err := s.nodeNow(ctx, name)
		if err != nil {
			return err
		}
		ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		born := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady })
		if !ready || born {
			return fmt.Errorf("%v %v", node.Status.Conditions, node.Spec.Taints)
		}
		return nil
	})
}

func (s *stage) nodeNow(ctx context.Context, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	err := s.Get(ctx, client.ObjectKey{Name: s.lane + "-" + name}, node)
	return node, err
}

// taint puts one more taint on a node, whose key ends with the name of the lane.
func (s *stage) taint(t *testing.T, name, value string, effect corev1.TaintEffect) {
	t.Helper()
	node, err := s.nodeNow(t.Context(), name)
	require.NoError(t, err)
	before := client.MergeFrom(node.DeepCopy())
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: s.key(), Value: value, Effect: effect})
	require.NoError(t, s.Patch(t.Context(), node, before))
}

// key is the key of taints of the scenario. In YAML it is written example.com/X.
func (s *stage) key() string { return "example.com/" + s.lane }

// pod creates a pod for the nodes of the lane, with more of its spec.
func (s *stage) pod(t *testing.T, name, spec string) {
	t.Helper()
	s.apply(t, podYAML(name, spec))
}

func podYAML(name, spec string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: web}}
spec: {nodeSelector: {lane: X}, terminationGracePeriodSeconds: 0, containers: [{name: c, image: image}], %s}
`, name, spec)
}

func (s *stage) podNow(ctx context.Context, name string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := s.Get(ctx, client.ObjectKey{Namespace: s.lane, Name: name}, pod)
	return pod, err
}

// waits returns when the scheduler has said that it has no node for a pod.
func (s *stage) waits(t *testing.T, name string) {
	t.Helper()
	eventually(t, "the scheduler has no node", func(ctx context.Context) error {
		pod, err := s.podNow(ctx, name)
		if err != nil {
			return err
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return nil
			}
		}
		return fmt.Errorf("it is on %q: %v", pod.Spec.NodeName, pod.Status.Conditions)
	})
}

// keepsOff makes a change because of which pods with a spec have no node any more, and
// returns when the scheduler knows of it: it hears of nodes, devices and rules each by
// itself, and may place a pod that is created right after the change.
func (s *stage) keepsOff(t *testing.T, spec string, change func()) {
	t.Helper()
	const name = "before-p"
	s.pod(t, name, spec)
	s.runs(t, name)
	s.remove(t, name)
	change()
	for limit := time.Now().Add(patience); ; {
		s.pod(t, name, spec)
		node := s.decided(t, name)
		s.remove(t, name)
		if node == "" {
			return
		}
		require.True(t, time.Now().Before(limit), "the scheduler still places pods on %s", node)
	}
}

// decided returns the node that the scheduler has for a pod; empty when it has said that
// there is none.
func (s *stage) decided(t *testing.T, name string) (node string) {
	t.Helper()
	eventually(t, "the scheduler has decided", func(ctx context.Context) error {
		pod, err := s.podNow(ctx, name)
		if err != nil {
			return err
		}
		node = pod.Spec.NodeName
		if node == "" && !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable
		}) {
			return fmt.Errorf("conditions %v", pod.Status.Conditions)
		}
		return nil
	})
	return node
}

// remove deletes a pod, and returns when it is gone.
func (s *stage) remove(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, s.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.lane, Name: name}}))
	s.leaves(t, name)
}

// runs returns when a pod runs.
func (s *stage) runs(t *testing.T, name string) {
	t.Helper()
	eventually(t, "the pod runs", func(ctx context.Context) error {
		pod, err := s.podNow(ctx, name)
		if err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("it is %s: %v", pod.Status.Phase, pod.Status.Conditions)
		}
		return nil
	})
}

// leaves returns when a pod is gone.
func (s *stage) leaves(t *testing.T, name string) {
	t.Helper()
	eventually(t, "the pod is gone", func(ctx context.Context) error {
		_, err := s.podNow(ctx, name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there (%w)", err)
	})
}

// holds returns when a policy says that it holds so many pods.
func (s *stage) holds(t *testing.T, policy string, pods int64) {
	t.Helper()
	object := &unstructured.Unstructured{}
	object.SetAPIVersion("tollgate.dev/v1alpha1")
	object.SetKind("EvictionPolicy")
	eventually(t, "the policy holds pods", func(ctx context.Context) error {
		if err := s.Get(ctx, client.ObjectKey{Name: policy}, object); err != nil {
			return err
		}
		if held, _, _ := unstructured.NestedInt64(object.Object, "status", "held"); held != pods {
			return fmt.Errorf("%d held", held)
		}
		return nil
	})
}

// explanation is what the program says, as far as it is looked at.
type explanation struct {
	State  string
	Answer string
	Causes []struct{ Kind string }

	Leaves      *metav1.Time
	Tolerations []struct {
		Policy  string
		Granted bool
	}
	Placement struct {
		Gifts []struct {
			Policies     []string
			Field, Value string
			Has          bool
		}
	}
}

// kinds are the kinds of the causes, in order.
func (a *explanation) kinds() string {
	list := make([]string, len(a.Causes))
	for i := range a.Causes {
		list[i] = a.Causes[i].Kind
	}
	return strings.Join(list, " ")
}

// ask runs the built program.
func (s *stage) ask(ctx context.Context, args ...string) (explanation, error) {
	var a explanation
	out, err := s.run(ctx, append(args, "-o", "json")...)
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(out, &a); err != nil {
		return a, fmt.Errorf("read %s: %w", out, err)
	}
	return a, nil
}

// run returns what the program prints. It may read all, and Tollgate runs: that it has
// anything to say besides is an error.
func (s *stage) run(ctx context.Context, args ...string) ([]byte, error) {
	all := append([]string{"explain", "--kubeconfig", shared.Kubeconfig(), "-n", s.lane}, args...)
	cmd := exec.CommandContext(ctx, programs.Plugin(), all...)
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err == nil && problems.Len() > 0 {
		err = errors.New("it wrote to stderr")
	}
	if err != nil {
		return nil, fmt.Errorf("tollgate %v: %w: %s", args, err, problems.String())
	}
	return out, nil
}

// explains asks about a pod until the answer is the one that is wanted. The scheduler, the
// evictor and events take their time, but nobody but the wanted cause may be named.
func (s *stage) explains(t *testing.T, pod, state, kinds string, words ...string) explanation {
	t.Helper()
	var a explanation
	eventually(t, "the answer is true", func(ctx context.Context) error {
		var err error
		if a, err = s.ask(ctx, "pod", pod); err != nil {
			return err
		}
		if a.State != state || a.kinds() != kinds {
			return fmt.Errorf("it is %s because of %s: %s", a.State, a.kinds(), a.Answer)
		}
		for _, word := range words {
			if word = strings.ReplaceAll(word, "X", s.lane); !strings.Contains(a.Answer, word) {
				return fmt.Errorf("%q is not in %s", word, a.Answer)
			}
		}
		return nil
	})
	t.Log(a.Answer)
	return a
}
