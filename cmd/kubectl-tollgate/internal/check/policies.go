package check

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/policy/gate"
	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/policy/toleration"
)

// Policies are policies of all kinds.
type Policies struct {
	Tolerations []v1alpha1.TolerationPolicy
	Placement   []v1alpha1.PlacementPolicy
	Taints      []v1alpha1.TaintPolicy
	Gates       []v1alpha1.GatePolicy
	Evictions   []v1alpha1.EvictionPolicy
}

// Len returns how many there are.
func (p *Policies) Len() int {
	return len(p.Tolerations) + len(p.Placement) + len(p.Taints) + len(p.Gates) + len(p.Evictions)
}

// InForce compiles the policies of the kinds that are judged by.
func (p *Policies) InForce(switched policyset.Kinds) *policyset.Set {
	in := policyset.None()
	if switched.Tolerations {
		in = in.WithTolerations(p.Tolerations)
	}
	if switched.Placement {
		in = in.WithPlacement(p.Placement)
	}
	if switched.Taints {
		in = in.WithTaints(p.Taints)
	}
	if switched.Gates {
		in = in.WithGates(p.Gates)
	}
	if switched.Evictions {
		in = in.WithEvictions(p.Evictions)
	}
	return in
}

// IsPolicy reports whether an object is a policy.
func IsPolicy(object *unstructured.Unstructured) bool {
	_, ok := readers[object.GroupVersionKind().GroupKind()]
	return ok
}

// add adds the policies among some objects, in the place of those of their names. One that
// is not valid is an error that says where it stands; all of them are named.
func (p *Policies) add(objects []Object) error {
	var faults []error
	for i := range objects {
		o := &objects[i]
		read, ok := readers[o.GroupVersionKind().GroupKind()]
		if !ok {
			continue
		}
		if version := o.GroupVersionKind().Version; version != v1alpha1.GroupVersion.Version {
			faults = append(faults, fmt.Errorf("%s: %s %s: apiVersion is %s, want %s", o.Position, o.GetKind(), o.GetName(), o.GetAPIVersion(), v1alpha1.GroupVersion))
			continue
		}
		if err := read(p, o.Unstructured); err != nil {
			faults = append(faults, fmt.Errorf("%s: %s %s: %w", o.Position, o.GetKind(), o.GetName(), err))
		}
	}
	return errors.Join(faults...)
}

// With returns these policies and those among some objects; p stays as it is.
func (p *Policies) With(objects []Object) (Policies, error) {
	all := Policies{
		slices.Clone(p.Tolerations), slices.Clone(p.Placement), slices.Clone(p.Taints), slices.Clone(p.Gates), slices.Clone(p.Evictions),
	}
	err := all.add(objects)
	return all, err
}

// Over returns the policies of more, and of p those of other names.
func (p *Policies) Over(more Policies) Policies {
	return Policies{
		over(p.Tolerations, more.Tolerations), over(p.Placement, more.Placement), over(p.Taints, more.Taints),
		over(p.Gates, more.Gates), over(p.Evictions, more.Evictions),
	}
}

func over[T any, P policyPointer[T]](below, above []T) []T {
	all := slices.Clone(above)
	for i := range below {
		if !slices.ContainsFunc(above, func(o T) bool { return P(&o).GetName() == P(&below[i]).GetName() }) {
			all = append(all, below[i])
		}
	}
	return all
}

// AddStored adds a policy as it stands in a cluster, whether it is valid or not: what is wrong
// with it is left out when it is compiled, as in Tollgate.
func (p *Policies) AddStored(object *unstructured.Unstructured) error {
	switch object.GetKind() {
	case "TolerationPolicy":
		return appendTo(&p.Tolerations, object)
	case "PlacementPolicy":
		return appendTo(&p.Placement, object)
	case "TaintPolicy":
		return appendTo(&p.Taints, object)
	case "GatePolicy":
		return appendTo(&p.Gates, object)
	case "EvictionPolicy":
		return appendTo(&p.Evictions, object)
	default:
		return fmt.Errorf("%s is no policy", object.GetKind())
	}
}

func appendTo[T any](list *[]T, object *unstructured.Unstructured) error {
	var one T
	if err := decodeInto(object, &one); err != nil {
		return err
	}
	*list = append(*list, one)
	return nil
}

