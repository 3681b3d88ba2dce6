package preview

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var taintAllKinds = served{
	"resource.k8s.io/v1": plainKinds["resource.k8s.io/v1"],
	"tollgate.dev/v1alpha1": {
		"evictionpolicies", "resourceslicepatches", "taintpolicies", "tolerationpolicies", "placementpolicies", "gatepolicies",
	},
}

// taintCustomKinds are the kinds that are read without types.
var taintCustomKinds = map[string]schema.GroupVersionResource{
	"DeviceTaintRule":    {Group: "resource.k8s.io", Version: "v1", Resource: "devicetaintrules"},
	"EvictionPolicy":     {Group: "tollgate.dev", Version: "v1alpha1", Resource: "evictionpolicies"},
	"ResourceSlicePatch": {Group: "tollgate.dev", Version: "v1alpha1", Resource: "resourceslicepatches"},
	"TaintPolicy":        {Group: "tollgate.dev", Version: "v1alpha1", Resource: "taintpolicies"},
	"TolerationPolicy":   {Group: "tollgate.dev", Version: "v1alpha1", Resource: "tolerationpolicies"},
	"PlacementPolicy":    {Group: "tollgate.dev", Version: "v1alpha1", Resource: "placementpolicies"},
	"GatePolicy":         {Group: "tollgate.dev", Version: "v1alpha1", Resource: "gatepolicies"},
}
