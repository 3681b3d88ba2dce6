package webhook

import (
	"context"
	"maps"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/toleration"
)

// The paths that the webhook configurations in deploy/webhooks call.
const (
	PathMutate   = "/mutate"
	PathValidate = "/validate"
)

// The names of the endpoints, in metrics and where it is said who may call them.
const (
	EndpointMutate   = "mutate"
	EndpointValidate = "validate"
)

// Config is what the endpoints judge by.
type Config struct {
	Options

	// ServerClock tells the time of the API server, from which taints count.
	ServerClock clock.PassiveClock
	// Policies hands out the policies in force.
	Policies policySource
	// Namespaces reads the namespaces.
	Namespaces namespaceReader
	// Live reads objects from the API server itself: nodes, pods, the owners of what
	// controllers make, and the templates of claims.
	Live client.Reader
	// Cache reads nodes from a cache, for where too many would have to be read from the
	// API server. Nil where there is none: then there is no verdict.
	Cache client.Reader
	// Authorizer answers what policies ask of RBAC about pods, workloads and claims. Any
	// tenant decides how much is asked of it.
	Authorizer authorizer.Authorizer
	// Operators answers what is asked about writes of taints and of labels of namespaces.
	// It shares no limit with Authorizer, so that a tenant cannot keep an operator from
	// taking a taint off. Nil is Authorizer.
	Operators authorizer.Authorizer
	// Selves are the users that Tollgate is: what it writes itself is not judged by
	// TaintPolicies.
	Selves []string
	// Preview says what taints would do to pods. Nil foresees nothing, and cannot answer
	// where a limit has to be looked at.
	Preview *Preview
	// Spread warns of topology spread constraints that count nodes which pods cannot use.
	// Nil warns of nothing.
	Spread *Spread
	// IgnoreComparisonOperators says that Tollgate evicts pods, and does not honour tolerations
	// with the operators Lt and Gt.
	IgnoreComparisonOperators bool
	// DeviceClasses says of which classes pods request devices.
	DeviceClasses deviceClasses
	// Window says that Tollgate is in mode Window: pods and claims are given the
	// tolerations of EvictionPolicies with a window.
	Window bool
	// Schedulers are the users who put pods on nodes by their taints; DefaultSchedulers
	// where there are none.
	Schedulers []string
	// WorkloadControllers are the users who make pods from templates;
	// DefaultWorkloadControllers where there are none.
	WorkloadControllers []string
	// RuntimeClasses says which tolerations a RuntimeClass brings.
	RuntimeClasses runtimeClasses
	// ExtendedResourceToleration says whether the API server runs the admission
	// plugin of that name.
	ExtendedResourceToleration bool
	// PodTolerationRestriction says whether the API server runs the admission
	// plugin of that name.
	PodTolerationRestriction bool
	// DefaultSeconds are those of the API server's DefaultTolerationSeconds.
	DefaultSeconds toleration.DefaultSeconds
	// MaxTimeAddedSkew is how far ahead the timeAdded of a node taint may be.
	MaxTimeAddedSkew time.Duration
	// StampNodeTaints and JudgeDirectives switch a capability on.
	StampNodeTaints, JudgeDirectives bool
	// Outages remembers since when nodes have failed. Nil remembers nothing: then the taints
	// of the node lifecycle controller count anew after each of its restarts.
	Outages *Outages
	// JudgeDevices switches on the admission of what KEP-5055 is about: the taints of
	// ResourceSlices and DeviceTaintRules, the syntax of tolerations in claims and
	// their templates, and reservations of claims.
	JudgeDevices bool
	// WithoutDeviceTaintRules says that Tollgate does not act on DeviceTaintRules.
	WithoutDeviceTaintRules bool
	// DeviceTaints says which taints are in the way of a reservation. Nil where device
	// taints are not followed: then no reservation is refused.
	DeviceTaints deviceTaints
}

