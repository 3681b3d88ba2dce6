package v1alpha1

// DeviceTaintRules carry the taints of a ResourceSlicePatch to schedulers and to the
// eviction controller of Kubernetes. The patch owns its rules.
const (
	// LabelPatch is the label of the DeviceTaintRules of a ResourceSlicePatch. Its value
	// is the UID of the patch.
	LabelPatch = "tollgate.dev/resource-slice-patch"
	// AnnotationPatchEffect is the annotation with the effect that the patch gives the
	// taint, if the spec of the rule has another one: a patch with NoExecute has rules
	// with NoSchedule if the eviction controller of Kubernetes runs, so that only
	// Tollgate evicts the pods. It is ignored without LabelPatch.
	AnnotationPatchEffect = "tollgate.dev/patch-effect"
)
