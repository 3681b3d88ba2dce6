package safety

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The crowds that pods belong to. Who is free has no budget. Of some, a part may go; of
// none nobody; twice is one pod with two budgets; and those who are moved belong to a
// ReplicaSet of which one pod at a time may be away.
const (
	crowdFree  = "free"
	crowdSome  = "some"
	crowdNone  = "none"
	crowdTwice = "twice"
	crowdMoved = "moved"
)

// crowds says how many pods are in each crowd. In twice there is one.
type crowds struct {
	pods, free, some, none, moved int
}

func newCrowds(pods, guarded int) *crowds {
	c := &crowds{pods: pods, free: pods - guarded, none: guarded / 10, moved: guarded / 10}
	c.some = guarded - c.none - c.moved - 1
	return c
}

// mayGo is how many of some may go.
func (c *crowds) mayGo() int { return c.some * 2 / 5 }

// blocked is how many pods cannot leave.
func (c *crowds) blocked() int { return c.some - c.mayGo() + c.none + 1 }

// floors are how many healthy pods each crowd must have.
func (c *crowds) floors() map[string]int {
	return map[string]int{crowdSome: c.some - c.mayGo(), crowdNone: c.none, crowdMoved: c.moved - 1}
}

// create creates all pods, spread over all nodes, waits until they are healthy, and
// returns the UIDs of those that are not moved by their names.
func (c *crowds) create(t *testing.T, namespace string) map[string]types.UID {
	t.Helper()
	moved := int32(c.moved)
	labels := map[string]string{crowdLabel: crowdMoved}
	_, err := clientOf(t).AppsV1().ReplicaSets(namespace).Create(t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: crowdMoved},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &moved, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}},
			},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	var pods []*corev1.Pod
	for crowd, count := range map[string]int{crowdFree: c.free, crowdSome: c.some, crowdNone: c.none, crowdTwice: 1} {
		for i := range count {
			pod := podOn(1+len(pods)%nodeCount, fmt.Sprintf("%s-%d", crowd, i))
			pod.Labels = map[string]string{crowdLabel: crowd}
			pods = append(pods, pod)
		}
	}
	created := create(t, namespace, pods...)
	waitReady(t, namespace, c.pods)
	return created
}

// guard creates the budgets, and waits until they are counted.
func (c *crowds) guard(t *testing.T, namespace string) {
	t.Helper()
	floors := map[string]policyv1.PodDisruptionBudgetSpec{
		crowdSome:            {MinAvailable: new(intstr.FromInt(c.some - c.mayGo()))},
		crowdNone:            {MinAvailable: new(intstr.FromInt(c.none))},
		crowdMoved:           {MaxUnavailable: new(intstr.FromInt32(1))},
		crowdTwice:           {MinAvailable: new(intstr.FromInt32(0))},
		crowdTwice + "-more": {MinAvailable: new(intstr.FromInt32(0))},
	}
	crowdOf := map[string]string{crowdTwice + "-more": crowdTwice}
	budgets := clientOf(t).PolicyV1().PodDisruptionBudgets(namespace)
	for name, spec := range floors {
		crowd := name
		if of, ok := crowdOf[name]; ok {
			crowd = of
		}
		spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{crowdLabel: crowd}}
		_, err := budgets.Create(t.Context(), &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	allowed := map[string]int{crowdSome: c.mayGo(), crowdNone: 0, crowdMoved: 1, crowdTwice: 1, crowdTwice + "-more": 1}
	eventually(t, "budgets counted", func(ctx context.Context) error {
		list, err := budgets.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		counted := map[string]int{}
		for i := range list.Items {
			if b := &list.Items[i]; b.Status.ObservedGeneration == b.Generation && b.Status.CurrentHealthy > 0 {
				counted[b.Name] = int(b.Status.DisruptionsAllowed)
			}
		}
		if !maps.Equal(counted, allowed) {
			return fmt.Errorf("they allow %v, not %v", counted, allowed)
		}
		return nil
	})
}

// relax lets everybody go: by a budget that allows more, by one that is gone, and by one
// where there were two.
func (c *crowds) relax(t *testing.T, namespace string) {
	t.Helper()
	budgets := clientOf(t).PolicyV1().PodDisruptionBudgets(namespace)
	_, err := budgets.Patch(t.Context(), crowdSome, types.MergePatchType, []byte(`{"spec":{"minAvailable":0}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	for _, name := range []string{crowdNone, crowdTwice + "-more"} {
		require.NoError(t, budgets.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
}
