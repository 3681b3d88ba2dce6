package policyset

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"

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
	compiled [positions]compiled
}

// The positions of the kinds in Set.compiled.
const (
	ofTolerations = iota
	ofPlacement
	ofTaints
	ofGates
	ofEvictions
	positions
)

// compiled is what a set was compiled from; nothing for a set that never was.
type compiled struct {
	digest      string
	generations map[types.UID]int64
}

// None returns policies of no kind.
func None() *Set { return new(Set).named() }

// WithTolerations returns policies with these TolerationPolicies in the place of
// those that there were; p itself where they are the same. A nil p has none of any
// kind.
func (p *Set) WithTolerations(list []v1alpha1.TolerationPolicy) *Set {
	return with(p, ofTolerations, list, func(s *Set) { s.Tolerations = s.Tolerations.Next(list) })
}

// WithPlacement is WithTolerations for PlacementPolicies.
func (p *Set) WithPlacement(list []v1alpha1.PlacementPolicy) *Set {
	return with(p, ofPlacement, list, func(s *Set) { s.Placement = placement.Compile(list) })
}

// WithTaints is WithTolerations for TaintPolicies.
func (p *Set) WithTaints(list []v1alpha1.TaintPolicy) *Set {
	return with(p, ofTaints, list, func(s *Set) { s.Taints = s.Taints.Next(list) })
}

// WithGates is WithTolerations for GatePolicies.
func (p *Set) WithGates(list []v1alpha1.GatePolicy) *Set {
	return with(p, ofGates, list, func(s *Set) { s.Gates = gate.Compile(list) })
}

// WithEvictions is WithTolerations for EvictionPolicies.
func (p *Set) WithEvictions(list []v1alpha1.EvictionPolicy) *Set {
	return with(p, ofEvictions, list, func(s *Set) { s.Evictions = eviction.Compile(list) })
}

// with returns p with the policies of one kind compiled anew, unless they are the same.
func with[T any, P pointer[T]](p *Set, position int, list []T, compile func(*Set)) *Set {
	next := None()
	if p != nil {
		next = new(*p)
	}
	from := compiledFrom[T, P](list)
	if next.compiled[position].digest == from.digest {
		if p == nil {
			return next
		}
		return p
	}
	next.compiled[position] = from
	compile(next)
	return next.named()
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

// compiledFrom says what a list is, whatever its order. A generation stands for a spec:
// the API server counts it up with each change.
func compiledFrom[T any, P pointer[T]](list []T) compiled {
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
