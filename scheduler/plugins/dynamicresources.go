package plugins

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
)

// DynamicResourcesName is the name of the plugin that stands in for DynamicResources.
const DynamicResourcesName = "PatchedDynamicResources"

// DynamicResources allocates devices as the plugin of that name in Kubernetes does,
// out of ResourceSlices to which patches are applied.
type DynamicResources struct {
	*dynamicresources.DynamicResources
}

// Name is what profiles call the plugin.
func (*DynamicResources) Name() string { return DynamicResourcesName }

func newDynamicResources(ctx context.Context, given runtime.Object, handle fwk.Handle) (*DynamicResources, error) {
	args, err := arguments(given, "DynamicResourcesArgs")
	if err != nil {
		return nil, err
	}
	plugin, err := dynamicresources.New(ctx, args, handle, features())
	if err != nil {
		return nil, err
	}
	stock, ok := plugin.(*dynamicresources.DynamicResources)
	if !ok {
		return nil, fmt.Errorf("plugin DynamicResources is a %T, want *dynamicresources.DynamicResources", plugin)
	}
	return &DynamicResources{DynamicResources: stock}, nil
}

// features are the gates as they stand. They are set before plugins are made.
func features() feature.Features {
	return feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
}
