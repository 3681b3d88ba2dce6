package check

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/webhook/auth"
)

// Policies are the policies of all kinds, by Kind/name.
type Policies map[string]policyset.Object

// Len returns the number of policies.
func (p Policies) Len() int { return len(p) }

// InForce compiles the policies of some kinds, each in the order of their names.
func (p Policies) InForce(kinds []policyset.Kind) *policyset.Set {
	set, keys := policyset.None(), slices.Sorted(maps.Keys(p))
	for _, kind := range kinds {
		var policies []policyset.Object
		for _, key := range keys {
			if strings.HasPrefix(key, kind.Name+"/") {
				policies = append(policies, p[key])
			}
		}
		set = kind.With(set, policies)
	}
	return set
}

// policyKindOf returns the kind of an object if it is a policy.
func policyKindOf(object *unstructured.Unstructured) (policyset.Kind, bool) {
	kind, ok := policyset.KindOf(object.GetKind())
	return kind, ok && object.GroupVersionKind().Group == v1alpha1.GroupVersion.Group
}

// policies are TolerationPolicies and TaintPolicies, by name, after those that guards of
// PlacementPolicies stand for.
type policies struct {
	tolerations []v1alpha1.TolerationPolicy
	taints      []v1alpha1.TaintPolicy
}

func (p *policies) len() int { return len(p.tolerations) + len(p.taints) }

// apart returns the policies of both kinds.
func (p Policies) apart() (found policies) {
	for _, key := range slices.Sorted(maps.Keys(p)) {
		var tolerations *v1alpha1.TolerationPolicy
		var taints *v1alpha1.TaintPolicy
		switch o := p[key].(type) {
		case *v1alpha1.TolerationPolicy:
			tolerations = o
		case *v1alpha1.TaintPolicy:
			taints = o
		case *v1alpha1.PlacementPolicy:
			tolerations, taints = placement.Guard(o)
		}
		if tolerations != nil {
			found.tolerations = append(found.tolerations, *tolerations)
		}
		if taints != nil {
			found.taints = append(found.taints, *taints)
		}
	}
	return found
}

// With returns the policies and those among objects, which replace the ones with their names. It
// does not change p. The error has each invalid policy with its position.
func (p Policies) With(objects []cli.Object) (Policies, error) {
	more := Policies{}
	var invalid []error
	for _, o := range objects {
		kind, ok := policyKindOf(o.Unstructured)
		if !ok {
			continue
		}
		one, err := readPolicy(&kind, o.Unstructured)
		if err != nil {
			invalid = append(invalid, fmt.Errorf("%s: %s %s: %w", o.Position, o.GetKind(), o.GetName(), err))
			continue
		}
		more[kind.Name+"/"+one.GetName()] = one
	}
	return p.Over(more), errors.Join(invalid...)
}

// Over returns the policies of more, and those of p with other names.
func (p Policies) Over(more Policies) Policies {
	all := Policies{}
	maps.Copy(all, p)
	maps.Copy(all, more)
	return all
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
	p[kind.Name+"/"+one.GetName()] = one
	return nil
}

// readPolicy returns a valid policy with the defaults of its schema.
func readPolicy(kind *policyset.Kind, object *unstructured.Unstructured) (policyset.Object, error) {
	if version := object.GroupVersionKind().Version; version != v1alpha1.GroupVersion.Version {
		return nil, fmt.Errorf("apiVersion is %s, want %s", object.GetAPIVersion(), v1alpha1.GroupVersion)
	}
	p := kind.New()
	if err := cli.DecodeStrict(object, p); err != nil {
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
	p.SetUID(uidOf(object))
	return p, nil
}

// defaultOwn sets the defaults of the schemas of Tollgate's kinds.
func defaultOwn(object runtime.Object) {
	var taints []v1alpha1.TaintSelector
	const window = 10 * time.Minute
	switch o := object.(type) {
	case *v1alpha1.TolerationPolicy:
		taints = o.Spec.Taints
		defaultActions(&o.Spec.ValidationActions)
	case *v1alpha1.PlacementPolicy:
		if o.Spec.Claim != nil {
			for i := range o.Spec.Claim.Tolerations {
				setDefault(&o.Spec.Claim.Tolerations[i].Operator, resourcev1.DeviceTolerationOpEqual)
			}
		}
	case *v1alpha1.TaintPolicy:
		taints = o.Spec.Taints
		defaultActions(&o.Spec.ValidationActions)
		if o.Spec.Limits != nil {
			setDefault(&o.Spec.Limits.Window.Duration, window)
		}
	case *v1alpha1.GatePolicy:
		defaultActions(&o.Spec.ValidationActions)
	case *v1alpha1.EvictionPolicy:
		spec := &o.Spec
		taints = spec.Taints
		setDefault(&spec.Method, v1alpha1.EvictionMethodDelete)
		setDefault(&spec.Mark, v1alpha1.EvictionMarkBefore)
		if spec.Pace != nil {
			setDefault(&spec.Pace.Scope, v1alpha1.LimitScopeDecided)
		}
		if spec.Breaker != nil {
			setDefault(&spec.Breaker.Window.Duration, window)
			setDefault(&spec.Breaker.Scope, v1alpha1.LimitScopeDecided)
		}
	case *v1alpha1.EvictionApproval:
		setDefault(&o.Spec.ExpiresAfter.Duration, time.Hour)
	}
	for i := range taints {
		setDefault(&taints[i].Target, v1alpha1.TaintTargetNode)
	}
}

func defaultActions(actions *[]v1alpha1.ValidationAction) {
	if len(*actions) == 0 {
		*actions = []v1alpha1.ValidationAction{v1alpha1.Deny}
	}
}

// lookup sets options to read from the cluster the objects that are not in the files.
func (c *command) lookup(ctx context.Context, options *Options, report *Report) error {
	clients, err := c.clients(c.notes)
	if err != nil {
		return err
	}
	if options.Namespace, _, err = c.namespace(); err != nil {
		return err
	}
	stored, installed := Policies{}, true
	for _, kind := range policyset.Kinds() {
		served, err := stored.read(ctx, clients, kind.Resource)
		if err != nil {
			return err
		}
		installed = installed && served
	}
	if !installed {
		report.note("Tollgate's CustomResourceDefinitions are not installed in the cluster: it has no policies")
	}
	clients.Progress.End()
	options.Policies = stored.Over(options.Policies)
	options.Cluster = clients
	options.Authorizer = auth.NewAuthority(clients.Kubernetes.AuthorizationV1().SubjectAccessReviews(), c.clock, auth.AuthorityLimits{})
	return nil
}

// readAll adds the policies of resources that are in a cluster. It is an error if the cluster does not
// serve one of them, which names the flag for policies in files.
func (p Policies) readAll(ctx context.Context, clients *cli.Clients, flag string, resources ...string) error {
	for _, resource := range resources {
		served, err := p.read(ctx, clients, resource)
		if err != nil {
			return err
		}
		if !served {
			return fmt.Errorf("the API server does not serve %s: name policies with %s, or install Tollgate's CustomResourceDefinitions", resource, flag)
		}
	}
	return nil
}

// read adds the policies of a kind that are in a cluster. It reports whether the cluster serves
// the kind.
func (p Policies) read(ctx context.Context, clients *cli.Clients, resource string) (served bool, err error) {
	of := v1alpha1.GroupVersion.WithResource(resource)
	served, err = state.Serves(ctx, clients, of.GroupResource(), of.Version)
	if served {
		err = clients.EachCustom(ctx, of, p.AddStored)
	}
	return served, err
}
