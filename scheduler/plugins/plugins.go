package plugins

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

const (
	// DynamicResourcesName is the name of the plugin that stands in for DynamicResources.
	DynamicResourcesName = "PatchedDynamicResources"
	// FitName is the name of the plugin that scores in place of NodeResourcesFit.
	FitName = "PatchedNodeResourcesFit"
	// BalancedAllocationName is the name of the plugin that scores in place of
	// NodeResourcesBalancedAllocation.
	BalancedAllocationName = "PatchedNodeResourcesBalancedAllocation"
)

// Registry are the plugins by name, for app.WithPlugin. They share one view of the
// devices, so there must be one registry in a process, and one scheduler with it;
// that may have many profiles.
// The feature gate that comes with them has to be known before the command of the
// scheduler is made, which reads gates from its flags.
func Registry() frameworkruntime.Registry {
	addGates()
	return (&shared{informer: informerOfPatches, leases: leasesOf, compile: compilePatches}).registry()
}

func (s *shared) registry() frameworkruntime.Registry {
	return frameworkruntime.Registry{
		DynamicResourcesName: factory(s, true, "DynamicResourcesArgs", dynamicresources.New,
			func(stock *dynamicresources.DynamicResources) fwk.Plugin { return &DynamicResources{stock} }),
		FitName: factory(s, false, "NodeResourcesFitArgs", noderesources.NewFit,
			func(stock stockScoring) fwk.Plugin { return &Scoring{stock, FitName} }),
		BalancedAllocationName: factory(s, false, "NodeResourcesBalancedAllocationArgs", noderesources.NewBalancedAllocation,
			func(stock stockScoring) fwk.Plugin { return &Scoring{stock, BalancedAllocationName} }),
	}
}

// factory makes a stock plugin over the profile's handle with the patched slices in it, with
// the arguments of a kind and the feature gates as they stand, which are set before.
func factory[P fwk.Plugin](
	s *shared, allocates bool, kind string, stock frameworkruntime.PluginFactoryWithFts[fwk.Plugin], under func(stock P) fwk.Plugin,
) frameworkruntime.PluginFactory {
	return func(ctx context.Context, given runtime.Object, profile fwk.Handle) (fwk.Plugin, error) {
		patched, err := s.handle(ctx, profile, allocates)
		if err != nil {
			return nil, err
		}
		args, err := arguments(given, kind)
		if err != nil {
			return nil, err
		}
		made, err := stock(ctx, args, patched, feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate))
		if err != nil {
			return nil, err
		}
		plugin, ok := made.(P)
		if !ok {
			return nil, fmt.Errorf("the stock plugin with %s is a %T", kind, made)
		}
		return under(plugin), nil
	}
}

// DynamicResources allocates devices as the plugin of that name in Kubernetes does,
// out of ResourceSlices to which patches are applied.
type DynamicResources struct {
	*dynamicresources.DynamicResources
}

// Name is the name of the plugin in profiles.
func (*DynamicResources) Name() string { return DynamicResourcesName }

// stockScoring has the methods of the stock plugins that score. All else that NodeResourcesFit
// does is left to it: it reads no devices there.
type stockScoring interface {
	fwk.PreScorePlugin
	fwk.ScorePlugin
	fwk.SignPlugin
}

// Scoring ranks nodes as the stock plugin does, and where a resource is backed by
// devices it counts patched ones.
type Scoring struct {
	stockScoring
	name string
}

// Name is the name of the plugin in profiles.
func (s *Scoring) Name() string { return s.name }
