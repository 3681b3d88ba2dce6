package main

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

const (
	// granted is the name of the namespace, the service account and the label that policies grant
	// something to. A pod is refused that has the other name in all three places.
	granted = "granted"
	refused = "refused"
	// spared is the name of a namespace that the webhooks leave out.
	spared = "spared"

	taintKey, taintValue = "dedicated", "team-a"
)

// toleration is the one that policies guard.
func toleration() corev1.Toleration {
	return corev1.Toleration{Key: taintKey, Operator: corev1.TolerationOpEqual, Value: taintValue, Effect: corev1.TaintEffectNoSchedule}
}

// matching says whether the policy of a number is about the pods that are reviewed.
type matching func(i int) bool

func onePercent(i int) bool { return i%100 == 0 }

func all(int) bool { return true }

// valueOf is the value of the taint, or another one that no pod tolerates.
func valueOf(i int, matches matching) string {
	if matches(i) {
		return taintValue
	}
	return fmt.Sprintf("team-%d", i)
}

// guards returns n policies that guard the toleration with a grant. The one that matches always is the
// last: once it is in force, so are the others.
func guards(n int, matches matching, grant v1alpha1.TolerationGrant) []client.Object {
	var policies []client.Object
	for i := n - 1; i >= 0; i-- {
		policies = append(policies, &v1alpha1.TolerationPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%05d", i)},
			Spec: v1alpha1.TolerationPolicySpec{
				Taints: []v1alpha1.TaintSelector{{Key: taintKey, Values: []string{valueOf(i, matches)}}},
				Grants: []v1alpha1.TolerationGrant{grant},
			},
		})
	}
	return policies
}

// placements returns n policies that give pods of the namespace, or of another, the toleration
// that they have, and a node selector.
func placements(n int, matches matching) []client.Object {
	var policies []client.Object
	for i := n - 1; i >= 0; i-- {
		namespace := granted
		if !matches(i) {
			namespace = fmt.Sprintf("team-%d", i)
		}
		policies = append(policies, &v1alpha1.PlacementPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%05d", i)},
			Spec: v1alpha1.PlacementPolicySpec{
				Match: v1alpha1.PlacementMatch{Namespaces: []string{namespace}},
				Pod: &v1alpha1.PodPlacement{
					Tolerations: []corev1.Toleration{toleration()}, NodeSelector: map[string]string{taintKey: taintValue},
				},
			},
		})
	}
	return policies
}

// pod returns a pod of a namespace, with two containers and 40 variables, that nothing schedules.
func pod(namespace string, guarded bool) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "web-7d4b9c6f5d-",
			Namespace:    namespace,
			Labels:       map[string]string{"app": namespace, "pod-template-hash": "7d4b9c6f5d"},
		},
		Spec: corev1.PodSpec{ServiceAccountName: namespace, SchedulerName: "none"},
	}
	if guarded {
		p.Spec.Tolerations = []corev1.Toleration{toleration()}
	}
	for _, name := range []string{"web", "proxy"} {
		container := corev1.Container{
			Name:  name,
			Image: "registry.example.com/team/" + name + ":v1.2.3",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi"),
			}},
		}
		for i := range 20 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%02d", i), Value: "a value of a setting"})
		}
		p.Spec.Containers = append(p.Spec.Containers, container)
	}
	return p
}

// create creates objects, the last of them when the others are there.
func (s *stage) create(ctx context.Context, objects []client.Object) error {
	jobs, limited := errgroup.WithContext(ctx)
	jobs.SetLimit(atOnce)
	create := func(ctx context.Context, object client.Object) error {
		// A thousand policies with expressions can be more than a busy machine compiles in the time that a
		// review may take: then the API server refuses one, and stores nothing.
		return until(ctx, object.GetName()+" is created", func(ctx context.Context) error {
			// Create writes the answer into the object, and the caller may create it again.
			return s.client.Create(ctx, object.DeepCopyObject().(client.Object)) //nolint:forcetypeassert // It is a copy.
		})
	}
	for i, object := range objects {
		if i == len(objects)-1 {
			break
		}
		jobs.Go(func() error { return create(limited, object) })
	}
	if err := jobs.Wait(); err != nil || len(objects) == 0 {
		return err
	}
	return create(ctx, objects[len(objects)-1])
}

// clearPolicies deletes all policies.
func (s *stage) clearPolicies(ctx context.Context) error {
	for _, kind := range []client.Object{&v1alpha1.TolerationPolicy{}, &v1alpha1.PlacementPolicy{}} {
		if err := s.client.DeleteAllOf(ctx, kind); err != nil {
			return fmt.Errorf("delete policies: %w", err)
		}
	}
	return nil
}

// waitReady returns when the leader has written into the status of n policies that they are in force, and
// how many pods violate them: it then has nothing to do with them any more.
func (s *stage) waitReady(ctx context.Context, n int) error {
	return until(ctx, "all policies are ready and audited", func(ctx context.Context) error {
		var tolerations v1alpha1.TolerationPolicyList
		var placements v1alpha1.PlacementPolicyList
		if err := s.client.List(ctx, &tolerations); err != nil {
			return err
		}
		if err := s.client.List(ctx, &placements); err != nil {
			return err
		}
		ready := 0
		for i := range tolerations.Items {
			status := &tolerations.Items[i].Status
			if status.Violations != nil && meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady) {
				ready++
			}
		}
		for i := range placements.Items {
			if meta.IsStatusConditionTrue(placements.Items[i].Status.Conditions, v1alpha1.ConditionReady) {
				ready++
			}
		}
		if there := len(tolerations.Items) + len(placements.Items); ready != n || there != n {
			return fmt.Errorf("%d of %d are, and there are %d", ready, n, there)
		}
		return nil
	})
}
