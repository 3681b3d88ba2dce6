package eviction

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

func compile(in *v1alpha1.EvictionPolicy) (*Policy, field.ErrorList) {
	spec := &in.Spec
	p := &Policy{
		Name:       in.Name,
		UID:        in.UID,
		Generation: in.Generation,
		Priority:   spec.Priority,
		Created:    in.CreationTimestamp.Time,
		Method:     methodOf(spec.Method),
		Pace:       paceOf(spec.Pace),
		Breaker:    breakerOf(spec.Breaker),
		Paused:     spec.Paused,
		Problems:   ValidatePolicy(in),
		protects:   protectionOf(spec.Protect),
	}
	p.alone = []*Policy{p}
	for i := range spec.Taints {
		p.taints = append(p.taints, selector.Compile(&spec.Taints[i]))
	}
	p.narrow(spec)
	// A selector with a fault may select more than was meant.
	p.Paused = p.Paused || len(selector.ValidateAll(spec.Taints, nil, selector.Taints)) > 0
	if after := spec.DeleteAfter; after != nil && p.Method == v1alpha1.EvictionMethodEvict && after.Duration >= 0 {
		p.DeleteAfter = new(after.Duration)
	}
	if inject := injectionOf(spec); inject != nil && len(validateInjection(inject, spec, nil)) == 0 {
		p.WindowSeconds = new(inject.Seconds)
	}
	return p, p.Problems
}

// narrow reads the selectors of pods and namespaces. One that cannot be read narrows
// nothing, so that whoever was meant is among those who are held.
func (p *Policy) narrow(spec *v1alpha1.EvictionPolicySpec) {
	var err error
	if p.pods, err = selectorOf(spec.PodSelector); err != nil {
		p.Paused = true
	}
	if p.namespaces, err = selectorOf(spec.NamespaceSelector); err != nil {
		p.Paused = true
	}
}

// selectorOf returns nil for a selector that selects everything.
func selectorOf(in *metav1.LabelSelector) (labels.Selector, error) {
	if in == nil {
		return nil, nil
	}
	read, err := metav1.LabelSelectorAsSelector(in)
	if err != nil {
		return nil, err
	}
	if read.Empty() {
		return nil, nil
	}
	return read, nil
}

// injectionOf returns what spec injects. The field was called window before: a policy
// that was stored then keeps its meaning.
func injectionOf(spec *v1alpha1.EvictionPolicySpec) *v1alpha1.EvictionInjection {
	if spec.Inject != nil {
		return spec.Inject
	}
	return spec.Window
}

func methodOf(method v1alpha1.EvictionMethod) v1alpha1.EvictionMethod {
	if method == "" || method == v1alpha1.EvictionMethodDelete {
		return v1alpha1.EvictionMethodDelete
	}
	return v1alpha1.EvictionMethodEvict
}

func scopeOf(scope v1alpha1.LimitScope) v1alpha1.LimitScope {
	if scope == "" || scope == v1alpha1.LimitScopeDecided {
		return v1alpha1.LimitScopeDecided
	}
	return v1alpha1.LimitScopeSelected
}

func paceOf(in *v1alpha1.EvictionPace) *Pace {
	if in == nil {
		return nil
	}
	out := &Pace{PerSecond: within(in.PodsPerSecond, 1, maxRate), Burst: in.Burst, Scope: scopeOf(in.Scope)}
	if out.Burst == 0 {
		out.Burst = out.PerSecond
	}
	out.Burst = within(out.Burst, 1, maxRate)
	return out
}

func breakerOf(in *v1alpha1.EvictionBreaker) *Breaker {
	if in == nil {
		return nil
	}
	out := &Breaker{Window: in.Window.Duration, Scope: scopeOf(in.Scope)}
	if in.MaxPods != nil {
		out.MaxPods = new(max(*in.MaxPods, 1))
	}
	if in.MaxPercent != nil {
		out.MaxPercent = new(within(*in.MaxPercent, 1, maxPercent))
	}
	if out.MaxPods == nil && out.MaxPercent == nil {
		out.MaxPods = new(int32(1))
	}
	if out.Window <= 0 {
		out.Window = defaultWindow
	}
	out.Window = within(out.Window, minWindow, maxWindow)
	return out
}

func within[T int32 | time.Duration](n, least, most T) T { return min(max(n, least), most) }

func protectionOf(in *v1alpha1.EvictionProtection) protection {
	var p protection
	if in == nil {
		return p
	}
	if len(in.Namespaces) > 0 && len(validateNamespaces(in.Namespaces, nil)) == 0 {
		p.namespaces = slices.Clone(in.Namespaces)
	}
	p.classes = make(map[string]struct{}, len(in.PriorityClassNames))
	for _, name := range in.PriorityClassNames {
		if name != "" {
			p.classes[name] = struct{}{}
		}
	}
	if in.PodSelector == nil {
		return p
	}
	read, err := metav1.LabelSelectorAsSelector(in.PodSelector)
	if err != nil {
		read = labels.Everything()
	}
	p.pods = read
	return p
}
