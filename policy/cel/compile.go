package cel

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"k8s.io/apiserver/pkg/cel/environment"
)

// maxLength is the longest text that is compiled, in bytes. What it may hold is bounded
// too (tooLarge): the worst takes a quarter of a second, and the longest that people
// write a few milliseconds.
const maxLength = 16384

// Program is a compiled expression. It does not change and is safe for concurrent
// use.
type Program struct {
	env  *cel.Env
	ast  *cel.Ast
	uses Uses
	// plans return what evaluates the expression within each of the limits, made when
	// it is first needed: it holds three times the memory of all the rest, and most
	// policies of a large cluster are never asked.
	plans [len(limits)]func() (cel.Program, error)
}

// Compile compiles text for a place. The error is an *Error. It takes about 0.2 ms,
// so programs are to be kept. Text is taken as it may have been stored by a later
// Tollgate; what is being written is for Validate to judge.
func Compile(place Place, text string, result Type) (*Program, error) {
	return compile(environmentOf(place, environment.StoredExpressions), text, result)
}

func compile(env *cel.Env, text string, result Type) (*Program, error) {
	if problem := unreadable(text); problem != "" {
		return nil, &Error{Problem: problem}
	}
	parsed, issues := env.Parse(text)
	if issues.Err() != nil {
		return nil, firstOf(issues.Errors(), text, env)
	}
	if err := tooLarge(env, parsed.NativeRep()); err != nil {
		return nil, err
	}
	ast, issues := env.Check(parsed)
	if issues.Err() != nil {
		return nil, firstOf(issues.Errors(), text, env)
	}
	if want := result.cel(); !ast.OutputType().IsExactType(want) {
		return nil, &Error{Problem: fmt.Sprintf("has to be a %s, and is a %s%s", result, cel.FormatCELType(ast.OutputType()), result.hint(ast.OutputType()))}
	}
	p := &Program{env: env, ast: ast, uses: usesOf(ast)}
	if _, err := p.within(costPerExpression); err != nil {
		return nil, &Error{Problem: short(err.Error())} // a constant that makes no sense, such as a pattern
	}
	for level, limit := range limits {
		p.plans[level] = sync.OnceValues(func() (cel.Program, error) { return p.within(limit) })
	}
	return p, nil
}

// RequesterDependent reports whether the result depends on who sent the request.
func (p *Program) RequesterDependent() bool { return p.uses.Requester }

// Uses returns what the expression reads.
func (p *Program) Uses() Uses { return p.uses }

// within plans an evaluation that ends at a cost.
func (p *Program) within(cost uint64) (cel.Program, error) {
	return p.env.Program(p.ast,
		cel.CostLimit(cost),
		cel.CostTracking(&costs{}),
		cel.CustomDecoratorV2(bounded(p.env)),
		cel.InterruptCheckFrequency(checkFrequency),
	)
}

func (t Type) cel() *cel.Type {
	if t == String {
		return cel.StringType
	}
	return cel.BoolType
}

// hint says how to make what is not known to be of the type a value of it.
func (t Type) hint(is *cel.Type) string {
	if is.Kind() != cel.DynType.Kind() {
		return ""
	}
	return fmt.Sprintf(": compare it with something, or write %s(...) around it", t)
}

// unreadable returns why text is not even looked at.
func unreadable(text string) string {
	switch {
	case strings.TrimSpace(text) == "":
		return "is empty"
	case len(text) > maxLength:
		return fmt.Sprintf("is %d bytes long, of which %d are allowed", len(text), maxLength)
	case !utf8.ValidString(text):
		return "is not UTF-8"
	default:
		return ""
	}
}

// firstOf returns the first error in the text, and says how many more there are.
func firstOf(all []*common.Error, text string, env *cel.Env) *Error {
	first := slices.MinFunc(all, func(a, b *common.Error) int {
		return cmp.Or(cmp.Compare(a.Location.Line(), b.Location.Line()), cmp.Compare(a.Location.Column(), b.Location.Column()))
	})
	problem := short(strings.TrimSuffix(first.Message, " (in container '')"))
	if strings.HasPrefix(problem, "undeclared reference") && !isCall(text, first.Location) {
		problem += "; seen here are " + visible(env)
	}
	if more := len(all) - 1; more > 0 {
		problem += fmt.Sprintf(" (and %d more)", more)
	}
	if first.Location.Line() < 1 || first.Location.Column() < 0 {
		return &Error{Problem: problem}
	}
	return &Error{Line: first.Location.Line(), Column: first.Location.Column() + 1, Problem: problem}
}

// isCall reports whether a location is that of a call, which is where it opens.
func isCall(text string, at common.Location) bool {
	lines := strings.Split(text, "\n")
	if at.Line() < 1 || at.Line() > len(lines) {
		return false
	}
	line := []rune(lines[at.Line()-1])
	return at.Column() >= 0 && at.Column() < len(line) && line[at.Column()] == '('
}

// short returns a message in a line that fits into a status or a denial: messages of
// CEL hold what users wrote.
func short(message string) string {
	const most = 300
	message = strings.Join(strings.Fields(message), " ")
	if len(message) <= most {
		return message
	}
	cut := most
	for !utf8.RuneStart(message[cut]) {
		cut--
	}
	return message[:cut] + "..."
}
