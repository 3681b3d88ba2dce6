package v1alpha1

// kubectl tollgate taint device writes ordinary DeviceTaintRules and ResourceSlicePatches,
// and removes those with its label. The label is no access control: any user who may write
// such an object can set it.
const (
	// LabelMadeBy is the label with the program that created an object:
	// ProgramCommandLine.
	LabelMadeBy = "tollgate.dev/made-by"
	// ProgramCommandLine is the value of LabelMadeBy for taint device.
	ProgramCommandLine = "kubectl-tollgate"
	// AnnotationAuthor is the user who ran the command.
	AnnotationAuthor = "tollgate.dev/author"
)
