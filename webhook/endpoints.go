package webhook

import (
	"context"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/tolerations"
)

// The paths that the webhook configurations in deploy/webhooks call.
const (
	PathMutate   = "/mutate"
	PathValidate = "/validate"
)

// Config is what the endpoints judge by.
type Config struct {
	Options

	// ServerClock tells the time of the API server, from which taints count.
	ServerClock clock.PassiveClock
	// Policies hands out the policies in force.
	Policies policySource
	// Namespaces reads the labels of namespaces.
	Namespaces namespaceLabels
	// RuntimeClasses says which tolerations a RuntimeClass brings.
	RuntimeClasses runtimeClasses
	// ExtendedResourceToleration says whether the API server runs the admission
	// plugin of that name.
	ExtendedResourceToleration bool
	// PodTolerationRestriction says whether the API server runs the admission
	// plugin of that name.
	PodTolerationRestriction bool
	// DefaultSeconds are those of the API server's DefaultTolerationSeconds.
	DefaultSeconds tolerations.DefaultSeconds
	// MaxTimeAddedSkew is how far ahead the timeAdded of a node taint may be.
	MaxTimeAddedSkew time.Duration
	// StampNodeTaints and JudgeDirectives switch a capability on.
	StampNodeTaints, JudgeDirectives bool
	// JudgeDevices switches on the admission of what KEP-5055 is about: the taints of
	// ResourceSlices and DeviceTaintRules, the tolerations of claims and their
	// templates, and reservations of claims.
	JudgeDevices bool
	// DeviceTaints says which taints are in the way of a reservation. Nil where device
	// taints are not followed: then no reservation is refused.
	DeviceTaints deviceTaints
}

var (
	pods               = resource{name: "pods"}
	nodes              = resource{name: "nodes"}
	tolerationPolicies = resource{group: v1alpha1.GroupVersion.Group, name: "tolerationpolicies"}

	resourceSlices = resource{group: resourcev1.GroupName, name: "resourceslices"}
	claims         = resource{group: resourcev1.GroupName, name: "resourceclaims"}
	claimStatuses  = resource{group: resourcev1.GroupName, name: "resourceclaims", subresource: "status"}
	claimTemplates = resource{group: resourcev1.GroupName, name: "resourceclaimtemplates"}
	taintRules     = resource{group: resourcev1.GroupName, name: "devicetaintrules"}
)

// Mutate returns the endpoint that fills in what is missing.
func Mutate(c Config) *Endpoint {
	judges := map[resource]judge{
		nodes:          &nodeStamper{clock: c.ServerClock},
		resourceSlices: &sliceStamper{clock: c.ServerClock},
		taintRules:     &ruleStamper{clock: c.ServerClock},
		// Nothing is filled in here, and whoever has them sent here does no harm.
		claims: allowJudge{}, claimStatuses: allowJudge{}, claimTemplates: allowJudge{},
	}
	if !c.StampNodeTaints {
		judges[nodes] = allowJudge{}
	}
	return newEndpoint("mutate", c.Options, c.switched(judges))
}

// Validate returns the endpoint that refuses.
func Validate(c Config) *Endpoint {
	return newEndpoint("validate", c.Options, c.switched(map[resource]judge{
		pods: &podJudge{
			policies:                 c.Policies,
			namespaces:               c.Namespaces,
			runtimeClasses:           c.RuntimeClasses,
			defaults:                 c.DefaultSeconds,
			extendedResources:        c.ExtendedResourceToleration,
			podTolerationRestriction: c.PodTolerationRestriction,
			directives:               c.JudgeDirectives,
		},
		nodes:              &nodeJudge{clock: c.ServerClock, maxSkew: c.MaxTimeAddedSkew},
		tolerationPolicies: tolerationPolicyJudge{},
		resourceSlices:     &sliceJudge{clock: c.ServerClock},
		claims:             &claimJudge{},
		claimStatuses:      &reservationJudge{taints: c.DeviceTaints, clock: c.ServerClock},
		claimTemplates:     &claimJudge{template: true},
		taintRules:         &ruleJudge{clock: c.ServerClock, obeyed: c.DeviceTaints != nil},
	}))
}

// switched puts in place what allows where the admission of devices is off.
func (c Config) switched(judges map[resource]judge) map[resource]judge {
	if c.JudgeDevices {
		return judges
	}
	for _, r := range []resource{resourceSlices, claims, claimStatuses, claimTemplates, taintRules} {
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
