package eviction

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// FuzzCompileAndFor compiles what the schema would and would not let pass: whatever is
// stored, nothing panics, what is in force is within its bounds, and a policy without
// an error is in force to the letter.
func FuzzCompileAndFor(f *testing.F) {
	f.Add("a", "Node", "v", "NoExecute", "app", "In", "web", "Evict", "Decided", int64(60), int32(1), int32(5), "app", int64(300), uint8(0xff))
	f.Add("*", "Device", "", "", "", "", "", "", "", int64(0), int32(0), int32(0), "", int64(0), uint8(0))
	f.Add("a*b/*", "Pool", "v v", "None", "a b", "Near", "", "Ask", "Some", int64(-1), int32(-1), int32(1<<31-1), "*", int64(-1), uint8(0x55))
	f.Fuzz(func(t *testing.T, key, target, value, effect, label, operator, of, method, scope string, nanos int64, rate, percent int32, class string, seconds int64, has uint8) {
		sel := v1alpha1.TaintSelector{Target: v1alpha1.TaintTarget(target), Key: key}
		if value != "" {
			sel.Values, sel.Drivers = []string{value}, []string{value}
		}
		if effect != "" {
			sel.Effects = []corev1.TaintEffect{corev1.TaintEffect(effect)}
		}
		pods := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: label, Operator: metav1.LabelSelectorOperator(operator), Values: []string{of},
		}}}
		p := newPolicy("p", key)
		s := v1alpha1.EvictionPolicySpec{Taints: []v1alpha1.TaintSelector{sel}, Priority: rate, Method: v1alpha1.EvictionMethod(method)}
		for bit, set := range []func(){
			func() { s.PodSelector = pods },
			func() { s.NamespaceSelector = pods },
			func() { s.DeleteAfter = &metav1.Duration{Duration: time.Duration(nanos)} },
			func() {
				s.Pace = &v1alpha1.EvictionPace{PodsPerSecond: rate, Burst: percent, Scope: v1alpha1.LimitScope(scope)}
			},
			func() {
				s.Breaker = &v1alpha1.EvictionBreaker{MaxPods: &rate, MaxPercent: &percent, Window: metav1.Duration{Duration: time.Duration(nanos)}, Scope: v1alpha1.LimitScope(scope)}
			},
			func() {
				s.Protect = &v1alpha1.EvictionProtection{PriorityClassNames: []string{class}, PodSelector: pods}
			},
			func() { s.Inject = &v1alpha1.EvictionInjection{Seconds: seconds} },
			func() { s.Paused = true },
		} {
			if has&(1<<bit) != 0 {
				set()
			}
		}
		p.Spec = s
		set := Compile([]v1alpha1.EvictionPolicy{p, newPolicy("q", "*", prioritized(-1))})
		requireWithinBounds(t, set.ByUID("uid of p"))
		for _, at := range []v1alpha1.TaintTarget{v1alpha1.TaintTargetNode, v1alpha1.TaintTargetDevice, v1alpha1.TaintTarget(target)} {
			for _, subject := range []Subject{{}, {NamespaceKnown: true}, {NamespaceKnown: true, Labels: labels.Set{label: of}, NamespaceLabels: labels.Set{label: of}, PriorityClassName: class}} {
				treatment, err := set.For(&Taint{Target: at, Driver: value, Key: key, Value: value, Effect: corev1.TaintEffectNoExecute}, &subject)
				require.True(t, err == nil || treatment.Policy == nil)
				given, err := set.WindowsFor(at, &subject)
				require.True(t, err == nil || given == nil)
				for _, w := range given {
					require.True(t, set.HasWindow(at, w.Key))
				}
			}
		}
	})
}

func requireWithinBounds(t *testing.T, p *Policy) {
	t.Helper()
	require.Contains(t, []v1alpha1.EvictionMethod{v1alpha1.EvictionMethodDelete, v1alpha1.EvictionMethodEvict}, p.Method)
	if p.DeleteAfter != nil {
		require.Equal(t, v1alpha1.EvictionMethodEvict, p.Method)
		require.GreaterOrEqual(t, *p.DeleteAfter, time.Duration(0))
	}
	if p.Pace != nil {
		require.True(t, 1 <= p.Pace.PerSecond && p.Pace.PerSecond <= maxRate && 1 <= p.Pace.Burst && p.Pace.Burst <= maxRate)
	}
	if b := p.Breaker; b != nil {
		require.True(t, b.MaxPods != nil || b.MaxPercent != nil)
		require.True(t, b.MaxPods == nil || *b.MaxPods >= 1)
		require.True(t, b.MaxPercent == nil || 1 <= *b.MaxPercent && *b.MaxPercent <= 100)
		require.True(t, minWindow <= b.Window && b.Window <= maxWindow)
	}
	if p.WindowSeconds != nil {
		require.True(t, 1 <= *p.WindowSeconds && *p.WindowSeconds <= maxInjectSeconds)
	}
	require.True(t, !p.Paused || len(p.Problems) > 0 || p.Name == "p")
}
