package sidebyside

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
)

// podStates is about pods that are not simply running.
func podStates() []scenario {
	return []scenario{
		{
			name: "a pod that is not scheduled yet", rules: "DE-03",
			play: func(s *stage) {
				s.devices("a", "a")
				s.claim(dra.Claim("shared", s.driver, "a"))
				s.run(dra.Pod("a", "shared"))
				gated := dra.Pod("gated", "shared")
				gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "e2e.example.com/gate"}}
				s.create(gated)
				s.begin()
				s.rule("r", drain())
			},
			want: outcome{"a": leaves(0), "gated": stays, "rule r": "False Completed"},
		},
		{
			name: "a pod that has ended and given its claim back", rules: "DE-11",
			play: func(s *stage) {
				s.user("a")
				s.finish("a")
				s.eventually("claim given back", func() error {
					claim, err := s.client.ResourceV1().ResourceClaims(s.namespace).Get(s.ctx, "a", metav1.GetOptions{})
					if err == nil && len(claim.Status.ReservedFor) > 0 {
						err = fmt.Errorf("reserved for %v", claim.Status.ReservedFor)
					}
					return err
				})
				s.begin()
				s.after(soon) // An evictor may hear of the rule before it hears of the claim.
				s.rule("r", drain())
			},
			want: outcome{"a": stays, "rule r": "False NotStarted"},
		},
		{
			name: "a pod that is being deleted already", rules: "DE-12",
			play: func(s *stage) {
				s.devices("a", "a")
				s.claim(dra.Claim("a", s.driver, "a"))
				held := dra.Pod("a", "a")
				held.Finalizers = []string{"e2e.example.com/hold"}
				s.run(held)
				s.deletePod("a")
				s.begin()
				s.after(soon) // An evictor may hear of the taint before it hears of the deletion.
				s.taint("a", drain())
			},
			want: outcome{"a": stays},
		},
		{
			name: "a pod that a disruption budget guards", rules: "DE-13",
			play: func(s *stage) {
				s.devices("a", "a")
				s.claim(dra.Claim("a", s.driver, "a"))
				s.budget("guarded")
				pod := dra.Pod("a", "a")
				pod.Labels = map[string]string{"app": "guarded"}
				s.run(pod)
				s.begin()
				s.rule("r", drain())
			},
			want: outcome{"a": leaves(0), "rule r": "False Completed"},
		},
		{
			name: "a pod that is deleted by its user while its toleration runs", rules: "DE-74",
			play: func(s *stage) {
				s.user("a", dra.TolerateFor(key, hour))
				s.begin()
				s.rule("r", drain())
				// Kubernetes looks once more at the rule after ten seconds.
				s.after(later + period/2)
				s.deletePod("a")
			},
			want:    outcome{"a": stays, "rule r": "True PodsPendingEviction"},
			differs: "DE-74", tollgate: outcome{"a": stays, "rule r": "False NotStarted"},
		},
	}
}

// groups is about claims that are held for a PodGroup.
func groups() []scenario {
	return []scenario{
		{
			name: "a claim that a group of pods holds", rules: "DE-08",
			play: func(s *stage) {
				s.devices("a", "a")
				s.claim(dra.Claim("shared", s.driver, "a"))
				s.group("group", "shared")
				s.run(member("group", dra.Pod("a", "shared")), member("group", dra.Pod("b", "shared")))
				s.run(member("group", dra.Pod("without")))
				s.begin()
				s.rule("r", drain())
			},
			want: outcome{"a": leaves(0), "b": leaves(0), "without": stays, "rule r": "False Completed"},
		},
		{
			name: "a claim that a group of pods holds, one of which has ended", rules: "DE-11",
			play: func(s *stage) {
				s.devices("a", "a")
				s.claim(dra.Claim("shared", s.driver, "a"))
				s.group("group", "shared")
				s.run(member("group", dra.Pod("a", "shared")), member("group", dra.Pod("ended", "shared")))
				s.finish("ended")
				s.begin()
				s.rule("r", drain())
			},
			want:    outcome{"a": leaves(0), "ended": leaves(0), "rule r": "False Completed"},
			differs: "DE-11", tollgate: outcome{"a": leaves(0), "ended": stays, "rule r": "False Completed"},
		},
	}
}

// budget lets no pod of an app be disrupted.
func (s *stage) budget(app string) {
	s.do("create budget", func() error {
		budget := &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: app},
			Spec: policyv1.PodDisruptionBudgetSpec{
				MaxUnavailable: new(intstr.FromInt32(0)),
				Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
			},
		}
		_, err := s.client.PolicyV1().PodDisruptionBudgets(s.namespace).Create(s.ctx, budget, metav1.CreateOptions{})
		return err
	})
}

// group creates a group of pods that holds a claim.
func (s *stage) group(name, claim string) {
	s.do("create group", func() error {
		group := &schedulingv1beta1.PodGroup{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: schedulingv1beta1.PodGroupSpec{
				SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{Basic: &schedulingv1beta1.BasicSchedulingPolicy{}},
				ResourceClaims:   []schedulingv1beta1.PodGroupResourceClaim{{Name: claim, ResourceClaimName: &claim}},
			},
		}
		_, err := s.client.SchedulingV1beta1().PodGroups(s.namespace).Create(s.ctx, group, metav1.CreateOptions{})
		return err
	})
}

func member(group string, pod *corev1.Pod) *corev1.Pod {
	pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group}
	return pod
}
