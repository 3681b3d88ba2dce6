package eviction

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// Policy is an EvictionPolicy, read once. It does not change and is safe for
// concurrent use. All defaults are filled in.
type Policy struct {
	Name       string
	UID        types.UID
	Generation int64
	Priority   int32
	Created    time.Time

	Method v1alpha1.EvictionMethod // Delete or Evict
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

// Ref is how a message names the policy.
func (p *Policy) Ref() string { return "EvictionPolicy/" + p.Name }

// protection says which pods a policy protects.
type protection struct {
	classes map[string]struct{}
	pods    labels.Selector // nil for none
	// namespaces are names, and prefixes that end in "*"; nil for all.
	namespaces []string
}

func (p *protection) covers(subject *Subject) bool {
	if p.namespaces != nil && !slices.ContainsFunc(p.namespaces, func(pattern string) bool { return isNamed(pattern, subject.Namespace) }) {
		return false
	}
	if _, ok := p.classes[subject.PriorityClassName]; ok {
		return true
	}
	return p.pods != nil && p.pods.Matches(orNone(subject.Labels))
}

// isNamed reports whether a name, or a prefix and "*", names a namespace.
func isNamed(pattern, namespace string) bool {
	if prefix, open := strings.CutSuffix(pattern, "*"); open {
		return strings.HasPrefix(namespace, prefix)
	}
	return pattern == namespace
}

// selectsTaint reports whether a selector of the policy selects the taint.
func (p *Policy) selectsTaint(taint *Taint) bool {
	for i := range p.taints {
		if p.taints[i].Selects(taint.Target, taint.Driver, taint.Key, taint.Value, taint.Effect) {
			return true
		}
	}
	return false
}

// orNone returns labels that can be asked: a nil interface cannot.
func orNone(of labels.Labels) labels.Labels {
	if of == nil {
		return labels.Set(nil)
	}
	return of
}
