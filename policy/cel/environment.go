package cel

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
)

// Variables beside those of a ValidatingAdmissionPolicy.
const (
	tolerationVar = "toleration"
	taintVar      = "taint"
	operationVar  = "operation"
	podVar        = "pod"
	claimVar      = "claim"
)

// oldest is the Kubernetes whose CEL a newly written expression has to be content
// with: what is accepted runs on every Kubernetes that is supported, and is read by
// the Tollgate before this one. Upstream goes back one version, which in 1.37 makes
// no difference. Stored expressions may use all that is known.
var oldest = version.MajorMinor(1, 34)

// checkFrequency is the number of steps of a loop between looks at the context.
// Upstream looks at every hundredth; here a step may have to compare two large
// objects, and a look costs nanoseconds.
const checkFrequency = 8

// environments builds the environments when the first expression needs one.
var environments = sync.OnceValue(func() [OfRequest + 1]*environment.EnvSet {
	var sets [OfRequest + 1]*environment.EnvSet
	for place := range sets {
		set, err := environment.MustBaseEnvSet(oldest).Extend(options(Place(place)))
		if err != nil {
			panic("build the CEL environment: " + err.Error()) // a test builds them all
		}
		sets[place] = set
	}
	return sets
})

// environmentOf returns the environment of a place: for expressions that are being
// written, or for those that are stored.
func environmentOf(place Place, written environment.Type) *cel.Env {
	sets := environments()
	if int(place) >= len(sets) {
		panic("no such place: " + strconv.Itoa(int(place)))
	}
	if written == environment.NewExpressions {
		return sets[place].NewExpressionsEnv()
	}
	return sets[place].StoredExpressionsEnv()
}

// options adds to the environment of Kubernetes what a place sees, and how it is
// paid for.
func options(place Place) environment.VersionedOptions {
	request, namespace := admissioncel.BuildRequestType(), admissioncel.BuildNamespaceType()
	o := environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0), // in every version
		EnvOptions: []cel.EnvOption{
			cel.Variable(admissioncel.ObjectVarName, cel.DynType),
			cel.Variable(admissioncel.OldObjectVarName, cel.DynType),
			cel.Variable(admissioncel.RequestVarName, request.CelType()),
			cel.Variable(admissioncel.NamespaceVarName, namespace.CelType()),
			cel.Variable(admissioncel.AuthorizerVarName, library.AuthorizerType),
			cel.Variable(admissioncel.RequestResourceAuthorizerVarName, library.ResourceCheckType),
		},
		DeclTypes: []*apiservercel.DeclType{request, namespace},
	}
	switch place {
	case OfToleration:
		o.DeclTypes = append(o.DeclTypes, tolerationType)
		o.EnvOptions = append(o.EnvOptions,
			cel.Variable(tolerationVar, tolerationType.CelType()),
			cel.Variable(podVar, cel.DynType),
			cel.Variable(claimVar, cel.DynType))
	case OfTaint:
		o.DeclTypes = append(o.DeclTypes, taintType)
		o.EnvOptions = append(o.EnvOptions,
			cel.Variable(taintVar, taintType.CelType()),
			cel.Variable(operationVar, cel.StringType))
	case OfRequest:
	}
	return o
}

// visible lists what an expression sees, for those who misspell it.
func visible(env *cel.Env) string {
	var names []string
	for _, v := range env.Variables() {
		if !strings.Contains(v.Name(), ".") && v.Type().Kind() != cel.TypeType.Kind() {
			names = append(names, v.Name())
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
