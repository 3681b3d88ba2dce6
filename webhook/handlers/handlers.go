package handlers

import (
	"context"
	"errors"
	"maps"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/toleration"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// Resource names a resource, or a subresource of one.
type Resource struct{ Group, Name, Subresource string }

// Versions returns the versions in which the handlers read a resource. The fields of others may
// mean something else, and the API server converts what it is asked to review.
func (r Resource) Versions() []string {
	switch {
	case r.Group == v1alpha1.GroupVersion.Group:
		return policyVersions
	case r == taintRules:
		return taintRuleVersions
	default:
		return otherVersions
	}
}

var (
	policyVersions    = []string{v1alpha1.GroupVersion.Version}
	taintRuleVersions = []string{"v1", "v1beta2", "v1alpha3"}
	otherVersions     = []string{"v1"}
)

// Handler reviews the requests for one resource. An error means that no decision could be
// made; it is never shown to the client.
type Handler func(ctx context.Context, req *review.Request) (Result, error)

// ErrUnfollowed is the error of a review that a limit on affected pods stands in the way of,
// where the pods are not followed.
var ErrUnfollowed = errors.New("pods are not followed")

// UndecidedError says that there is no decision because of the request itself. Its text is safe
// to show.
type UndecidedError struct{ text string }

func (e *UndecidedError) Error() string { return e.text }

// Config holds the policies, readers and settings that the handlers decide by.
type Config struct {
	Readers
	Authorizers
	Users
	APIServer
	Features
	Trackers

	// Clock is this machine's: it bounds the rates of reads.
	Clock clock.PassiveClock
	// ServerClock tells the time of the API server, from which taints count.
	ServerClock clock.PassiveClock
}

// Readers read policies and objects.
type Readers struct {
	// Policies hands out the policies in force.
	Policies policySource
	// Namespaces reads the namespaces.
	Namespaces namespaceReader
	// Live reads objects from the API server itself: nodes, pods, the owners of objects that
	// controllers make, and the templates of claims.
	Live client.Reader
	// Cache reads nodes from a cache, where too many would have to be read from the API
	// server. Nil where there is none: then there is no verdict.
	Cache client.Reader
	// DeviceClasses reads of which classes pods request devices.
	DeviceClasses deviceClasses
	// RuntimeClasses reads which tolerations a RuntimeClass brings.
	RuntimeClasses runtimeClasses
}

// Authorizers answer questions about permissions.
type Authorizers struct {
	// Authorizer answers the questions of policies about pods, workloads and claims. Any
	// tenant decides how many these are.
	Authorizer authorizer.Authorizer
	// Turns bound how many costly expressions about these are evaluated at the same time; nil does not.
	Turns *cel.Turns
	// Operators answers the questions about writes of taints and of labels of namespaces.
	// It shares no limit with Authorizer, so that a tenant cannot keep an operator from
	// taking a taint off. Nil is Authorizer.
	Operators authorizer.Authorizer
	// OperatorTurns are the turns for writes of taints and of labels of namespaces, apart for the same
	// reason; nil bounds nothing.
	OperatorTurns *cel.Turns
}

// Users are the users that have a part of their own in admission.
type Users struct {
	// Selves are the users of Tollgate itself: TaintPolicies do not judge its writes.
	Selves []string
	// Schedulers are the users that put pods on nodes by their taints; empty is
	// DefaultSchedulers.
	Schedulers []string
	// WorkloadControllers are the users that make pods from templates; empty is
	// DefaultWorkloadControllers.
	WorkloadControllers []string
}

// APIServer is the configuration of the API server, and the bound on times.
type APIServer struct {
	// ExtendedResourceToleration and PodTolerationRestriction say whether the API server
	// runs the admission plugins of these names.
	ExtendedResourceToleration, PodTolerationRestriction bool
	// DefaultSeconds are those of the API server's DefaultTolerationSeconds.
	DefaultSeconds toleration.DefaultSeconds
	// MaxTimeAddedSkew is how far ahead the timeAdded of a node taint may be.
	MaxTimeAddedSkew time.Duration
}

// Features switch capabilities on and off.
type Features struct {
	// NodeTaintTimestamps writes the times of node taints.
	NodeTaintTimestamps bool
	// SchedulingDirectives judges changes of the scheduling directives of gated pods.
	SchedulingDirectives bool
	// DeviceTaintAdmission is the admission of KEP-5055: the taints of ResourceSlices and
	// DeviceTaintRules, the syntax of tolerations in claims and their templates, and
	// reservations of claims.
	DeviceTaintAdmission bool
	// WithoutDeviceTaintRules says that Tollgate does not act on DeviceTaintRules.
	WithoutDeviceTaintRules bool
	// Window says that Tollgate is in mode Window: pods and claims are given the
	// tolerations of EvictionPolicies with a window.
	Window bool
	// IgnoreComparisonOperators says that Tollgate evicts pods, and does not honour tolerations
	// with the operators Lt and Gt.
	IgnoreComparisonOperators bool
}

// Trackers follow nodes, devices and pods. Each may be nil.
type Trackers struct {
	// Preview previews the evictions of taints. Without it there are no previews, and no
	// decision where a limit has to be looked at.
	Preview *Preview
	// Spread warns of topology spread constraints that count nodes which pods cannot use.
	Spread *Spread
	// Outages remembers since when nodes have failed. Without it the taints of the node
	// lifecycle controller count anew after each of its restarts.
	Outages *Outages
	// DeviceTaints says which taints are in the way of a reservation. Without it no
	// reservation is refused.
	DeviceTaints deviceTaints
}

var (
	pods         = Resource{Name: "pods"}
	podStatuses  = Resource{Name: "pods", Subresource: "status"}
	nodes        = Resource{Name: "nodes"}
	nodeStatuses = Resource{Name: "nodes", Subresource: "status"}

	tolerationPolicyKind = Resource{Group: v1alpha1.GroupVersion.Group, Name: "tolerationpolicies"}
	placementPolicyKind  = Resource{Group: v1alpha1.GroupVersion.Group, Name: "placementpolicies"}
	taintPolicyKind      = Resource{Group: v1alpha1.GroupVersion.Group, Name: "taintpolicies"}
	gatePolicyKind       = Resource{Group: v1alpha1.GroupVersion.Group, Name: "gatepolicies"}
	evictionPolicyKind   = Resource{Group: v1alpha1.GroupVersion.Group, Name: "evictionpolicies"}
	approvalKind         = Resource{Group: v1alpha1.GroupVersion.Group, Name: "evictionapprovals"}
	slicePatchKind       = Resource{Group: v1alpha1.GroupVersion.Group, Name: "resourceslicepatches"}

	resourceSlices = Resource{Group: resourcev1.GroupName, Name: "resourceslices"}
	claims         = Resource{Group: resourcev1.GroupName, Name: "resourceclaims"}
	claimStatuses  = Resource{Group: resourcev1.GroupName, Name: "resourceclaims", Subresource: "status"}
	claimTemplates = Resource{Group: resourcev1.GroupName, Name: "resourceclaimtemplates"}
	taintRules     = Resource{Group: resourcev1.GroupName, Name: "devicetaintrules"}
)

// Mutating returns the handlers that fill in missing fields.
func Mutating(c Config) map[Resource]Handler {
	pod := &podHandler{policies: c.Policies, placement: c.placement(), windows: c.windows()}
	claim := claimHandler{policies: c.Policies, placement: c.placement(), windows: c.windows()}
	template := claim
	template.template = true
	node := &nodeHandler{clock: c.ServerClock, enforcer: c.enforcer(), outages: c.Outages, unstamped: !c.NodeTaintTimestamps}
	return c.enabled(map[Resource]Handler{
		nodes:          mutating(node.mutate),
		resourceSlices: mutating((&sliceHandler{clock: c.ServerClock}).mutate),
		taintRules:     mutating((&ruleHandler{clock: c.ServerClock}).mutate),
		pods:           mutating(pod.mutate),
		claims:         mutating(claim.mutate),
		claimTemplates: mutating(template.mutate),
		// Nothing is filled in here, and a configuration that sends it does no harm.
		claimStatuses: allow,
	})
}

// Validating returns the handlers that refuse.
func Validating(c Config) map[Resource]Handler {
	if len(c.Schedulers) == 0 {
		c.Schedulers = DefaultSchedulers()
	}
	if len(c.WorkloadControllers) == 0 {
		c.WorkloadControllers = DefaultWorkloadControllers()
	}
	reviewer := &tolerationReviewer{
		namespaces: c.Namespaces,
		authorizer: c.Authorizer,
		turns:      c.Turns,
		owners:     newOwners(c.Live, c.Clock, c.WorkloadControllers),
		nodes:      newLiveNodes(c.Live, c.Cache, c.Clock),
	}
	pod := &podHandler{
		policies: c.Policies, reviewer: reviewer, placement: c.placement(), windows: c.windows(),
		added:    &podAdditions{c.RuntimeClasses, c.ExtendedResourceToleration, c.PodTolerationRestriction},
		defaults: c.DefaultSeconds, schedulers: c.Schedulers, directives: c.SchedulingDirectives,
		spread: c.Spread, ignoreComparisons: c.IgnoreComparisonOperators,
	}
	claim := claimHandler{
		policies: c.Policies, reviewer: reviewer, live: newLive(c.Live, c.Clock), placement: c.placement(), windows: c.windows(),
		checksSyntax: c.DeviceTaintAdmission,
	}
	claimTemplate := claim
	claimTemplate.template = true
	enforcer := c.enforcer()
	node := &nodeHandler{clock: c.ServerClock, maxSkew: c.MaxTimeAddedSkew, enforcer: enforcer, preview: c.Preview}
	binding := &bindingHandler{
		policies: c.Policies, reviewer: reviewer, pods: newLive(c.Live, c.Clock), defaults: c.DefaultSeconds, schedulers: c.Schedulers,
	}
	namespace := &namespaceHandler{policies: c.Policies, authorizer: enforcer.authorizer}
	handlers := map[Resource]Handler{
		pods:           pod.validate,
		podStatuses:    validatePodStatus,
		claims:         claim.validate,
		claimTemplates: claimTemplate.validate,
		claimStatuses:  (&reservationHandler{taints: c.DeviceTaints, clock: c.ServerClock}).validate,
		nodes:          node.validate,
		nodeStatuses:   node.validateStatus,
		resourceSlices: (&sliceHandler{clock: c.ServerClock, enforcer: enforcer, preview: c.Preview}).validate,
		taintRules: (&ruleHandler{
			clock: c.ServerClock, obeyed: c.DeviceTaints != nil && !c.WithoutDeviceTaintRules, enforcer: enforcer, preview: c.Preview,
		}).validate,
		slicePatchKind: (&patchHandler{clock: c.ServerClock, enforcer: enforcer, preview: c.Preview}).validate,

		{Name: "pods", Subresource: "binding"}: binding.validate, {Name: "bindings"}: binding.validate,

		{Name: "namespaces"}:                          namespace.validate,
		{Name: "namespaces", Subresource: "status"}:   namespace.validate,
		{Name: "namespaces", Subresource: "finalize"}: namespace.validate,
	}
	maps.Copy(handlers, validatingOwn(c.Preview))
	for r, at := range templatePaths() {
		handlers[r] = (&templateHandler{
			at: at, policies: c.Policies, reviewer: reviewer, defaults: c.DefaultSeconds, schedulers: c.Schedulers,
			daemons: r.Name == "daemonsets", gated: r.Name == "jobs", revision: r.Name == "controllerrevisions",
			placement: pod.placement, spread: c.Spread, ignoreComparisons: c.IgnoreComparisonOperators,
		}).validate
	}
	return c.enabled(handlers)
}

func (c *Config) enforcer() *taintEnforcer {
	enforcer := &taintEnforcer{policies: c.Policies, authorizer: c.Operators, turns: c.OperatorTurns, clock: c.ServerClock, selves: c.Selves}
	if enforcer.authorizer == nil {
		enforcer.authorizer = c.Authorizer
	}
	return enforcer
}

func (c *Config) windows() *windows { return &windows{on: c.Window, namespaces: c.Namespaces} }

func (c *Config) placement() *placementMatcher {
	return &placementMatcher{namespaces: c.Namespaces, classes: c.DeviceClasses, authorizer: c.Authorizer, turns: c.Turns}
}

// enabled puts a handler in place that allows where the admission of devices is off. Claims
// and their templates are judged all the same: policies do not depend on it.
func (c *Config) enabled(handlers map[Resource]Handler) map[Resource]Handler {
	if !c.DeviceTaintAdmission {
		handlers[resourceSlices], handlers[claimStatuses], handlers[taintRules] = allow, allow, allow
	}
	return handlers
}

// mutating returns the handler that answers with a patch, and never refuses.
func mutating(mutate func(context.Context, *review.Request) (jsonPatch, error)) Handler {
	return func(ctx context.Context, req *review.Request) (Result, error) {
		result := allowed()
		out, err := mutate(ctx, req)
		result.Patch = out
		return result, err
	}
}

// allow is the handler of a capability that is switched off.
func allow(context.Context, *review.Request) (Result, error) { return allowed(), nil }
