package webhook

import (
	"context"
	"time"

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
}

var (
	pods               = resource{name: "pods"}
	nodes              = resource{name: "nodes"}
	tolerationPolicies = resource{group: v1alpha1.GroupVersion.Group, name: "tolerationpolicies"}
)

// Mutate returns the endpoint that fills in what is missing.
func Mutate(c Config) *Endpoint {
	var stamper judge = allowJudge{}
	if c.StampNodeTaints {
		stamper = &nodeStamper{clock: c.ServerClock}
	}
	return newEndpoint("mutate", c.Options, map[resource]judge{nodes: stamper})
}

// Validate returns the endpoint that refuses.
func Validate(c Config) *Endpoint {
	return newEndpoint("validate", c.Options, map[resource]judge{
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
	})
}

// allowJudge stands where a capability is switched off.
type allowJudge struct{}

// Judge implements judge.
func (allowJudge) Judge(context.Context, admission.Request) (admission.Response, error) {
	return allowed(), nil
}
