package v1alpha1

// The taints of a ResourceSlicePatch are written out as DeviceTaintRules, because
// schedulers and Kubernetes' own evictor read those. Each is owned by its patch.
const (
	// LabelPatch is on all DeviceTaintRules that are written out for a
	// ResourceSlicePatch. Its value is the UID of the patch.
	LabelPatch = "tollgate.dev/resource-slice-patch"
	// AnnotationPatchEffect is on those of them whose taint has another effect for Tollgate
	// than the rule says: NoExecute where the rule says NoSchedule, so that Kubernetes'
	// own evictor leaves the pods to Tollgate. Without LabelPatch it means nothing.
	AnnotationPatchEffect = "tollgate.dev/patch-effect"
)
