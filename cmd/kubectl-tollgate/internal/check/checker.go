package check

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/webhook"
	"github.com/tollgate-dev/tollgate/webhook/handlers"
)

// Options configure a Checker.
type Options struct {
	Policies Policies
	// Objects are the objects that a review may read: namespaces, nodes, classes, roles, and the
	// judged objects themselves.
	Objects []cli.Object
	// Namespace is the default namespace.
	Namespace string
	// Config is the configuration of the Tollgate that would judge.
	Config *configv1alpha1.TollgateConfiguration
	Clock  clock.PassiveClock
	// Cluster reads the objects that are not among Objects; nil without a cluster.
	Cluster *cli.Clients
	// Authorizer is that of the cluster; nil for the roles among the objects.
	Authorizer authorizer.Authorizer
}

// Checker judges objects. It is not safe for concurrent use.
type Checker struct {
	Options

	world            *world
	rbac             *rbac // nil with the authorizer of a cluster
	server           *APIServer
	policies         *policyset.Set
	mutate, validate *webhook.Endpoint
	pace             *steps

	// nodes are the nodes for topology spread constraints; nil if these are not judged.
	nodes *tracker.Tracker
	// nodesRead is true once they are read, and nodesNote describes unknown nodes.
	nodesRead bool
	nodesNote string
}

// Current returns the policies, for the endpoints.
func (c *Checker) Current() *policyset.Set { return c.policies }

// NewChecker returns a checker with the endpoints that tollgate serve configures. The pods of a
// cluster are unknown, so there are no previews, and limits on how many pods a taint may affect
// are undecided.
func NewChecker(options Options) (*Checker, error) {
	gates, err := settings.NewFeatureGates(options.Config.FeatureGates)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	c := &Checker{
		Options: options, world: newWorld(options.Cluster), pace: &steps{start: options.Clock.Now()},
		policies: options.Policies.InForce(settings.Kinds(gates)),
	}
	for _, given := range options.Objects {
		object := c.placed(given)
		object.SetUID(uidOf(object)) // Owners are compared by UID.
		c.world.add(object)
	}
	by := options.Authorizer
	if by == nil {
		if c.rbac, err = newRBAC(c.world); err != nil {
			return nil, err
		}
		by = authorizer.AuthorizerFunc(c.rbac.Authorize)
	}
	c.server = &APIServer{Reader: c.world, Clock: c.Clock, Admission: &c.Config.Admission}
	judges := settings.HandlersOf(c.Config, gates)
	judges.Clock, judges.ServerClock, judges.Authorizer = c.pace, c.Clock, by
	judges.Readers = handlers.Readers{
		Policies: c, Namespaces: c.world, Live: c.world, Cache: c.world,
		DeviceClasses:  handlers.NewDeviceClasses(c.world, c.world, c.pace),
		RuntimeClasses: handlers.NewRuntimeClasses(c.world, c.world, c.pace),
	}
	if gates.Enabled(settings.NodeTaintEviction) {
		c.nodes = tracker.New()
		judges.Spread = &handlers.Spread{
			Nodes: c.nodes, Known: func() bool { return c.nodesRead },
			ComparisonOperators: c.Config.Eviction.ComparisonOperators, Clock: c.pace,
		}
	}
	config := webhook.Config{Handlers: judges} // Its options are for requests by HTTP.
	c.mutate, c.validate = webhook.Mutate(config), webhook.Validate(config)
	return c, nil
}

// placed returns a copy of an object with the default namespace, if it is namespaced and has none, or
// without a namespace, if it is not.
func (c *Checker) placed(given cli.Object) *unstructured.Unstructured {
	object := given.DeepCopy()
	k, gk := kindOf(object), object.GroupVersionKind().GroupKind()
	switch namespaced := k != nil && k.namespaced || gk == rbacKind("Role") || gk == rbacKind("RoleBinding"); {
	case k != nil && !namespaced:
		object.SetNamespace("")
	case namespaced && object.GetNamespace() == "":
		object.SetNamespace(c.Namespace)
	}
	return object
}

// readNodes reads the nodes before the first object whose spread constraints may count nodes that
// its pods cannot use. Most objects have none, and need no permission to list nodes.
func (c *Checker) readNodes(ctx context.Context, object runtime.Object) error {
	if c.nodes == nil || c.nodesRead || !mayCountUnusableNodes(object) {
		return nil
	}
	var list corev1.NodeList
	const unknown = ": whether topology spread constraints count nodes that pods cannot use is not known"
	switch err := c.world.List(ctx, &list); {
	case apierrors.IsForbidden(err):
		c.nodesNote = "nodes may not be listed" + unknown
	case err != nil:
		return fmt.Errorf("list nodes: %w", err)
	case len(list.Items) == 0 && c.Cluster == nil:
		c.nodesNote = "there are no nodes among the manifests" + unknown
	}
	for _, node := range list.Items {
		// The time of the taints makes no difference to spread.
		c.nodes.SetNode(tracker.NodeOf(&node), c.Clock.Now())
	}
	c.nodesRead = true
	return nil
}

// mayCountUnusableNodes reports whether the pods of an object may stay pending because of spread
// constraints. DaemonSets are placed without them.
func mayCountUnusableNodes(object runtime.Object) bool {
	var spec corev1.PodSpec
	switch o := object.(type) {
	case *corev1.Pod:
		spec = o.Spec
	case *appsv1.DaemonSet:
	default:
		if template := TemplateOf(object); template != nil {
			spec = template.Spec
		}
	}
	return slices.ContainsFunc(spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool {
		return c.WhenUnsatisfiable == corev1.DoNotSchedule && (c.NodeTaintsPolicy == nil || *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyIgnore)
	})
}

// Notes describe the unknown data that the verdicts so far depend on.
func (c *Checker) Notes() []string {
	var notes []string
	if c.rbac != nil && c.rbac.refused {
		notes = append(notes, "RBAC was asked, and knows only the Roles and ClusterRoles in the files: what a cluster allows beyond these needs --cluster")
	}
	for _, name := range sets.List(c.world.unknown) {
		notes = append(notes, "namespace "+name+" is not among the manifests: taken to have no labels but its name")
	}
	if c.nodesNote != "" {
		notes = append(notes, c.nodesNote)
	}
	for _, kinds := range sets.List(c.world.unread) {
		notes = append(notes, kinds+" may not be read: pods are judged without what these give them")
	}
	return notes
}

// steps is a clock that advances by a minute before each object. The reviews limit their reads by it,
// which protects an API server, and none is loaded here.
type steps struct {
	start time.Time
	count atomic.Int64
}

// Now implements clock.PassiveClock.
func (s *steps) Now() time.Time {
	return s.start.Add(time.Duration(s.count.Load()) * time.Minute)
}

// Since implements clock.PassiveClock.
func (s *steps) Since(t time.Time) time.Duration { return s.Now().Sub(t) }
