package plugins

import (
	"fmt"
	"sync"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
)

// ResourceSlicePatchAttributes applies the attributes and the capacity of
// ResourceSlicePatches. Off, patches do nothing but taint. Tollgate itself has a gate of the
// same name, for its own statements about patches.
const ResourceSlicePatchAttributes featuregate.Feature = "ResourceSlicePatchAttributes"

// addGates adds it to the gates of the scheduler.
var addGates = sync.OnceFunc(func() {
	utilruntime.Must(utilfeature.DefaultMutableFeatureGate.Add(map[featuregate.Feature]featuregate.FeatureSpec{
		ResourceSlicePatchAttributes: {Default: true, PreRelease: featuregate.Beta},
	}))
})

// withoutAttributes is the transform of the informer while the gate is off.
func withoutAttributes(object any) (any, error) {
	patch, ok := object.(*v1alpha1.ResourceSlicePatch)
	if !ok {
		return nil, fmt.Errorf("the informer of ResourceSlicePatches has a %T", object)
	}
	return slicepatch.WithoutAttributes(patch), nil
}
