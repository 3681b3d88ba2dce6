package settings

import (
	"slices"

	"k8s.io/component-base/featuregate"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/toleration"
	"github.com/tollgate-dev/tollgate/webhook/handlers"
)

// HandlersOf returns the part of the configuration of the handlers that follows from that of
// Tollgate alone.
func HandlersOf(config *configv1alpha1.TollgateConfiguration, gates featuregate.FeatureGate) handlers.Config {
	admission := &config.Admission
	return handlers.Config{
		Users: handlers.Users{
			Schedulers:          admission.Schedulers,
			WorkloadControllers: slices.Concat(handlers.DefaultWorkloadControllers(), admission.WorkloadControllers),
		},
		APIServer: handlers.APIServer{
			ExtendedResourceToleration: admission.ExtendedResourceToleration,
			PodTolerationRestriction:   admission.PodTolerationRestriction,
			DefaultSeconds:             DefaultSeconds(config),
			MaxTimeAddedSkew:           admission.MaxTimeAddedSkew.Duration,
		},
		Features: handlers.Features{
			NodeTaintTimestamps:  gates.Enabled(NodeTaintTimestamps),
			SchedulingDirectives: gates.Enabled(SchedulingDirectives),
			DeviceTaintAdmission: gates.Enabled(DeviceTaintAdmission),
			Window:               Window(config, gates),
		},
	}
}

// DefaultSeconds returns what the plugin DefaultTolerationSeconds of the API server adds.
func DefaultSeconds(config *configv1alpha1.TollgateConfiguration) toleration.DefaultSeconds {
	return toleration.DefaultSeconds{
		NotReady:    config.Admission.DefaultNotReadyTolerationSeconds,
		Unreachable: config.Admission.DefaultUnreachableTolerationSeconds,
	}
}

// Window reports whether the mode is Window, in which Tollgate evicts before Kubernetes does.
func Window(config *configv1alpha1.TollgateConfiguration, gates featuregate.FeatureGate) bool {
	return gates.Enabled(EvictionPolicies) && config.Eviction.Mode == configv1alpha1.EvictionWindow
}
