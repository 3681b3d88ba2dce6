package safety

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// keeper is a finalizer: it keeps a pod that was deleted, so that its condition can be read.
const keeper = "example.com/keep"

// disruptionTargets returns the reasons of the condition DisruptionTarget by pod, once all pods are deleted
// and have one.
func disruptionTargets(t *testing.T, namespace string) map[string]string {
	t.Helper()
	var reasons map[string]string
	eventually(t, "pods are deleted and marked", func(ctx context.Context) error {
		list, err := clientOf(t).CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		reasons = map[string]string{}
		for i := range list.Items {
			pod := &list.Items[i]
			if pod.DeletionTimestamp == nil {
				return fmt.Errorf("pod %s is not deleted", pod.Name)
			}
			for _, condition := range pod.Status.Conditions {
				if condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue {
					reasons[pod.Name] = condition.Reason
				}
			}
			if reasons[pod.Name] == "" {
				return fmt.Errorf("pod %s has no condition DisruptionTarget", pod.Name)
			}
		}
		return nil
	})
	return reasons
}

func TestMarksOfEvictedPods(t *testing.T) {
	t.Parallel()
	const byKubernetes, byAPI = "DeletionByTaintManager", "EvictionByEvictionAPI"
	for _, test := range []struct {
		mark v1alpha1.EvictionMark
		node int
		// free and guarded are the reasons of pods without a PodDisruptionBudget and with one, and evicted
		// says whether the former leave by the Eviction API.
		free, guarded string
		evicted       bool
	}{
		{v1alpha1.EvictionMarkBefore, nodeOfBefore, byKubernetes, byKubernetes, false},
		{v1alpha1.EvictionMarkByEvictionAPI, nodeOfByAPI, byAPI, byKubernetes, true},
		{v1alpha1.EvictionMarkWhileTerminating, nodeOfLate, byKubernetes, byKubernetes, false},
	} {
		t.Run(string(test.mark), func(t *testing.T) {
			t.Parallel()
			key, policy := prefix+"mark-"+string(test.mark), fmt.Sprintf("mark-%d", test.node)
			namespace := namespaceOf(t)
			govern(t, policy, key, func(spec *v1alpha1.EvictionPolicySpec) { spec.Mark = test.mark })
			guarded := podOn(test.node, "guarded")
			guarded.Labels = map[string]string{crowdLabel: crowdNone}
			pods := append(podsOn(test.node, 5, "free"), guarded)
			for _, pod := range pods {
				pod.Finalizers = []string{keeper}
			}
			_, err := clientOf(t).PolicyV1().PodDisruptionBudgets(namespace).Create(t.Context(), &policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Name: crowdNone},
				Spec: policyv1.PodDisruptionBudgetSpec{
					MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: guarded.Labels},
				},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
			create(t, namespace, pods...)
			t.Cleanup(func() {
				for _, pod := range pods {
					_, err := clientOf(t).CoreV1().Pods(namespace).Patch(context.WithoutCancel(t.Context()), pod.Name, types.MergePatchType,
						[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
					require.NoError(t, err)
				}
			})
			waitReady(t, namespace, len(pods))

			taint(t, key, test.node)
			for name, reason := range disruptionTargets(t, namespace) {
				want := test.free
				if name == guarded.Name {
					want = test.guarded
				}
				require.Equal(t, want, reason, name)
			}
			for _, left := range waitDepartures(t, namespace, len(pods)) {
				require.Equal(t, test.evicted && left.pod != guarded.Name, left.evicted, left.pod)
			}
		})
	}
}
