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
	kjson "sigs.k8s.io/json"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// Policies are policies of all kinds, by the name of their kind.
type Policies map[string][]policyset.Object

// Len returns how many policies there are.
func (p Policies) Len() int {
	n := 0
	for _, policies := range p {
		n += len(policies)
	}
	return n
}

// InForce compiles the policies of some kinds.
func (p Policies) InForce(kinds []policyset.Kind) *policyset.Set {
	set := policyset.None()
	for i := range kinds {
		set = kinds[i].With(set, p[kinds[i].Name])
	}
	return set
}

// policyKindOf returns the kind of an object if it is a policy.
func policyKindOf(object *unstructured.Unstructured) (policyset.Kind, bool) {
	kind, ok := policyset.KindOf(object.GetKind())
	return kind, ok && object.GroupVersionKind().Group == v1alpha1.GroupVersion.Group
}

// tolerations returns the TolerationPolicies.
func (p Policies) tolerations() []v1alpha1.TolerationPolicy {
	objects := p["TolerationPolicy"]
	policies := make([]v1alpha1.TolerationPolicy, len(objects))
	for i, o := range objects {
		policies[i] = *o.(*v1alpha1.TolerationPolicy)
	}
	return policies
}

// IsPolicy reports whether an object is a policy.
func IsPolicy(object *unstructured.Unstructured) bool {
	_, ok := policyKindOf(object)
	return ok
}

// With returns these policies and those among some objects, each in the place of one with
// its name; p stays as it is. The error names every policy that is not valid, and where it
// is written.
func (p Policies) With(objects []Object) (Policies, error) {
	all := make(Policies, len(p))
	for kind, policies := range p {
		all[kind] = slices.Clone(policies)
	}
	var faults []error
	for i := range objects {
		o := &objects[i]
		kind, ok := policyKindOf(o.Unstructured)
		if !ok {
			continue
		}
		one, err := readPolicy(&kind, o.Unstructured)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %s %s: %w", o.Position, o.GetKind(), o.GetName(), err))
			continue
		}
		all[kind.Name] = append(without(all[kind.Name], one.GetName()), one)
	}
	return all, errors.Join(faults...)
}

// Over returns the policies of more, and of p those of other names.
func (p Policies) Over(more Policies) Policies {
	all := Policies{}
	for _, kind := range policyset.Kinds() {
		below := slices.Clone(p[kind.Name])
		for _, above := range more[kind.Name] {
			below = without(below, above.GetName())
		}
		all[kind.Name] = slices.Concat(more[kind.Name], below)
	}
	return all
}

// without removes the policy with a name, in place.
func without(policies []policyset.Object, name string) []policyset.Object {
	return slices.DeleteFunc(policies, func(p policyset.Object) bool { return p.GetName() == name })
}

// AddStored adds a policy as it is stored in a cluster, valid or not: as in Tollgate, its
// faults are left out when it is compiled.
func (p Policies) AddStored(object *unstructured.Unstructured) error {
	kind, ok := policyset.KindOf(object.GetKind())
	if !ok {
		return fmt.Errorf("%s is no policy", object.GetKind())
	}
	one := kind.New()
	if err := decodeInto(object, one); err != nil {
		return err
	}
	p[kind.Name] = append(p[kind.Name], one)
	return nil
}

// readPolicy reads a policy that must be valid, and fills in what its schema has as defaults.
func readPolicy(kind *policyset.Kind, object *unstructured.Unstructured) (policyset.Object, error) {
	if version := object.GroupVersionKind().Version; version != v1alpha1.GroupVersion.Version {
		return nil, fmt.Errorf("apiVersion is %s, want %s", object.GetAPIVersion(), v1alpha1.GroupVersion)
	}
	p := kind.New()
	if err := DecodeStrict(object, p); err != nil {
		return nil, err
	}
	if p.GetName() == "" {
		return nil, errors.New("metadata.name: a policy has to have a name")
	}
	fillOwn(p)
	if errs := kind.Validate(p); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	// The UID and the generation tell policies apart, and files have none.
	p.SetUID(identityOf(object))
	return p, nil
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
