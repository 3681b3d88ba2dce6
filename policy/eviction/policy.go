package eviction

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// Policy is a compiled EvictionPolicy. It does not change and is safe for concurrent use. All
// defaults are filled in.
type Policy struct {
	Name       string
	UID        types.UID
	Generation int64

	Method v1alpha1.EvictionMethod // Delete or Evict
	Mark   v1alpha1.EvictionMark   // Before, ByEvictionAPI or WhileTerminating; Before with method Evict
	// DeleteAfter is how long after its due time a pod is deleted that could not be
	// evicted; nil for never, as always with method Delete.
	DeleteAfter *time.Duration
	// Pace and Breaker are nil where the policy has none.
	Pace    *Pace
	Breaker *Breaker
	// Paused holds what the policy governs. It is also true when what the policy
	// selects is not valid, see Compile; then Problems says why.
	Paused bool
	// WindowSeconds is the time that pods get in mode Window, nil for none.
	WindowSeconds *int64
	// Problems is why the policy is not in force to the letter; empty when it is.
	Problems field.ErrorList

	taints []selector.Selector
	// namespaces and pods are nil where the policy does not narrow.
	namespaces, pods labels.Selector
	protects         protection
	// alone is the list of this policy and no other.
	alone []*Policy
}

// Pace bounds how fast pods leave.
type Pace struct {
	// PerSecond and Burst are 1 at least.
	PerSecond, Burst int32
	Scope            v1alpha1.LimitScope // Decided or Selected
}

// Breaker bounds how many pods leave in a window. One of its limits is set at least.
type Breaker struct {
	// MaxPods and MaxPercent are 1 at least, MaxPercent 100 at most; nil for no such
	// limit. The percentage is of the live pods of the cluster.
	MaxPods, MaxPercent *int32
	// Window is from 10 seconds to 24 hours.
	Window time.Duration
	Scope  v1alpha1.LimitScope // Decided or Selected
}

// Limit returns how many pods may be evicted within the window, if live pods are left and gone were evicted: the
// smaller of the two bounds, and none without a bound. Evictions do not lower the limit, because the percentage
// is of both.
func (b *Breaker) Limit(live, gone int) int {
	pods, bounded := 0, false
	if b.MaxPercent != nil {
		pods, bounded = max(1, max(live+gone, 0)*int(*b.MaxPercent)/100), true
	}
	if b.MaxPods != nil && (!bounded || int(*b.MaxPods) < pods) {
		pods = int(*b.MaxPods)
	}
	return max(pods, 0)
}

// Ref returns how messages name the policy.
func (p *Policy) Ref() string { return "EvictionPolicy/" + p.Name }

// protection says which pods a policy protects.
type protection struct {
	classes    sets.Set[string]
	pods       labels.Selector
	namespaces selector.Namespaces // none where nothing is protected
}

func (p *protection) covers(subject *Subject) bool {
	if !p.namespaces.Has(subject.Namespace) {
		return false
	}
	return p.classes.Has(subject.PriorityClassName) || p.pods.Matches(selector.Labels(subject.Labels))
}

// selectsTaint reports whether a selector of the policy selects the taint.
func (p *Policy) selectsTaint(taint *Taint) bool {
	return selector.Selecting(p.taints, taint.Target, taint.Driver, taint.Key, taint.Value, taint.Effect) != nil
}

func compile(in *v1alpha1.EvictionPolicy) (*Policy, field.ErrorList) {
	spec := &in.Spec
	p := &Policy{
		Name:       in.Name,
		taints:     selector.CompileAll(spec.Taints),
		UID:        in.UID,
		Generation: in.Generation,
		Method:     defaulted(spec.Method, v1alpha1.EvictionMethodDelete, v1alpha1.EvictionMethodEvict),
		Mark:       v1alpha1.EvictionMarkBefore,
		Pace:       paceOf(spec.Pace),
		Breaker:    breakerOf(spec.Breaker),
		Paused:     spec.Paused,
		Problems:   ValidatePolicy(in),
		protects:   protectionOf(spec.Protect),
	}
	p.alone = []*Policy{p}
	if p.Method == v1alpha1.EvictionMethodDelete && slices.Contains(marks, spec.Mark) {
		p.Mark = spec.Mark
	}
	var podErr, namespaceErr error
	p.pods, podErr = selectorOf(spec.PodSelector)
	p.namespaces, namespaceErr = selectorOf(spec.NamespaceSelector)
	// A selector with a fault may select more than its author meant, and one that cannot be
	// read selects everything. The pods are held.
	p.Paused = p.Paused || podErr != nil || namespaceErr != nil || len(selector.ValidateAll(spec.Taints, nil, selector.Taints)) > 0
	if after := spec.DeleteAfter; after != nil && p.Method == v1alpha1.EvictionMethodEvict && after.Duration >= 0 {
		p.DeleteAfter = new(after.Duration)
	}
	// The field was called window before, and a policy that was stored then keeps its meaning.
	if inject := cmp.Or(spec.Inject, spec.Window); inject != nil && len(validateInjection(inject, spec, nil)) == 0 {
		p.WindowSeconds = new(inject.Seconds)
	}
	return p, p.Problems
}

// selectorOf returns nil for a selector that selects everything.
func selectorOf(in *metav1.LabelSelector) (labels.Selector, error) {
	if in == nil {
		return nil, nil
	}
	read, err := metav1.LabelSelectorAsSelector(in)
	if err != nil || read.Empty() {
		return nil, err
	}
	return read, nil
}

// defaulted returns the default for a field that is not set, and the strict value for one that is not
// known.
func defaulted[T ~string](value, byDefault, strict T) T {
	if value == "" || value == byDefault {
		return byDefault
	}
	return strict
}

func scopeOf(scope v1alpha1.LimitScope) v1alpha1.LimitScope {
	return defaulted(scope, v1alpha1.LimitScopeDecided, v1alpha1.LimitScopeSelected)
}

func paceOf(in *v1alpha1.EvictionPace) *Pace {
	if in == nil {
		return nil
	}
	perSecond := min(max(in.PodsPerSecond, 1), maxRate)
	return &Pace{PerSecond: perSecond, Burst: min(max(cmp.Or(in.Burst, perSecond), 1), maxRate), Scope: scopeOf(in.Scope)}
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
		out.MaxPercent = new(min(max(*in.MaxPercent, 1), maxPercent))
	}
	if out.MaxPods == nil && out.MaxPercent == nil {
		out.MaxPods = new(int32(1))
	}
	if out.Window <= 0 {
		out.Window = defaultWindow
	}
	out.Window = min(max(out.Window, minWindow), maxWindow)
	return out
}

func protectionOf(in *v1alpha1.EvictionProtection) protection {
	if in == nil {
		return protection{}
	}
	namespaces := in.Namespaces
	if len(validateNamespaces(namespaces, nil)) > 0 {
		namespaces = nil
	}
	pods, err := metav1.LabelSelectorAsSelector(in.PodSelector) // which selects nothing where there is none
	if err != nil {
		pods = labels.Everything()
	}
	return protection{sets.New(in.PriorityClassNames...).Delete(""), pods, selector.CompileNamespaces(namespaces)}
}
