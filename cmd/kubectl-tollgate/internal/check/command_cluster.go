package check

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/toleration"
	"github.com/tollgate-dev/tollgate/webhook/auth"
)

// lookup has what is not in the files looked up in the cluster.
func (r *runner) lookup(ctx context.Context, options *Options, found *Report) error {
	clients, err := r.connection.Clients(r.notes)
	if err != nil {
		return err
	}
	if options.Namespace, _, err = r.connection.Namespace(); err != nil {
		return err
	}
	stored := Policies{}
	for _, kind := range policyset.Kinds() {
		served, err := policiesOf(ctx, clients, kind.Resource, stored)
		if err != nil {
			return err
		}
		if !served && !slices.Contains(found.Notes, notInstalled) {
			found.Notes = append(found.Notes, notInstalled)
		}
	}
	clients.Progress.End()
	options.Policies = stored.Over(options.Policies)
	options.Cluster = cli.NewReader(clients)
	options.Authorizer = auth.NewAuthority(clients.Kubernetes.AuthorizationV1().SubjectAccessReviews(), r.clock, auth.AuthorityLimits{})
	return nil
}

// notInstalled is said where the policies of a cluster are asked for.
const notInstalled = "Tollgate's CustomResourceDefinitions are not installed in the cluster: it has no policies"

// policiesOf reads the policies of a kind that are in a cluster. It reports whether there can
// be such: not where Tollgate is not installed.
func policiesOf(ctx context.Context, clients *cli.Clients, resource string, into Policies) (served bool, err error) {
	of := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: resource}
	version, err := clients.Version(ctx, of, v1alpha1.GroupVersion.Version)
	if errors.Is(err, cli.ErrNotServed) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, cli.Each(ctx, clients, of, clients.List(of, version), metav1.ListOptions{}, func(object *unstructured.Unstructured) error {
		return into.AddStored(object)
	})
}

// scan judges what stands in the cluster: by the policies that are given, or by its own.
func (r *runner) scan(ctx context.Context, given Policies, found *Report) error {
	clients, err := r.connection.Clients(r.notes)
	if err != nil {
		return err
	}
	defer clients.Progress.End()
	if len(r.flags.policies) == 0 {
		served, err := policiesOf(ctx, clients, "tolerationpolicies", given)
		if err != nil {
			return err
		}
		if !served {
			return errors.New("the API server serves no TolerationPolicies to judge by: name policies with -p, or install Tollgate's CustomResourceDefinitions")
		}
	}
	tolerations := given.tolerations()
	found.Policies = len(tolerations)
	if found.Policies == 0 {
		found.Notes = append(found.Notes, "there is no TolerationPolicy to judge by: everything is allowed")
		return nil
	}
	namespace, named, err := r.connection.Namespace()
	if err != nil {
		return err
	}
	if !named {
		namespace = metav1.NamespaceAll
	}
	admission := r.config.Admission
	judge := NewExisting(tolerations, toleration.DefaultSeconds{
		NotReady: admission.DefaultNotReadyTolerationSeconds, Unreachable: admission.DefaultUnreachableTolerationSeconds,
	})
	outside := func(namespace string) bool {
		return namespace == metav1.NamespaceSystem || namespace == r.config.Namespace
	}
	notes, err := Scan(ctx, clients, judge, namespace, outside, func(result Result) {
		if result.Verdict == Allowed && r.flags.output != "wide" { // there may be thousands
			found.Unlisted++
			return
		}
		found.Results = append(found.Results, result)
	})
	if err != nil {
		return fmt.Errorf("judge what stands in the cluster: %w", err)
	}
	found.Notes = append(found.Notes, notes...)
	return nil
}
