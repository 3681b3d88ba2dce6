package v1alpha1

// kubectl tollgate taint device writes ordinary DeviceTaintRules and ResourceSlicePatches
// with this label. kubectl tollgate untaint device removes only objects with it. The
// label is no access control: any user who may write such an object can set it.
const (
	// LabelMadeBy is the label with the name of the program that created an object.
	LabelMadeBy = "tollgate.dev/made-by"
	// ProgramCommandLine is the value of LabelMadeBy for objects that kubectl tollgate
	// created.
	ProgramCommandLine = "kubectl-tollgate"
	// AnnotationAuthor is the annotation with the name of the user who ran the command.
	AnnotationAuthor = "tollgate.dev/author"
)
