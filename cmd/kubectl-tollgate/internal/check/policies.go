package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/toleration"
	"github.com/tollgate-dev/tollgate/webhook/auth"
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
	for _, kind := range kinds {
		set = kind.With(set, p[kind.Name])
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

// With returns the policies and those among objects, which replace the ones with their names. It
// does not change p. The error has each invalid policy with its position.
func (p Policies) With(objects []cli.Object) (Policies, error) {
	all := Policies{}
	for kind, policies := range p {
		all[kind] = slices.Clone(policies)
	}
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
	p.SetUID(identityOf(object))
	return p, nil
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
		setDefault(&o.Spec.Mark, v1alpha1.EvictionMarkBefore)
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

// notInstalled is the note for a cluster without Tollgate's kinds.
const notInstalled = "Tollgate's CustomResourceDefinitions are not installed in the cluster: it has no policies"

// lookup sets options to read from the cluster the objects that are not in the files.
func (c *command) lookup(ctx context.Context, options *Options, report *Report) error {
	clients, err := c.clients(c.notes)
	if err != nil {
		return err
	}
	if options.Namespace, _, err = c.namespace(); err != nil {
		return err
	}
	stored := Policies{}
	for _, kind := range policyset.Kinds() {
		served, err := stored.read(ctx, clients, kind.Resource)
		if err != nil {
			return err
		}
		if !served && !slices.Contains(report.Notes, notInstalled) {
			report.Notes = append(report.Notes, notInstalled)
		}
	}
	clients.Progress.End()
	options.Policies = stored.Over(options.Policies)
	options.Cluster = clients
	options.Authorizer = auth.NewAuthority(clients.Kubernetes.AuthorizationV1().SubjectAccessReviews(), c.clock, auth.AuthorityLimits{})
	return nil
}

// read adds the policies of a kind that are in a cluster. It reports whether the cluster serves
// the kind.
func (p Policies) read(ctx context.Context, clients *cli.Clients, resource string) (served bool, err error) {
	of := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: resource}
	_, err = clients.EachServed(ctx, of, p.AddStored, v1alpha1.GroupVersion.Version)
	if errors.Is(err, cli.ErrNotServed) {
		return false, nil
	}
	return err == nil, err
}

// scan judges the existing objects of the cluster by the given policies, else by its own.
func (c *command) scan(ctx context.Context, given Policies, report *Report) error {
	clients, err := c.clients(c.notes)
	if err != nil {
		return err
	}
	defer clients.Progress.End()
	namespace, named, err := c.namespace()
	if err != nil {
		return err
	}
	if named {
		return c.scanTolerations(ctx, clients, namespace, given, report)
	}
	if err := c.scanTolerations(ctx, clients, metav1.NamespaceAll, given, report); err != nil {
		return err
	}
	return c.scanNodePools(ctx, clients, given, report)
}

// scanTolerations judges the tolerations of pods, templates and claims in a namespace, or in all.
func (c *command) scanTolerations(ctx context.Context, clients *cli.Clients, namespace string, given Policies, report *Report) error {
	if len(c.policies) == 0 {
		served, err := given.read(ctx, clients, "tolerationpolicies")
		if err != nil {
			return err
		}
		if !served {
			return errors.New("the API server serves no TolerationPolicies to judge by: name policies with -p, or install Tollgate's CustomResourceDefinitions")
		}
		// A guard of a PlacementPolicy is a TolerationPolicy, too.
		if _, err := given.read(ctx, clients, "placementpolicies"); err != nil {
			return err
		}
	}
	policies := given.tolerations()
	report.Policies = len(policies)
	if report.Policies == 0 {
		report.Notes = append(report.Notes, "there is no TolerationPolicy to judge by: everything is allowed")
		return nil
	}
	e := &existing{
		Clients: clients, set: toleration.Compile(policies), policies: map[string]*v1alpha1.TolerationPolicySpec{},
		defaults: settings.DefaultSeconds(c.config), namespace: namespace, tollgate: c.config.Namespace,
		namespaces: map[string]*corev1.Namespace{}, verdicts: map[string][]toleration.Ruling{},
		take: func(result Result) { c.take(report, result) },
	}
	for _, p := range policies {
		e.policies[p.Name] = &p.Spec
	}
	notes, err := e.scan(ctx)
	if err != nil {
		return fmt.Errorf("judge what stands in the cluster: %w", err)
	}
	report.Notes = append(report.Notes, notes...)
	return nil
}
