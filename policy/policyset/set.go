package policyset

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/policy/gate"
	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/policy/toleration"
)

// Set is the policies in force. It does not change and is safe for concurrent use. In one that is
// not made by None a nil field holds no policy.
//
// A PlacementPolicy with a guard stands for a TolerationPolicy and a TaintPolicy, see
// placement.Guard. Tolerations and Taints hold these too, unless their kind is switched off.
type Set struct {
	Tolerations *toleration.Set
	Placement   *placement.Set
	Taints      *taint.Set
	Gates       *gate.Set
	Evictions   *eviction.Set
	// Version identifies the policies: two replicas with the same version give the same
	// answers. It is a short hash of the names, UIDs and generations of all of them.
	Version string

	sources [positions]source
	// tolerations and taints are the policies that are objects, guards those that guards of
	// PlacementPolicies stand for.
	tolerations []v1alpha1.TolerationPolicy
	taints      []v1alpha1.TaintPolicy
	guards      Guards
}

// Guards are the policies that guards of PlacementPolicies stand for.
type Guards struct {
	Tolerations []v1alpha1.TolerationPolicy
	Taints      []v1alpha1.TaintPolicy
}

// GuardsOf returns the policies that the guards of some PlacementPolicies stand for.
func GuardsOf(list []v1alpha1.PlacementPolicy) Guards {
	var g Guards
	for i := range list {
		tolerations, taints := placement.Guard(&list[i])
		if tolerations != nil {
			g.Tolerations = append(g.Tolerations, *tolerations)
		}
		if taints != nil {
			g.Taints = append(g.Taints, *taints)
		}
	}
	return g
}

// The positions of the kinds in Set.sources.
const (
	ofTolerations = iota
	ofPlacement
	ofTaints
	ofGates
	ofEvictions
	positions
)

// source is the list from which the set of a kind was compiled; zero for a kind that never
// was.
type source struct {
	digest      string
	generations map[types.UID]int64
}

// None returns a set without policies.
func None() *Set {
	s := &Set{
		Tolerations: new(toleration.Set), Placement: new(placement.Set), Taints: new(taint.Set), Gates: new(gate.Set), Evictions: new(eviction.Set),
	}
	return s.withVersion()
}

// WithTolerations returns a set with these TolerationPolicies in place of those before; p
// itself where they are the same. A nil p has no policies of any kind. The set keeps the
// list, which must not be written to afterwards.
func (p *Set) WithTolerations(list []v1alpha1.TolerationPolicy) *Set {
	return with(p, ofTolerations, list, func(s *Set) {
		s.tolerations = list
		s.compileTolerations()
	})
}

// WithPlacement is WithTolerations for PlacementPolicies.
func (p *Set) WithPlacement(list []v1alpha1.PlacementPolicy) *Set {
	return with(p, ofPlacement, list, func(s *Set) {
		s.Placement = s.Placement.Next(list)
		before := s.guards
		s.guards = GuardsOf(list)
		if s.sources[ofTolerations].digest != "" && len(before.Tolerations)+len(s.guards.Tolerations) > 0 {
			s.compileTolerations()
		}
		if s.sources[ofTaints].digest != "" && len(before.Taints)+len(s.guards.Taints) > 0 {
			s.compileTaints()
		}
	})
}

// WithTaints is WithTolerations for TaintPolicies.
func (p *Set) WithTaints(list []v1alpha1.TaintPolicy) *Set {
	return with(p, ofTaints, list, func(s *Set) {
		s.taints = list
		s.compileTaints()
	})
}

func (p *Set) compileTolerations() {
	p.Tolerations = p.Tolerations.Next(slices.Concat(p.tolerations, p.guards.Tolerations))
}

func (p *Set) compileTaints() {
	p.Taints = p.Taints.Next(slices.Concat(p.taints, p.guards.Taints))
}

// WithGates is WithTolerations for GatePolicies.
func (p *Set) WithGates(list []v1alpha1.GatePolicy) *Set {
	return with(p, ofGates, list, func(s *Set) { s.Gates = s.Gates.Next(list) })
}

// WithEvictions is WithTolerations for EvictionPolicies.
func (p *Set) WithEvictions(list []v1alpha1.EvictionPolicy) *Set {
	return with(p, ofEvictions, list, func(s *Set) { s.Evictions = s.Evictions.Next(list) })
}

// with returns p with the policies of one kind compiled anew, unless they are the same.
func with[T any, P pointer[T]](p *Set, position int, list []T, compile func(*Set)) *Set {
	if p == nil {
		p = None()
	}
	// The lines are sorted, so that the order of the list makes no difference. A generation stands for a
	// spec: the API server counts it up with each change.
	from, lines := source{generations: make(map[types.UID]int64, len(list))}, make([]string, len(list))
	for i := range list {
		o := P(&list[i])
		from.generations[o.GetUID()] = o.GetGeneration()
		lines[i] = o.GetName() + "/" + string(o.GetUID()) + "/" + strconv.FormatInt(o.GetGeneration(), 10) + "\n"
	}
	slices.Sort(lines)
	digest := sha256.Sum256([]byte(strings.Join(lines, "")))
	from.digest = string(digest[:])
	if p.sources[position].digest == from.digest {
		return p
	}
	next := *p
	next.sources[position] = from
	compile(&next)
	return next.withVersion()
}

func (p *Set) withVersion() *Set {
	const short = 6 // bytes; the hash protects against nothing but accidents
	hash := sha256.New()
	for i := range p.sources {
		hash.Write([]byte(p.sources[i].digest + "/"))
	}
	p.Version = hex.EncodeToString(hash.Sum(nil)[:short])
	return p
}

// Holds reports whether this generation of a policy is in force.
func (p *Set) Holds(uid types.UID, generation int64) bool {
	if p == nil {
		return false
	}
	for i := range p.sources {
		if held, ok := p.sources[i].generations[uid]; ok {
			return held == generation
		}
	}
	return false
}
