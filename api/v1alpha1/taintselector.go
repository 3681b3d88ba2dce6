package v1alpha1

import corev1 "k8s.io/api/core/v1"

// TaintTarget is the kind of object that has a taint.
//
// +kubebuilder:validation:Enum=Node;Device
type TaintTarget string

// The targets of taints.
const (
	// TaintTargetNode means taints in the spec of a Node.
	TaintTargetNode TaintTarget = "Node"
	// TaintTargetDevice means taints of a DRA device, which a ResourceSlice, a
	// DeviceTaintRule (KEP-5055) or a ResourceSlicePatch sets.
	TaintTargetDevice TaintTarget = "Device"
)

// TaintSelector selects taints by target, key, value and effect. All fields that are set
// must match. With target Node, the key "*" does not select the system keys of nodes
// (node.kubernetes.io/* and node.cloudprovider.kubernetes.io/*): name them to select
// them.
//
// +structType=atomic
type TaintSelector struct {
	// target is the kind of object that has the taint: Node or Device. Defaults to Node.
	//
	// +optional
	// +kubebuilder:default=Node
	Target TaintTarget `json:"target,omitempty"`

	// key is a taint key, "prefix/*" for every key below the prefix, or "*" for every
	// key. With target Node, "*" does not select system keys.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key"`

	// values lists the selected taint values. If empty, every value is selected.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	Values []string `json:"values,omitempty"`

	// effects lists the selected taint effects: NoSchedule, PreferNoSchedule and
	// NoExecute for nodes; None, NoSchedule and NoExecute for devices. If empty, every
	// effect is selected.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:Enum=None;NoSchedule;PreferNoSchedule;NoExecute
	Effects []corev1.TaintEffect `json:"effects,omitempty"`

	// deviceClasses restricts the selector to tolerations in requests for these
	// DeviceClasses. It is valid only with target Device, and only in policies about
	// tolerations.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	DeviceClasses []string `json:"deviceClasses,omitempty"`

	// drivers restricts the selector to taints of devices of these DRA drivers. It is
	// valid only with target Device, and only in policies about taints.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	Drivers []string `json:"drivers,omitempty"`
}