// readers read policies by their kind.
var readers = map[schema.GroupKind]func(*Policies, *unstructured.Unstructured) error{
	ours("TolerationPolicy"): func(p *Policies, o *unstructured.Unstructured) error {
		return addTo(&p.Tolerations, o, toleration.ValidatePolicy)
	},
	ours("PlacementPolicy"): func(p *Policies, o *unstructured.Unstructured) error {
		return addTo(&p.Placement, o, placement.ValidatePolicy)
	},
	ours("TaintPolicy"): func(p *Policies, o *unstructured.Unstructured) error {
		return addTo(&p.Taints, o, taint.ValidatePolicy)
	},
	ours("GatePolicy"): func(p *Policies, o *unstructured.Unstructured) error {
		return addTo(&p.Gates, o, gate.ValidatePolicy)
	},
	ours("EvictionPolicy"): func(p *Policies, o *unstructured.Unstructured) error {
		return addTo(&p.Evictions, o, eviction.ValidatePolicy)
	},
}

// policyPointer is a pointer to a policy.
type policyPointer[T any] interface {
	*T
	client.Object
}

// addTo reads a policy, fills in what its schema has as defaults, and adds it to a list if it
// is valid.
func addTo[T any, P policyPointer[T]](list *[]T, object *unstructured.Unstructured, validate func(P) field.ErrorList) error {
	p := P(new(T))
	if err := DecodeStrict(object, p); err != nil {
		return err
	}
	if p.GetName() == "" {
		return errors.New("metadata.name: a policy has to have a name")
	}
	fillOwn(p)
	if errs := validate(p); len(errs) > 0 {
		return errs.ToAggregate()
	}
	// The UID and the generation tell policies apart, and files have none.
	p.SetUID(identityOf(object))
	for i := range *list {
		if P(&(*list)[i]).GetName() == p.GetName() {
			(*list)[i] = *p
			return nil
		}
	}
	*list = append(*list, *p)
	return nil
}

// DecodeStrict reads an object as the type that it is. Fields that the type does not have are
// an error, as they are to kubectl apply.
func DecodeStrict(object *unstructured.Unstructured, into any) error {
	content, err := json.Marshal(object.Object)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	strict, err := kjson.UnmarshalStrict(content, into)
	if err == nil {
		err = errors.Join(strict...)
	}
	if err != nil {
		return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

func defaultSelectors(taints []v1alpha1.TaintSelector) {
	for i := range taints {
		taints[i].Target = cmp.Or(taints[i].Target, v1alpha1.TaintTargetNode)
	}
}

func defaultActions(actions *[]v1alpha1.ValidationAction) {
	if len(*actions) == 0 {
		*actions = []v1alpha1.ValidationAction{v1alpha1.Deny}
	}
}

func defaultWindow(window *metav1.Duration) {
	window.Duration = cmp.Or(window.Duration, 10*time.Minute)
}

func defaultEviction(e *v1alpha1.EvictionPolicy) {
	defaultSelectors(e.Spec.Taints)
	e.Spec.Method = cmp.Or(e.Spec.Method, v1alpha1.EvictionMethodDelete)
	if e.Spec.Pace != nil {
		e.Spec.Pace.Scope = cmp.Or(e.Spec.Pace.Scope, v1alpha1.LimitScopeDecided)
	}
	if e.Spec.Breaker != nil {
		defaultWindow(&e.Spec.Breaker.Window)
		e.Spec.Breaker.Scope = cmp.Or(e.Spec.Breaker.Scope, v1alpha1.LimitScopeDecided)
	}
}

// fillOwn fills in what the schema of an object of ours has as defaults.
func fillOwn(object runtime.Object) {
	switch o := object.(type) {
	case *v1alpha1.TolerationPolicy:
		defaultToleration(o)
	case *v1alpha1.PlacementPolicy:
		if o.Spec.Claim != nil {
			for i := range o.Spec.Claim.Tolerations {
				t := &o.Spec.Claim.Tolerations[i]
				t.Operator = cmp.Or(t.Operator, resourcev1.DeviceTolerationOpEqual)
			}
		}
	case *v1alpha1.TaintPolicy:
		defaultTaint(o)
	case *v1alpha1.GatePolicy:
		defaultActions(&o.Spec.ValidationActions)
	case *v1alpha1.EvictionPolicy:
		defaultEviction(o)
	case *v1alpha1.EvictionApproval:
		o.Spec.ExpiresAfter.Duration = cmp.Or(o.Spec.ExpiresAfter.Duration, time.Hour)
	}
}

func defaultToleration(t *v1alpha1.TolerationPolicy) {
	defaultSelectors(t.Spec.Taints)
	defaultActions(&t.Spec.ValidationActions)
}

func defaultTaint(t *v1alpha1.TaintPolicy) {
	defaultSelectors(t.Spec.Taints)
	defaultActions(&t.Spec.ValidationActions)
	if t.Spec.Limits != nil {
		defaultWindow(&t.Spec.Limits.Window)
	}
}
