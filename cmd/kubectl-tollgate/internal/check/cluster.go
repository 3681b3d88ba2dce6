package check

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/toleration"
	"github.com/tollgate-dev/tollgate/webhook/auth"
)

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
	version, err := clients.Version(ctx, of, v1alpha1.GroupVersion.Version)
	if err != nil {
		if errors.Is(err, cli.ErrNotServed) {
			err = nil
		}
		return false, err
	}
	return true, cli.Each(ctx, clients, of, clients.List(of, version), metav1.ListOptions{}, p.AddStored)
}

// scan judges the existing objects of the cluster by the given policies, else by its own.
func (c *command) scan(ctx context.Context, given Policies, report *Report) error {
	clients, err := c.clients(c.notes)
	if err != nil {
		return err
	}
	defer clients.Progress.End()
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
	namespace, named, err := c.namespace()
	if err != nil {
		return err
	}
	if !named {
		namespace = metav1.NamespaceAll
	}
	e := &existing{
		Clients: clients, set: toleration.Compile(policies), policies: map[string]*v1alpha1.TolerationPolicySpec{},
		defaults: defaultSeconds(c.config), namespace: namespace, tollgate: c.config.Namespace,
		namespaces: map[string]*corev1.Namespace{}, verdicts: map[string][]toleration.Violation{},
		take: func(result Result) {
			if result.Verdict == Allowed && c.output.Format != "wide" { // There may be thousands.
				report.Unlisted++
				return
			}
			report.Results = append(report.Results, result)
		},
	}
	for i := range policies {
		e.policies[policies[i].Name] = &policies[i].Spec
	}
	notes, err := e.scan(ctx)
	if err != nil {
		return fmt.Errorf("judge what stands in the cluster: %w", err)
	}
	report.Notes = append(report.Notes, notes...)
	return nil
}