var (
	pods         = resource{name: "pods"}
	podStatuses  = resource{name: "pods", subresource: "status"}
	nodes        = resource{name: "nodes"}
	nodeStatuses = resource{name: "nodes", subresource: "status"}

	tolerationPolicyKind = resource{group: v1alpha1.GroupVersion.Group, name: "tolerationpolicies"}
	placementPolicyKind  = resource{group: v1alpha1.GroupVersion.Group, name: "placementpolicies"}
	taintPolicyKind      = resource{group: v1alpha1.GroupVersion.Group, name: "taintpolicies"}
	gatePolicyKind       = resource{group: v1alpha1.GroupVersion.Group, name: "gatepolicies"}
	evictionPolicyKind   = resource{group: v1alpha1.GroupVersion.Group, name: "evictionpolicies"}
	approvalKind         = resource{group: v1alpha1.GroupVersion.Group, name: "evictionapprovals"}
	slicePatchKind       = resource{group: v1alpha1.GroupVersion.Group, name: "resourceslicepatches"}

	resourceSlices = resource{group: resourcev1.GroupName, name: "resourceslices"}
	claims         = resource{group: resourcev1.GroupName, name: "resourceclaims"}
	claimStatuses  = resource{group: resourcev1.GroupName, name: "resourceclaims", subresource: "status"}
	claimTemplates = resource{group: resourcev1.GroupName, name: "resourceclaimtemplates"}
	taintRules     = resource{group: resourcev1.GroupName, name: "devicetaintrules"}
)

// Mutate returns the endpoint that fills in what is missing.
func Mutate(c Config) *Endpoint {
	placer := c.placer()
	return newEndpoint(EndpointMutate, c.Options, c.switched(map[resource]judge{
		nodes:          &nodeStamper{clock: c.ServerClock, governor: c.governor(), outages: c.Outages, unstamped: !c.StampNodeTaints},
		resourceSlices: &sliceStamper{clock: c.ServerClock},
		taintRules:     &ruleStamper{clock: c.ServerClock},
		pods:           &podGiver{policies: c.Policies, placer: placer, windows: c.windows()},
		claims:         &claimGiver{policies: c.Policies, placer: placer, windows: c.windows()},
		claimTemplates: &claimGiver{policies: c.Policies, placer: placer, windows: c.windows(), template: true},
		// Nothing is filled in here, and whoever has them sent here does no harm.
		claimStatuses: allowJudge{},
	}))
}

// Validate returns the endpoint that refuses.
func Validate(c Config) *Endpoint {
	judges := tolerationJudges(c)
	maps.Copy(judges, map[resource]judge{
		nodes:          &nodeJudge{clock: c.ServerClock, maxSkew: c.MaxTimeAddedSkew, governor: c.governor(), preview: c.Preview},
		nodeStatuses:   &nodeStatusJudge{governor: c.governor()},
		podStatuses:    podStatusJudge{},
		resourceSlices: &sliceJudge{clock: c.ServerClock, governor: c.governor(), preview: c.Preview},
		claimStatuses:  &reservationJudge{taints: c.DeviceTaints, clock: c.ServerClock},
		taintRules: &ruleJudge{
			clock: c.ServerClock, obeyed: c.DeviceTaints != nil && !c.WithoutDeviceTaintRules, governor: c.governor(), preview: c.Preview,
		},

		tolerationPolicyKind: newTolerationPolicyJudge(),
		placementPolicyKind:  newPlacementPolicyJudge(),
		taintPolicyKind:      newTaintPolicyJudge(c.Preview),
		gatePolicyKind:       newGatePolicyJudge(),
		evictionPolicyKind:   newEvictionPolicyJudge(),
		approvalKind:         newApprovalJudge(),
		slicePatchKind:       &patchJudge{clock: c.ServerClock, governor: c.governor(), preview: c.Preview},
	})
	return newEndpoint(EndpointValidate, c.Options, c.switched(judges))
}

func (c Config) governor() *governor {
	return &governor{policies: c.Policies, authorizer: c.operators(), clock: c.ServerClock, selves: c.Selves}
}

// operators returns what answers questions about writes of operators.
func (c Config) operators() authorizer.Authorizer {
	if c.Operators == nil {
		return c.Authorizer
	}
	return c.Operators
}

func (c Config) windows() *windows { return &windows{on: c.Window, namespaces: c.Namespaces} }

func (c Config) placer() *placer {
	return &placer{namespaces: c.Namespaces, classes: c.DeviceClasses, authorizer: c.Authorizer}
}

// switched puts in place what allows where the admission of devices is off. Claims and
// their templates are judged all the same: policies do not hang on it.
func (c Config) switched(judges map[resource]judge) map[resource]judge {
	if c.JudgeDevices {
		return judges
	}
	for _, r := range []resource{resourceSlices, claimStatuses, taintRules} {
		judges[r] = allowJudge{}
	}
	return judges
}

// allowJudge stands where a capability is switched off.
type allowJudge struct{}

// Judge implements judge.
func (allowJudge) Judge(context.Context, admission.Request) (admission.Response, error) {
	return allowed(), nil
}
