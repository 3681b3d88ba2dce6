package chaos

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

const (
	policyCount = 3
	budgetCount = 2
	// ownerLabel says of which schedule a policy or an approval is.
	ownerLabel = "chaos"
)

// addPolicies adds what administrators do about evictions.
func (s *schedule) addPolicies() {
	for i := range 1 + s.random.IntN(policyCount) {
		s.addPolicy(0, i)
	}
	// What policies forbid is only checked some time after one of them was changed, so
	// that in half of the schedules none is.
	changed := s.chance(0.5)
	for at := s.between(0, 4*time.Second); at < s.length; at += s.between(0, 4*time.Second) {
		switch {
		case changed && s.chance(0.4):
			s.addDecision(at)
		case s.chance(0.5):
			s.addApproval(at)
		default:
			s.addBudget(at, s.random.IntN(budgetCount))
		}
	}
}

// addDecision adds one thing that an administrator decides.
func (s *schedule) addDecision(at time.Duration) {
	i := s.random.IntN(policyCount)
	switch s.random.IntN(6) {
	case 0:
		s.addPolicy(at, i)
	case 1:
		s.add(at, func(ctx context.Context, st *stage) error {
			return st.objects.Delete(ctx, &v1alpha1.EvictionPolicy{ObjectMeta: metav1.ObjectMeta{Name: st.policyName(i)}})
		}, "delete policy %d", i)
	case 2, 3:
		paused := s.chance(0.4)
		s.addEdit(at, i, func(spec *v1alpha1.EvictionPolicySpec) { spec.Paused = paused }, "policy %d is paused: %t", i, paused)
	case 4:
		breaker := s.breaker()
		s.addEdit(at, i, func(spec *v1alpha1.EvictionPolicySpec) { spec.Breaker = breaker }, "policy %d has the breaker %s", i, breakerText(breaker))
	default:
		most, name := 1+s.random.Int32N(6), s.random.IntN(1_000_000)
		s.add(at, func(ctx context.Context, st *stage) error {
			return st.approve(ctx, name, &v1alpha1.EvictionApprovalSpec{EvictionPolicy: st.policyName(i), MaxPods: most})
		}, "approve %d pods of the breaker of policy %d", most, i)
	}
}

func (st *stage) policyName(i int) string { return fmt.Sprintf("%s-%d", st.namespace, i) }

// addPolicy adds that a policy is made, or made anew.
func (s *schedule) addPolicy(at time.Duration, i int) {
	spec := v1alpha1.EvictionPolicySpec{Priority: s.random.Int32N(3), Method: v1alpha1.EvictionMethodDelete, Paused: s.chance(0.1)}
	key := pick(s, prefix+"a", prefix+"b", prefix+"*", "*")
	for _, target := range pick(s, []v1alpha1.TaintTarget{v1alpha1.TaintTargetNode},
		[]v1alpha1.TaintTarget{v1alpha1.TaintTargetNode, v1alpha1.TaintTargetDevice}, []v1alpha1.TaintTarget{v1alpha1.TaintTargetDevice}) {
		spec.Taints = append(spec.Taints, v1alpha1.TaintSelector{Target: target, Key: key})
	}
	if s.chance(0.3) {
		spec.PodSelector = selecting("x")
	}
	if s.chance(0.2) {
		spec.Protect = &v1alpha1.EvictionProtection{PodSelector: selecting("y")}
	}
	if s.chance(0.4) {
		spec.Method = v1alpha1.EvictionMethodEvict
		if s.chance(0.5) {
			spec.DeleteAfter = &metav1.Duration{Duration: s.between(time.Second, 8*time.Second).Round(time.Second)}
		}
	} else {
		spec.Mark = pick(s, v1alpha1.EvictionMarkBefore, v1alpha1.EvictionMarkByEvictionAPI, v1alpha1.EvictionMarkWhileTerminating)
	}
	if s.chance(0.4) {
		// Quick enough that everybody can leave while it settles.
		spec.Pace = &v1alpha1.EvictionPace{PodsPerSecond: 5 + s.random.Int32N(20), Burst: 1 + s.random.Int32N(5), Scope: s.scope()}
	}
	if s.chance(0.6) {
		spec.Breaker = s.breaker()
	}
	s.add(at, func(ctx context.Context, st *stage) error {
		return st.objects.Create(ctx, &v1alpha1.EvictionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: st.policyName(i), Labels: map[string]string{ownerLabel: st.namespace}}, Spec: spec,
		})
	}, "create policy %d: %s", i, policyText(&spec))
}

func (s *schedule) scope() v1alpha1.LimitScope {
	return pick(s, v1alpha1.LimitScopeDecided, v1alpha1.LimitScopeSelected)
}

// breaker returns one that trips in most schedules.
func (s *schedule) breaker() *v1alpha1.EvictionBreaker {
	b := &v1alpha1.EvictionBreaker{Window: metav1.Duration{Duration: s.between(10*time.Second, 30*time.Second).Round(time.Second)}, Scope: s.scope()}
	if s.chance(0.3) {
		b.MaxPercent = new(1 + s.random.Int32N(60))
	} else {
		b.MaxPods = new(1 + s.random.Int32N(15))
	}
	return b
}

