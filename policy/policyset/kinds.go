package policyset

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/policy/gate"
	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/policy/toleration"
)

// Object is a policy of any kind.
type Object interface {
	metav1.Object
	runtime.Object
}

// List is a list of policies of one kind.
type List interface {
	metav1.ListInterface
	runtime.Object
}

// Compiled is what the sets of all kinds have in common.
type Compiled interface {
	Len() int
	// Problems returns, by the name of the policy, why a policy is not fully in force.
	Problems() map[string]field.ErrorList
}

// Kind is a kind of policies. A new kind is a package with its decisions and an entry in
// kinds; reading, validation, status and compilation follow from that.
type Kind struct {
	// Name is the kind, Resource its name in paths, Gate the name of its feature gate.
	Name, Resource, Gate string
	// New returns an empty policy, NewList an empty list.
	New     func() Object
	NewList func() List
	// Validate returns why a policy is not valid.
	Validate func(Object) field.ErrorList
	// Status returns the parts of the status that all kinds have, to be written to.
	Status func(Object) (observedGeneration *int64, conditions *[]metav1.Condition)
	// With returns a set with these policies in place of those of the kind before; the set
	// itself where they are the same.
	With func(*Set, []Object) *Set
	// Of returns the policies of the kind in a set.
	Of func(*Set) Compiled
}

// Kinds returns all kinds, in the order in which they are read.
func Kinds() []Kind { return slices.Clone(kinds) }

// Items returns the policies in a list. They share the list's memory.
func (Kind) Items(list List) []Object {
	objects := make([]Object, 0, meta.LenList(list))
	err := meta.EachListItem(list, func(item runtime.Object) error {
		objects = append(objects, as[Object](item))
		return nil
	})
	if err != nil {
		panic(err) // not a list, which is a fault of the program
	}
	return objects
}

// KindOf returns the kind with a name.
func KindOf(name string) (Kind, bool) {
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return kinds[i], true
}

// kinds is the table of all kinds. Their order is that of Set.sources.
var kinds = []Kind{
	newKind("TolerationPolicy", "tolerationpolicies", "TolerationPolicies", new(v1alpha1.TolerationPolicyList), toleration.ValidatePolicy,
		func(p *v1alpha1.TolerationPolicy) (*int64, *[]metav1.Condition) {
			return &p.Status.ObservedGeneration, &p.Status.Conditions
		},
		(*Set).WithTolerations, func(s *Set) Compiled { return s.Tolerations }),
	newKind("PlacementPolicy", "placementpolicies", "PlacementPolicies", new(v1alpha1.PlacementPolicyList), placement.ValidatePolicy,
		func(p *v1alpha1.PlacementPolicy) (*int64, *[]metav1.Condition) {
			return &p.Status.ObservedGeneration, &p.Status.Conditions
		},
		(*Set).WithPlacement, func(s *Set) Compiled { return s.Placement }),
	newKind("TaintPolicy", "taintpolicies", "TaintPolicies", new(v1alpha1.TaintPolicyList), taint.ValidatePolicy,
		func(p *v1alpha1.TaintPolicy) (*int64, *[]metav1.Condition) {
			return &p.Status.ObservedGeneration, &p.Status.Conditions
		},
		(*Set).WithTaints, func(s *Set) Compiled { return s.Taints }),
	newKind("GatePolicy", "gatepolicies", "GatePolicies", new(v1alpha1.GatePolicyList), gate.ValidatePolicy,
		func(p *v1alpha1.GatePolicy) (*int64, *[]metav1.Condition) {
			return &p.Status.ObservedGeneration, &p.Status.Conditions
		},
		(*Set).WithGates, func(s *Set) Compiled { return s.Gates }),
	newKind("EvictionPolicy", "evictionpolicies", "EvictionPolicies", new(v1alpha1.EvictionPolicyList), eviction.ValidatePolicy,
		func(p *v1alpha1.EvictionPolicy) (*int64, *[]metav1.Condition) {
			return &p.Status.ObservedGeneration, &p.Status.Conditions
		},
		(*Set).WithEvictions, func(s *Set) Compiled { return s.Evictions }),
}

// pointer is a pointer to a policy.
type pointer[T any] interface {
	*T
	Object
}

func newKind[T any, P pointer[T]](
	name, resource, gate string, emptyList List,
	validate func(P) field.ErrorList,
	status func(P) (*int64, *[]metav1.Condition),
	with func(*Set, []T) *Set,
	of func(*Set) Compiled,
) Kind {
	return Kind{
		Name: name, Resource: resource, Gate: gate,
		New:      func() Object { return P(new(T)) },
		NewList:  func() List { return emptyList.DeepCopyObject().(List) },
		Validate: func(o Object) field.ErrorList { return validate(as[P](o)) },
		Status:   func(o Object) (*int64, *[]metav1.Condition) { return status(as[P](o)) },
		With: func(s *Set, objects []Object) *Set {
			policies := make([]T, len(objects))
			for i, o := range objects {
				policies[i] = *as[P](o)
			}
			return with(s, policies)
		},
		Of: of,
	}
}

// as returns a policy as the type of its kind. Another type is a fault of the program.
func as[P Object](o runtime.Object) P {
	p, ok := o.(P)
	if !ok {
		panic(fmt.Sprintf("%T is no %T", o, p))
	}
	return p
}
