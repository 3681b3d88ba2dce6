package policy

import (
	"cmp"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Set holds the policies of one kind, each compiled to a P. It does not change and is safe
// for concurrent use. The zero Set holds no policy.
type Set[P any] struct {
	// Policies are in the order that CompileSet was given. They are not to be written to.
	Policies []P

	problems map[string]field.ErrorList
	byUID    map[types.UID]compiled[P]
}

// compiled is a policy with the object that it was compiled from.
type compiled[P any] struct {
	name       string
	generation int64
	policy     P
	problems   field.ErrorList
}

// CompileSet compiles the policies of a list in the given order. A policy whose name, UID
// and generation are in the previous set is taken over from there, because compiling
// expressions is slow. The set shares no memory with the list.
func CompileSet[T any, O interface {
	*T
	metav1.Object
}, P any](list []T, previous *Set[P], order func(a, b O) int, compile func(O) (P, field.ErrorList)) Set[P] {
	objects := make([]O, len(list))
	for i := range list {
		objects[i] = &list[i]
	}
	slices.SortStableFunc(objects, order)
	s := Set[P]{
		Policies: make([]P, 0, len(list)),
		problems: map[string]field.ErrorList{},
		byUID:    make(map[types.UID]compiled[P], len(list)),
	}
	for _, o := range objects {
		name, uid, generation := o.GetName(), o.GetUID(), o.GetGeneration()
		c, ok := previous.byUID[uid]
		if !ok || c.name != name || c.generation != generation {
			c = compiled[P]{name: name, generation: generation}
			c.policy, c.problems = compile(o)
		}
		if len(c.problems) > 0 {
			s.problems[name] = c.problems
		}
		if uid != "" {
			s.byUID[uid] = c
		}
		s.Policies = append(s.Policies, c.policy)
	}
	return s
}

// ByName orders policies by name, so that every replica gives the same answers.
func ByName[O metav1.Object](a, b O) int { return cmp.Compare(a.GetName(), b.GetName()) }

// Len returns how many policies the set holds.
func (s *Set[P]) Len() int { return len(s.Policies) }

// Problems returns, by the name of the policy, why a policy is not fully in force.
// Policies without a fault are left out.
func (s *Set[P]) Problems() map[string]field.ErrorList { return maps.Clone(s.problems) }

// ByUID returns the policy with a UID; false where there is none.
func (s *Set[P]) ByUID(uid types.UID) (P, bool) {
	c, ok := s.byUID[uid]
	return c.policy, ok
}
