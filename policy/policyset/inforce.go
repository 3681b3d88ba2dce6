package policyset

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/policy/gate"
	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/policy/toleration"
)

// Set are the policies in force. They do not change and are safe for concurrent
// use. A set that is nil holds no policy: its kind is switched off, or there is none.
type Set struct {
	Tolerations *toleration.Set
	Placement   *placement.Set
	Taints      *taint.Set
	Gates       *gate.Set
	Evictions   *eviction.Set
	// Version names the policies: two replicas with the same version judge by the
	// same. It is a short hash of the UIDs and generations of all of them.
	Version string

	// compiled says what each set was compiled from.
	compiled [kinds]compiled
}

// The positions of the kinds in Policies.compiled.
const (
	ofTolerations = iota
	ofPlacement
	ofTaints
	ofGates
	ofEvictions
	kinds
)

// compiled is what a set was compiled from; nothing for a set that never was.
type compiled struct {
	digest      string
	generations map[types.UID]int64
}

// Kinds says which kinds of policies are judged by. The others are as if there were
// none.
type Kinds struct {
	Tolerations, Placement, Taints, Gates, Evictions bool
}

// None returns policies of no kind.
func None() *Set { return new(Set).named() }

// WithTolerations returns policies with these TolerationPolicies in the place of
// those that there were; p itself where they are the same. A nil p has none of any
// kind.
func (p *Set) WithTolerations(list []v1alpha1.TolerationPolicy) *Set {
	next := p.copy()
	if !next.replace(ofTolerations, compiledFrom(list)) {
		return next.orSame(p)
	}
	next.Tolerations = next.Tolerations.Next(list)
	return next.named()
}

// WithPlacement is WithTolerations for PlacementPolicies.
func (p *Set) WithPlacement(list []v1alpha1.PlacementPolicy) *Set {
	next := p.copy()
	if !next.replace(ofPlacement, compiledFrom(list)) {
		return next.orSame(p)
	}
	next.Placement = placement.Compile(list)
	return next.named()
}

// WithTaints is WithTolerations for TaintPolicies.
func (p *Set) WithTaints(list []v1alpha1.TaintPolicy) *Set {
	next := p.copy()
	if !next.replace(ofTaints, compiledFrom(list)) {
		return next.orSame(p)
	}
	next.Taints = next.Taints.Next(list)
	return next.named()
}

// WithGates is WithTolerations for GatePolicies.
func (p *Set) WithGates(list []v1alpha1.GatePolicy) *Set {
	next := p.copy()
	if !next.replace(ofGates, compiledFrom(list)) {
		return next.orSame(p)
	}
	next.Gates = gate.Compile(list)
	return next.named()
}

// WithEvictions is WithTolerations for EvictionPolicies.
func (p *Set) WithEvictions(list []v1alpha1.EvictionPolicy) *Set {
	next := p.copy()
	if !next.replace(ofEvictions, compiledFrom(list)) {
		return next.orSame(p)
	}
	next.Evictions = eviction.Compile(list)
	return next.named()
}

func (p *Set) copy() *Set {
	if p == nil {
		return None()
	}
	return new(*p)
}

// orSame returns the policies that p is an unchanged copy of.
func (p *Set) orSame(old *Set) *Set {
	if old == nil {
		return p
	}
	return old
}

func (p *Set) named() *Set {
	const short = 6 // bytes; there is nobody to fool with it
	hash := sha256.New()
	for i := range p.compiled {
		hash.Write([]byte(p.compiled[i].digest + "/"))
	}
	p.Version = hex.EncodeToString(hash.Sum(nil)[:short])
	return p
}

// replace notes what the set of a kind is compiled from, and reports whether that is
// another thing than before.
func (p *Set) replace(kind int, from compiled) bool {
	if p.compiled[kind].digest == from.digest {
		return false
	}
	p.compiled[kind] = from
	return true
}

// Holds reports whether a generation of a policy is among those in force.
func (p *Set) Holds(uid types.UID, generation int64) bool {
	if p == nil {
		return false
	}
	for i := range p.compiled {
		if held, ok := p.compiled[i].generations[uid]; ok {
			return held == generation
		}
	}
	return false
}

// object is a pointer to a policy.
type object[T any] interface {
	*T
	metav1.Object
}

// compiledFrom says what a list is, whatever its order. A generation stands for a spec:
// the API server counts it up with each change.
func compiledFrom[T any, P object[T]](list []T) compiled {
	from := compiled{generations: make(map[types.UID]int64, len(list))}
	lines := make([]string, len(list))
	for i := range list {
		o := P(&list[i])
		from.generations[o.GetUID()] = o.GetGeneration()
		lines[i] = o.GetName() + "/" + string(o.GetUID()) + "/" + strconv.FormatInt(o.GetGeneration(), 10) + "\n"
	}
	slices.Sort(lines)
	hash := sha256.New()
	for _, line := range lines {
		hash.Write([]byte(line))
	}
	from.digest = string(hash.Sum(nil))
	return from
}