func selecting(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

func (s *schedule) addEdit(at time.Duration, i int, edit func(*v1alpha1.EvictionPolicySpec), format string, args ...any) {
	s.add(at, func(ctx context.Context, st *stage) error {
		policy := &v1alpha1.EvictionPolicy{}
		if err := st.objects.Get(ctx, client.ObjectKey{Name: st.policyName(i)}, policy); err != nil {
			return err
		}
		edit(&policy.Spec)
		return st.objects.Update(ctx, policy)
	}, format, args...)
}

// addApproval adds that somebody approves of a taint, which may not be there.
func (s *schedule) addApproval(at time.Duration) {
	spec := v1alpha1.EvictionApprovalSpec{
		Taint: v1alpha1.ApprovedTaint{Key: s.key(), Effect: corev1.TaintEffectNoExecute}, MaxPods: 1 + s.random.Int32N(6),
	}
	rule := -1
	if s.chance(0.3) {
		rule = s.random.IntN(ruleCount)
	} else {
		spec.Node = controlplane.NodeName(1 + s.random.IntN(nodeCount))
	}
	name := s.random.IntN(1_000_000)
	s.add(at, func(ctx context.Context, st *stage) error {
		spec := spec
		if rule >= 0 {
			spec.DeviceTaintRule = st.ruleName(rule)
		}
		return st.approve(ctx, name, &spec)
	}, "approve %d pods because of %s of node %q or rule %d", spec.MaxPods, spec.Taint.Key, spec.Node, rule)
}

func (st *stage) approve(ctx context.Context, name int, spec *v1alpha1.EvictionApprovalSpec) error {
	return st.objects.Create(ctx, &v1alpha1.EvictionApproval{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", st.namespace, name), Labels: map[string]string{ownerLabel: st.namespace}}, Spec: *spec,
	})
}

// addBudget adds that a budget is made, or taken away.
func (s *schedule) addBudget(at time.Duration, i int) {
	name := fmt.Sprintf("budget-%d", i)
	if s.chance(0.4) {
		s.add(at, func(ctx context.Context, st *stage) error {
			return st.client.PolicyV1().PodDisruptionBudgets(st.namespace).Delete(ctx, name, metav1.DeleteOptions{})
		}, "delete %s", name)
		return
	}
	// Not MaxUnavailable: what a pod without a controller does not count for.
	app, available := pick(s, "x", "y"), intstr.FromInt32(pick(s, int32(0), 3, 10))
	s.add(at, func(ctx context.Context, st *stage) error {
		_, err := st.client.PolicyV1().PodDisruptionBudgets(st.namespace).Create(ctx, &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: selecting(app), MinAvailable: &available},
		}, metav1.CreateOptions{})
		return err
	}, "create %s: of app %s at least %s stay", name, app, available.String())
}

func policyText(spec *v1alpha1.EvictionPolicySpec) string {
	taints := make([]string, 0, len(spec.Taints))
	for _, t := range spec.Taints {
		taints = append(taints, fmt.Sprintf("%s %s", t.Target, t.Key))
	}
	text := fmt.Sprintf("priority %d, method %s, %s", spec.Priority, spec.Method, strings.Join(taints, ", "))
	if spec.Mark != "" {
		text += ", mark " + string(spec.Mark)
	}
	if spec.DeleteAfter != nil {
		text += ", deleteAfter " + spec.DeleteAfter.Duration.String()
	}
	if spec.Pace != nil {
		text += fmt.Sprintf(", pace %d burst %d %s", spec.Pace.PodsPerSecond, spec.Pace.Burst, spec.Pace.Scope)
	}
	return text + fmt.Sprintf(", breaker %s, only app x: %t, protects app y: %t, paused: %t",
		breakerText(spec.Breaker), spec.PodSelector != nil, spec.Protect != nil, spec.Paused)
}

func breakerText(b *v1alpha1.EvictionBreaker) string {
	switch {
	case b == nil:
		return "(none)"
	case b.MaxPods != nil:
		return fmt.Sprintf("(%d pods in %s, %s)", *b.MaxPods, b.Window.Duration, b.Scope)
	}
	return fmt.Sprintf("(%d%% in %s, %s)", *b.MaxPercent, b.Window.Duration, b.Scope)
}

// sweepPolicies removes the policies and the approvals of the schedule.
func (st *stage) sweepPolicies(ctx context.Context) error {
	owned := client.MatchingLabels{ownerLabel: st.namespace}
	for _, object := range []client.Object{&v1alpha1.EvictionPolicy{}, &v1alpha1.EvictionApproval{}} {
		if err := st.objects.DeleteAllOf(ctx, object, owned); err != nil {
			return fmt.Errorf("delete %T: %w", object, err)
		}
	}
	return nil
}
