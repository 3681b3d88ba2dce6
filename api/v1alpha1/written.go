package v1alpha1

// DeviceTaintRules represent the taints of a ResourceSlicePatch for schedulers and
// Kubernetes' own evictor. Each is owned by its patch.
const (
	// LabelPatch is the label of the DeviceTaintRules of a ResourceSlicePatch. Its value
	// is the UID of the patch.
	LabelPatch = "tollgate.dev/resource-slice-patch"
	// AnnotationPatchEffect is the true effect of a rule with another effect in its spec:
	// NoExecute where the spec has NoSchedule, so that Kubernetes' own evictor leaves the
	// pods to Tollgate. It is ignored without LabelPatch.
	AnnotationPatchEffect = "tollgate.dev/patch-effect"
)
