package policies

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// kind is how the policies of one kind are read and compiled.
type kind struct {
	// name is the kind, resource what it is called in paths.
	name, resource string
	// object returns an empty object, list an empty list.
	object func() client.Object
	list   func() client.ObjectList
	// uidsOf returns the UIDs of what is in a list.
	uidsOf func(client.ObjectList) map[types.UID]struct{}
	// generationsOf returns the generations of the policies in a list.
	generationsOf func(client.ObjectList) map[types.UID]int64
	// keep returns what is stored with what is lost: what was in force and is stored no
	// more, neither it nor another one of its name. It reports whether there is such.
	keep func(inForce, stored client.ObjectList) (both client.ObjectList, lost bool)
	// with puts the policies in a list into force, set returns those in force.
	with func(*policyset.Set, client.ObjectList) *policyset.Set
	set  func(*policyset.Set) compiled
}

// compiled is what all sets of policies have.
type compiled interface {
	Len() int
	Problems() map[string]field.ErrorList
}

// pointer is a pointer to a policy.
type pointer[T any] interface {
	*T
	client.Object
}

// listPointer is a pointer to a list of policies.
type listPointer[L any] interface {
	*L
	client.ObjectList
}

// newKind makes a kind out of what is particular to it.
func newKind[T, L any, PT pointer[T], PL listPointer[L]](
	name, resource string,
	items func(*L) *[]T,
	with func(*policyset.Set, []T) *policyset.Set,
	set func(*policyset.Set) compiled,
) kind {
	return kind{
		name: name, resource: resource,
		object: func() client.Object { return PT(new(T)) },
		list:   func() client.ObjectList { return PL(new(L)) },
		uidsOf: func(list client.ObjectList) map[types.UID]struct{} {
			policies := *items(list.(PL))
			uids := make(map[types.UID]struct{}, len(policies))
			for i := range policies {
				uids[metav1.Object(PT(&policies[i])).GetUID()] = struct{}{}
			}
			return uids
		},
		generationsOf: func(list client.ObjectList) map[types.UID]int64 { return generationsOf[T, PT](*items(list.(PL))) },
		keep: func(inForce, stored client.ObjectList) (client.ObjectList, bool) {
			if inForce == nil {
				return stored, false
			}
			lost := lostOf[T, PT](*items(inForce.(PL)), *items(stored.(PL)))
			if len(lost) == 0 {
				return stored, false
			}
			both := PL(new(L))
			*items(both) = slices.Concat(*items(stored.(PL)), lost)
			return both, true
		},
		with: func(p *policyset.Set, list client.ObjectList) *policyset.Set { return with(p, *items(list.(PL))) },
		set:  set,
	}
}

func generationsOf[T any, PT pointer[T]](policies []T) map[types.UID]int64 {
	generations := make(map[types.UID]int64, len(policies))
	for i := range policies {
		object := metav1.Object(PT(&policies[i]))
		generations[object.GetUID()] = object.GetGeneration()
	}
	return generations
}

// lostOf returns what of old has a name that nothing in now has.
func lostOf[T any, PT pointer[T]](old, now []T) []T {
	names := make(map[string]struct{}, len(now))
	for i := range now {
		names[metav1.Object(PT(&now[i])).GetName()] = struct{}{}
	}
	var lost []T
	for i := range old {
		if _, ok := names[metav1.Object(PT(&old[i])).GetName()]; !ok {
			lost = append(lost, old[i])
		}
	}
	return lost
}

// kindsOf returns those that are judged by.
func kindsOf(k policyset.Kinds) []kind {
	var list []kind
	if k.Tolerations {
		list = append(list, newKind[v1alpha1.TolerationPolicy, v1alpha1.TolerationPolicyList]("TolerationPolicy", "tolerationpolicies",
			func(l *v1alpha1.TolerationPolicyList) *[]v1alpha1.TolerationPolicy { return &l.Items },
			(*policyset.Set).WithTolerations,
			func(p *policyset.Set) compiled { return p.Tolerations }))
	}
	if k.Placement {
		list = append(list, newKind[v1alpha1.PlacementPolicy, v1alpha1.PlacementPolicyList]("PlacementPolicy", "placementpolicies",
			func(l *v1alpha1.PlacementPolicyList) *[]v1alpha1.PlacementPolicy { return &l.Items },
			(*policyset.Set).WithPlacement,
			func(p *policyset.Set) compiled { return p.Placement }))
	}
	if k.Taints {
		list = append(list, newKind[v1alpha1.TaintPolicy, v1alpha1.TaintPolicyList]("TaintPolicy", "taintpolicies",
			func(l *v1alpha1.TaintPolicyList) *[]v1alpha1.TaintPolicy { return &l.Items },
			(*policyset.Set).WithTaints,
			func(p *policyset.Set) compiled { return p.Taints }))
	}
	if k.Gates {
		list = append(list, newKind[v1alpha1.GatePolicy, v1alpha1.GatePolicyList]("GatePolicy", "gatepolicies",
			func(l *v1alpha1.GatePolicyList) *[]v1alpha1.GatePolicy { return &l.Items },
			(*policyset.Set).WithGates,
			func(p *policyset.Set) compiled { return p.Gates }))
	}
	if k.Evictions {
		list = append(list, newKind[v1alpha1.EvictionPolicy, v1alpha1.EvictionPolicyList]("EvictionPolicy", "evictionpolicies",
			func(l *v1alpha1.EvictionPolicyList) *[]v1alpha1.EvictionPolicy { return &l.Items },
			(*policyset.Set).WithEvictions,
			func(p *policyset.Set) compiled { return p.Evictions }))
	}
	return list
}

// cached returns the policies of a kind that are in a cache. They are the cache's, and
// not to be written to.
func (k *kind) cached(ctx context.Context, from reader) (client.ObjectList, error) {
	return k.read(ctx, from, client.UnsafeDisableDeepCopy)
}

// read returns the policies of a kind.
func (k *kind) read(ctx context.Context, from reader, opts ...client.ListOption) (client.ObjectList, error) {
	list := k.list()
	if err := from.List(ctx, list, opts...); err != nil {
		return nil, fmt.Errorf("list %s: %w", k.resource, err)
	}
	return list, nil
}
