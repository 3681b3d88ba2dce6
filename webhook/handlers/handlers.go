package handlers

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/policyset"
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
	// Schedulers are the users that put pods on nodes by their taints; empty is Kubernetes'
	// scheduler.
	Schedulers []string
	// WorkloadControllers are the users that make pods from templates, besides those of Kubernetes.
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

	tolerationPolicyKind = ownKind("tolerationpolicies")
	placementPolicyKind  = ownKind("placementpolicies")
	taintPolicyKind      = ownKind("taintpolicies")
	gatePolicyKind       = ownKind("gatepolicies")
	evictionPolicyKind   = ownKind("evictionpolicies")
	approvalKind         = ownKind("evictionapprovals")
	slicePatchKind       = ownKind("resourceslicepatches")

	resourceSlices = Resource{Group: resourcev1.GroupName, Name: "resourceslices"}
	claims         = Resource{Group: resourcev1.GroupName, Name: "resourceclaims"}
	claimStatuses  = Resource{Group: resourcev1.GroupName, Name: "resourceclaims", Subresource: "status"}
	claimTemplates = Resource{Group: resourcev1.GroupName, Name: "resourceclaimtemplates"}
	taintRules     = Resource{Group: resourcev1.GroupName, Name: "devicetaintrules"}
)

// ownKind returns a resource of our own API.
func ownKind(name string) Resource { return Resource{Group: v1alpha1.GroupVersion.Group, Name: name} }

// reviewer is what all handlers decide by: the configuration, and the reads that they share. It is
// safe for concurrent use.
type reviewer struct {
	Config

	owners *owners
	nodes  *liveNodes
	// bound reads pods that are bound, and claimed what claims are made from.
	bound, claimed *live
}

// request is a request that is handled.
type request struct {
	*reviewer
	*review.Request

	// policies are those in force; nil while they have not been read.
	policies *policyset.Set
}

func newReviewer(c Config) *reviewer {
	if len(c.Schedulers) == 0 {
		c.Schedulers = DefaultSchedulers()
	}
	if c.Operators == nil {
		c.Operators = c.Authorizer
	}
	return &reviewer{
		Config: c, owners: newOwners(c.Live, c.Clock, slices.Concat(DefaultWorkloadControllers(), c.WorkloadControllers)),
		nodes: newLiveNodes(c.Live, c.Cache, c.Clock), bound: newLive(c.Live, c.Clock), claimed: newLive(c.Live, c.Clock),
	}
}

// inForce returns an error while there are no policies to decide by.
func (r request) inForce() error {
	if r.policies == nil {
		return errNoPolicies
	}
	return nil
}

// isScheduler reports whether the request is of a user that puts pods on nodes by their taints.
func (r request) isScheduler() bool { return slices.Contains(r.Schedulers, r.UserInfo.Username) }

// isSelf reports whether the request is Tollgate's own. TaintPolicies do not apply to it, because
// Tollgate writes taints on behalf of policies.
func (r request) isSelf() bool { return slices.Contains(r.Selves, r.UserInfo.Username) }

// Mutating returns the handlers that fill in missing fields.
func Mutating(c Config) map[Resource]Handler {
	r := newReviewer(c)
	return r.enabled(map[Resource]Handler{
		nodes:          r.mutating(request.mutateNode),
		resourceSlices: r.mutating(request.mutateSlice),
		taintRules:     r.mutating(request.mutateRule),
		pods:           r.mutating(request.mutatePod),
		claims:         r.mutating(request.mutateClaim),
		claimTemplates: r.mutating(request.mutateClaim),
		// Nothing is filled in here, and a configuration that sends it does no harm.
		claimStatuses: allow,
	})
}

// Validating returns the handlers that refuse.
func Validating(c Config) map[Resource]Handler {
	r := newReviewer(c)
	namespace, binding := r.judging(request.judgeNamespace), r.handler(request.validateBinding)
	handlers := map[Resource]Handler{
		pods:           r.judging(request.judgePod),
		podStatuses:    r.handler(request.validatePodStatus),
		claims:         r.judging(request.judgeClaim),
		claimTemplates: r.judging(request.judgeClaim),
		claimStatuses:  r.handler(request.validateReservation),
		nodes:          r.handler(request.validateNode),
		nodeStatuses:   r.judging(request.judgeNodeStatus),
		resourceSlices: r.handler(request.validateSlice),
		taintRules:     r.handler(request.validateRule),
		slicePatchKind: r.handler(request.validatePatch),

		{Name: "pods", Subresource: "binding"}: binding, {Name: "bindings"}: binding,

		{Name: "namespaces"}:                          namespace,
		{Name: "namespaces", Subresource: "status"}:   namespace,
		{Name: "namespaces", Subresource: "finalize"}: namespace,
	}
	maps.Copy(handlers, r.validatingOwn())
	for of := range templatePaths {
		handlers[of] = r.judging(request.judgeTemplate)
	}
	return r.enabled(handlers)
}

// enabled puts a handler in place that allows where the admission of devices is off. Claims
// and their templates are judged all the same: policies do not depend on it.
func (r *reviewer) enabled(handlers map[Resource]Handler) map[Resource]Handler {
	if !r.DeviceTaintAdmission {
		handlers[resourceSlices], handlers[claimStatuses], handlers[taintRules] = allow, allow, allow
	}
	return handlers
}

// handler returns the handler that decides about a request. It answers a request with a field that
// does not decode with the error of that field, whatever the decision is.
func (r *reviewer) handler(decide func(request, context.Context) (Result, error)) Handler {
	return func(ctx context.Context, req *review.Request) (Result, error) {
		result, err := decide(request{r, req, r.Policies.Current()}, ctx)
		if bad := req.Err(); bad != nil {
			return Result{}, bad
		}
		return result, err
	}
}

// mutating returns the handler that answers with a patch, and never refuses.
func (r *reviewer) mutating(mutate func(request, context.Context) (jsonPatch, error)) Handler {
	return r.handler(func(req request, ctx context.Context) (Result, error) {
		result := allowed()
		out, err := mutate(req, ctx)
		result.Patch = out
		return result, err
	})
}

// judging returns the handler that judges a request by the policies in force, and answers with the
// findings and warnings.
func (r *reviewer) judging(judge func(request, context.Context) ([]policy.Finding, []string, error)) Handler {
	return r.handler(func(req request, ctx context.Context) (Result, error) {
		if err := req.inForce(); err != nil {
			return Result{}, err
		}
		found, warnings, err := judge(req, ctx)
		if err != nil {
			return Result{}, err
		}
		return decided(found, warnings, req.policies), nil
	})
}

// allow is the handler of a capability that is switched off.
func allow(context.Context, *review.Request) (Result, error) { return allowed(), nil }
