package check

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// Policies are the policies of all kinds, by kind.
type Policies map[string][]policyset.Object

// Len returns the number of policies.
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

// tolerations returns the TolerationPolicies, those that guards of PlacementPolicies stand for
// included.
func (p Policies) tolerations() []v1alpha1.TolerationPolicy {
	var policies []v1alpha1.TolerationPolicy
	for _, o := range p["TolerationPolicy"] {
		policies = append(policies, *o.(*v1alpha1.TolerationPolicy))
	}
	for _, o := range p["PlacementPolicy"] {
		if guard, _ := placement.Guard(o.(*v1alpha1.PlacementPolicy)); guard != nil {
			policies = append(policies, *guard)
		}
	}
	return policies
}

// IsPolicy reports whether an object is a policy.
func IsPolicy(object *unstructured.Unstructured) bool {
	_, ok := policyKindOf(object)
	return ok
}

// With returns the policies and those among objects, which replace the ones with their names. It
// does not change p. The error has each invalid policy with its position.
func (p Policies) With(objects []Object) (Policies, error) {
	all := Policies{}
	for kind, policies := range p {
		all[kind] = slices.Clone(policies)
	}
	var invalid []error
	for i := range objects {
		o := &objects[i]
		kind, ok := policyKindOf(o.Unstructured)
		if !ok {
			continue
		}
		one, err := readPolicy(&kind, o.Unstructured)
		if err != nil {
			invalid = append(invalid, fmt.Errorf("%s: %s %s: %w", o.Position, o.GetKind(), o.GetName(), err))
			continue
		}
		all[kind.Name] = append(without(all[kind.Name], one), one)
	}
	return all, errors.Join(invalid...)
}

// Over returns the policies of more, and those of p with other names.
func (p Policies) Over(more Policies) Policies {
	all := Policies{}
	for _, kind := range policyset.Kinds() {
		all[kind.Name] = slices.Concat(more[kind.Name], without(p[kind.Name], more[kind.Name]...))
	}
	return all
}

// without returns the policies whose names differ from those of others.
func without(policies []policyset.Object, others ...policyset.Object) []policyset.Object {
	return slices.DeleteFunc(slices.Clone(policies), func(p policyset.Object) bool {
		return slices.ContainsFunc(others, func(o policyset.Object) bool { return o.GetName() == p.GetName() })
	})
}

// AddStored adds a policy of a cluster, valid or not: as in Tollgate, compiling leaves out the
// invalid parts.
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

// readPolicy returns a valid policy with the defaults of its schema.
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
	defaultOwn(p)
	if errs := kind.Validate(p); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	// Compiled policies are compared by UID and generation, which files lack.
	p.SetUID(identityOf(object))
	return p, nil
}

// DecodeStrict decodes an object into its type. Unknown fields are an error, as with kubectl
// apply.
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

// defaultOwn sets the defaults of the schemas of Tollgate's kinds.
func defaultOwn(object runtime.Object) {
	selectors := func(taints []v1alpha1.TaintSelector) {
		for i := range taints {
			setDefault(&taints[i].Target, v1alpha1.TaintTargetNode)
		}
	}
	const window = 10 * time.Minute
	switch o := object.(type) {
	case *v1alpha1.TolerationPolicy:
		selectors(o.Spec.Taints)
		defaultActions(&o.Spec.ValidationActions)
	case *v1alpha1.PlacementPolicy:
		if o.Spec.Claim != nil {
			for i := range o.Spec.Claim.Tolerations {
				setDefault(&o.Spec.Claim.Tolerations[i].Operator, resourcev1.DeviceTolerationOpEqual)
			}
		}
	case *v1alpha1.TaintPolicy:
		selectors(o.Spec.Taints)
		defaultActions(&o.Spec.ValidationActions)
		if o.Spec.Limits != nil {
			setDefault(&o.Spec.Limits.Window.Duration, window)
		}
	case *v1alpha1.GatePolicy:
		defaultActions(&o.Spec.ValidationActions)
	case *v1alpha1.EvictionPolicy:
		selectors(o.Spec.Taints)
		setDefault(&o.Spec.Method, v1alpha1.EvictionMethodDelete)
		if o.Spec.Pace != nil {
			setDefault(&o.Spec.Pace.Scope, v1alpha1.LimitScopeDecided)
		}
		if o.Spec.Breaker != nil {
			setDefault(&o.Spec.Breaker.Window.Duration, window)
			setDefault(&o.Spec.Breaker.Scope, v1alpha1.LimitScopeDecided)
		}
	case *v1alpha1.EvictionApproval:
		setDefault(&o.Spec.ExpiresAfter.Duration, time.Hour)
	}
}

func defaultActions(actions *[]v1alpha1.ValidationAction) {
	if len(*actions) == 0 {
		*actions = []v1alpha1.ValidationAction{v1alpha1.Deny}
	}
}
