package cel

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
	"weak"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"k8s.io/apimachinery/pkg/util/version"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
)

// maxLength is the longest text that is compiled, in bytes. Its content is bounded
// too (tooLarge): the worst takes a quarter of a second, and the longest that people
// write a few milliseconds.
const maxLength = 16384

// Program is a compiled expression. It does not change and is safe for concurrent
// use.
type Program struct {
	env  *cel.Env
	ast  *cel.Ast
	uses Uses
	// projections are what it reads of each variable.
	projections map[string]projection
	// plans return the evaluators of the expression within each of the limits, made when
	// first needed: one takes three times the memory of all the rest, and most
	// policies of a large cluster are never evaluated.
	plans [len(limits)]func() (cel.Program, error)
}

// source identifies a program: equal sources compile to programs with equal results.
type source struct {
	place  Place
	result Type
	text   string
}

// programs holds a weak.Pointer[Program] for each source whose program is in use. The garbage
// collector removes programs that no policy uses any more.
var programs sync.Map

// Compile compiles text for a place. The error is an *Error. Equal texts share one program,
// and so one result in each review. A new text takes about 0.2 ms, so programs are to be kept.
// Text may have been stored by a later Tollgate; Validate judges a text that is being written.
func Compile(place Place, text string, result Type) (*Program, error) {
	key := source{place, result, text}
	if kept, ok := programs.Load(key); ok {
		if p := kept.(weak.Pointer[Program]).Value(); p != nil {
			return p, nil
		}
	}
	p, err := compile(environments()[place].StoredExpressionsEnv(), text, result)
	if err != nil {
		return nil, err
	}
	pointer := weak.Make(p)
	programs.Store(key, pointer) // of two that compile at the same time, the later one stays
	runtime.AddCleanup(p, func(key source) { programs.CompareAndDelete(key, pointer) }, key)
	return p, nil
}

func compile(env *cel.Env, text string, result Type) (*Program, error) {
	switch {
	case strings.TrimSpace(text) == "":
		return nil, &Error{problem: "is empty"}
	case len(text) > maxLength:
		return nil, &Error{problem: fmt.Sprintf("is %d bytes long, of which %d are allowed", len(text), maxLength)}
	case !utf8.ValidString(text):
		return nil, &Error{problem: "is not UTF-8"}
	}
	parsed, issues := env.Parse(text)
	if issues.Err() != nil {
		return nil, firstOf(issues, text, env)
	}
	if err := tooLarge(env, parsed.NativeRep()); err != nil {
		return nil, err
	}
	ast, issues := env.Check(parsed)
	if issues.Err() != nil {
		return nil, firstOf(issues, text, env)
	}
	if is := ast.OutputType(); !is.IsExactType(result) {
		wanted := cel.FormatCELType(result)
		problem := "has to be a " + wanted + ", and is a " + cel.FormatCELType(is)
		if is.Kind() == cel.DynKind {
			problem += ": compare it with something, or write " + wanted + "(...) around it"
		}
		return nil, &Error{problem: problem}
	}
	reads := projectionsOf(ast)
	p := &Program{env: env, ast: ast, uses: usesOf(reads), projections: reads}
	if _, err := p.within(costPerExpression); err != nil {
		return nil, &Error{problem: short(err.Error())} // a constant that makes no sense, such as a pattern
	}
	for level, limit := range limits {
		p.plans[level] = sync.OnceValues(func() (cel.Program, error) { return p.within(limit) })
	}
	return p, nil
}

// Uses returns what the expression reads.
func (p *Program) Uses() Uses { return p.uses }

// within plans an evaluation that ends at a cost.
func (p *Program) within(cost uint64) (cel.Program, error) {
	return p.env.Program(p.ast,
		cel.CostLimit(cost),
		cel.CostTracking(&costs{}),
		cel.CustomDecoratorV2(bounds{p.env, cost}.decorate),
		cel.InterruptCheckFrequency(checkFrequency),
	)
}

