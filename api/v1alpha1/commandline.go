package v1alpha1

// What kubectl tollgate taint device writes are DeviceTaintRules and ResourceSlicePatches
// like any others. The command takes away again what has its mark. Whoever may write such
// an object may also mark it: the marks are no access control.
const (
	// LabelMadeBy names the program that made an object: ProgramCommandLine.
	LabelMadeBy = "tollgate.dev/made-by"
	// ProgramCommandLine is the value of LabelMadeBy for taint device.
	ProgramCommandLine = "kubectl-tollgate"
	// AnnotationAuthor is the name of the user who had it made.
	AnnotationAuthor = "tollgate.dev/author"
)
