package policies

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/policy"
)

// bind binds a pod by pods/binding, the way of kube-scheduler.
func (p *person) bind(t *testing.T, namespace, pod, node string) error {
	t.Helper()
	return p.CoreV1().Pods(namespace).Bind(t.Context(), bindingOf(namespace, pod, node), metav1.CreateOptions{})
}

// bindAsOfOld binds a pod by the resource bindings, which is older and still served.
func (p *person) bindAsOfOld(t *testing.T, namespace, pod, node string) error {
	t.Helper()
	return p.CoreV1().RESTClient().Post().Namespace(namespace).Resource("bindings").
		Body(bindingOf(namespace, pod, node)).Do(t.Context()).Error()
}

func bindingOf(namespace, pod, node string) *corev1.Binding {
	return &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}
}

func TestC04NobodyGetsPastAGuardedTaintWithoutTheScheduler(t *testing.T) {
	const tainted, free = "around-tainted", "around-free"
	namespaces(t, "around", "around-granted")
	node(t, tainted, nil, noSchedule("around.example.com/x", "v"), noSchedule("unguarded.example.com/x", ""))
	node(t, free, nil, noSchedule("unguarded.example.com/x", ""))
	enforce(t, `
kind: TolerationPolicy
metadata: {name: around}
spec:
  taints: [{key: around.example.com/x, effects: [NoSchedule, NoExecute]}]
  grants: [{namespaces: [around-granted]}]
`)
	// held is a pod that no scheduler places, so that it stays for the test to bind.
	held := func(name string, tolerations ...corev1.Toleration) *corev1.Pod {
		pod := podNamed(name, tolerations...)
		pod.Spec.SchedulerName = "none"
		return pod
	}
	tolerates := exists("around.example.com/x", "")
	alice := tenant(t, "alice")
	ways := map[string]func(t *testing.T, namespace, name, node string, tolerations ...corev1.Toleration) error{
		"node-name": func(t *testing.T, namespace, name, node string, tolerations ...corev1.Toleration) error {
			t.Helper()
			_, err := alice.CoreV1().Pods(namespace).Create(t.Context(), onNode(podNamed(name, tolerations...), node), metav1.CreateOptions{})
			return err
		},
		"binding": func(t *testing.T, namespace, name, node string, tolerations ...corev1.Toleration) error {
			t.Helper()
			alice.createPod(t, namespace, held(name, tolerations...))
			return alice.bind(t, namespace, name, node)
		},
		"old-binding": func(t *testing.T, namespace, name, node string, tolerations ...corev1.Toleration) error {
			t.Helper()
			alice.createPod(t, namespace, held(name, tolerations...))
			return alice.bindAsOfOld(t, namespace, name, node)
		},
	}
	for way, put := range ways {
		t.Run("by "+way, func(t *testing.T) {
			t.Run("a node without guarded taints is free to all", func(t *testing.T) {
				require.NoError(t, put(t, "around", way+"-free", free))
			})
			t.Run("an outsider is refused", func(t *testing.T) {
				err := put(t, "around", way+"-outsider", tainted)
				requireRefused(t, err, policy.TaintNotTolerated, "TolerationPolicy/around", "around.example.com/x=v:NoSchedule", "leave it to the scheduler")
			})
			t.Run("a pod that is granted but does not tolerate is refused", func(t *testing.T) {
				err := put(t, "around-granted", way+"-intolerant", tainted)
				requireRefused(t, err, policy.TaintNotTolerated, "TolerationPolicy/around", "around.example.com/x=v:NoSchedule")
			})
			t.Run("who tolerates and is granted may, past taints that nobody guards", func(t *testing.T) {
				require.NoError(t, put(t, "around-granted", way+"-insider", tainted, tolerates))
				require.Equal(t, tainted, waitRuns(t, "around-granted", way+"-insider"))
			})
		})
	}
	t.Run("a node that does not exist could come with the taint", func(t *testing.T) {
		err := alice.admit(t, "around", onNode(podWith(), "around-nowhere"))
		requireRefused(t, err, policy.PassNotGranted, "TolerationPolicy/around", "spec.nodeName", "around-nowhere")
	})
	t.Run("a toleration for a while is not one for the time it takes to look", func(t *testing.T) {
		err := alice.admit(t, "around-granted", onNode(podWith(forSeconds("around.example.com/x", 600)), tainted))
		requireRefused(t, err, policy.TaintNotTolerated, "NoSchedule")
	})
	t.Run("a pod from before the policy cannot be bound there by its user", func(t *testing.T) {
		withdraw(t, "TolerationPolicy", "around")
		alice.createPod(t, "around", held("early", tolerates))
		enforce(t, `
kind: TolerationPolicy
metadata: {name: around}
spec:
  taints: [{key: around.example.com/x, effects: [NoSchedule, NoExecute]}]
  grants: [{namespaces: [around-granted]}]
`)
		requireRefused(t, alice.bind(t, "around", "early", tainted), policy.PassNotGranted)
		require.NoError(t, scheduler(t).bind(t, "around", "early", tainted), "kube-scheduler is not asked")
	})
}