// firstOf returns the first error in the text, and says how many more there are. For a misspelt variable
// it lists those that an expression sees.
func firstOf(issues *cel.Issues, text string, env *cel.Env) *Error {
	all := issues.Errors()
	first := slices.MinFunc(all, func(a, b *common.Error) int {
		return cmp.Or(a.Location.Line()-b.Location.Line(), a.Location.Column()-b.Location.Column())
	})
	problem := short(strings.TrimSuffix(first.Message, " (in container '')"))
	if strings.HasPrefix(problem, "undeclared reference") {
		line, found := common.NewTextSource(text).Snippet(first.Location.Line())
		if !found || !strings.HasPrefix(string([]rune(line)[first.Location.Column():]), "(") { // which is where a call opens
			var seen []string
			for _, v := range env.Variables() {
				if !strings.Contains(v.Name(), ".") && v.Type().Kind() != cel.TypeKind {
					seen = append(seen, v.Name())
				}
			}
			slices.Sort(seen)
			problem += "; seen here are " + strings.Join(seen, ", ")
		}
	}
	if more := len(all) - 1; more > 0 {
		problem += fmt.Sprintf(" (and %d more)", more)
	}
	return &Error{first.Location, problem}
}

// short returns a message in a line that fits into a status or a denial: messages of
// CEL hold what users wrote.
func short(message string) string {
	const most = 300
	message = strings.Join(strings.Fields(message), " ")
	if len(message) <= most {
		return message
	}
	return strings.ToValidUTF8(message[:most], "") + "..." // without the letter that was cut
}

// Variables beside those of a ValidatingAdmissionPolicy.
const (
	tolerationVar = "toleration"
	taintVar      = "taint"
	operationVar  = "operation"
	podVar        = "pod"
	claimVar      = "claim"
)

// oldest is the Kubernetes whose CEL a newly written expression may use: an accepted
// expression runs on every supported Kubernetes, and the Tollgate before this one reads
// it. Upstream goes back one version, which in 1.37 makes
// no difference. Stored expressions may use all that this version knows.
var oldest = version.MajorMinor(1, 34)

// checkFrequency is the number of steps of a loop between looks at the context.
// Upstream looks at every hundredth; here a step may have to compare two large
// objects, and a look costs nanoseconds.
const checkFrequency = 8

// environments builds the environments when the first expression needs one: that of Kubernetes, with the
// additions of each place.
var environments = sync.OnceValue(func() (sets [OfRequest + 1]*environment.EnvSet) {
	for place := range sets {
		request, namespace := admissioncel.BuildRequestType(), admissioncel.BuildNamespaceType()
		types := []*apiservercel.DeclType{request, namespace}
		variables := map[string]*cel.Type{
			admissioncel.ObjectVarName:                    cel.DynType,
			admissioncel.OldObjectVarName:                 cel.DynType,
			admissioncel.RequestVarName:                   request.CelType(),
			admissioncel.NamespaceVarName:                 namespace.CelType(),
			admissioncel.AuthorizerVarName:                library.AuthorizerType,
			admissioncel.RequestResourceAuthorizerVarName: library.ResourceCheckType,
		}
		switch Place(place) {
		case OfToleration:
			types = append(types, tolerationType)
			variables[tolerationVar], variables[podVar], variables[claimVar] = tolerationType.CelType(), cel.DynType, cel.DynType
		case OfTaint:
			types = append(types, taintType)
			variables[taintVar], variables[operationVar] = taintType.CelType(), cel.StringType
		case OfRequest:
		}
		options := environment.VersionedOptions{IntroducedVersion: version.MajorMinor(1, 0), DeclTypes: types} // in every version
		for name, of := range variables {
			options.EnvOptions = append(options.EnvOptions, cel.Variable(name, of))
		}
		set, err := environment.MustBaseEnvSet(oldest).Extend(options)
		if err != nil {
			panic("build the CEL environment: " + err.Error()) // a test builds them all
		}
		sets[place] = set
	}
	return sets
})
