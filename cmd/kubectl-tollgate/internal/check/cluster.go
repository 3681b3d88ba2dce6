package check

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/policy/policyset"
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
	options.Cluster = cli.NewReader(clients)
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
	e := newExisting(clients, policies, c.config, namespace, func(result Result) {
		if result.Verdict == Allowed && c.output.Format != "wide" { // There may be thousands.
			report.Unlisted++
			return
		}
		report.Results = append(report.Results, result)
	})
	notes, err := e.scan(ctx)
	if err != nil {
		return fmt.Errorf("judge what stands in the cluster: %w", err)
	}
	report.Notes = append(report.Notes, notes...)
	return nil
}

// cluster is a client.Reader that reads each object and each list once: many objects depend on
// one namespace, and all pods on the same PriorityClasses. Classes that the user may not read
// count as absent. It ignores options, and is safe for concurrent use.
type cluster struct {
	reader client.Reader

	mu      sync.Mutex // guards the fields below
	answers map[query]answer
	// unread are the kinds of classes that the user may not read.
	unread map[string]struct{}
}

// query is a read of an object, or without a key of a list.
type query struct {
	of  reflect.Type
	key types.NamespacedName
}

type answer struct {
	object runtime.Object
	err    error
}

// Get implements client.Reader.
func (c *cluster) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	return c.read(query{reflect.TypeOf(into), key}, into, func() error { return c.reader.Get(ctx, key, into) })
}

// List implements client.Reader.
func (c *cluster) List(ctx context.Context, into client.ObjectList, _ ...client.ListOption) error {
	return c.read(query{of: reflect.TypeOf(into)}, into, func() error { return c.reader.List(ctx, into) })
}

// read calls request unless the answer is cached. Errors that may be temporary are not cached.
func (c *cluster) read(q query, into runtime.Object, request func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cached, ok := c.answers[q]; ok {
		if cached.err == nil {
			reflect.ValueOf(into).Elem().Set(reflect.ValueOf(cached.object.DeepCopyObject()).Elem())
		}
		return cached.err
	}
	err := request()
	if apierrors.IsForbidden(err) {
		err = c.forbidden(q, into, err)
	}
	switch {
	case err == nil:
		c.answers[q] = answer{object: into.DeepCopyObject()}
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		c.answers[q] = answer{err: err}
	}
	return err
}

// forbidden returns the error for a read that is forbidden: classes only add fields to pods, and
// count as absent; all else cannot be decided.
func (c *cluster) forbidden(q query, into runtime.Object, err error) error {
	class := schema.GroupResource{Group: schedulingv1.GroupName, Resource: "PriorityClasses"}
	switch into.(type) {
	case *schedulingv1.PriorityClass, *schedulingv1.PriorityClassList:
	case *nodev1.RuntimeClass:
		class = schema.GroupResource{Group: nodev1.GroupName, Resource: "RuntimeClasses"}
	default:
		return err
	}
	c.unread[class.Resource] = struct{}{}
	if q.key.Name == "" {
		return nil
	}
	return apierrors.NewNotFound(class, q.key.Name)
}

// notes describe the classes that the user may not read.
func (c *cluster) notes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var notes []string
	for _, kinds := range slices.Sorted(maps.Keys(c.unread)) {
		notes = append(notes, kinds+" may not be read: pods are judged without what these give them")
	}
	return notes
}
