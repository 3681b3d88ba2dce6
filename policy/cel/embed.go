package cel

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
)

// Embedded is an expression of a policy as it reads in an expression that the API server
// evaluates. There toleration and taint are maps which hold the default of each field that
// is not set, and beside each field of text whether it is set, under the name that SetName
// returns.
type Embedded struct {
	Text string
	Uses Uses
	// Names are the variables that the text reads, sorted.
	Names []string
}

// Reads reports whether the text reads a variable.
func (e *Embedded) Reads(name string) bool { return slices.Contains(e.Names, name) }

// Sets reports whether the text asks whether a field is set.
func (e *Embedded) Sets(field string) bool { return strings.Contains(e.Text, "."+SetName(field)) }

// SetName is where a map says whether a field is set.
func SetName(field string) string { return "set_" + field }

// textFields are the fields that have a default where they are not set.
var textFields = []string{"key", "operator", "value", "effect"}

// given are the variables whose names a macro must not take: those of objects, and those that only
// Tollgate's expressions see.
var given = []string{admissioncel.ObjectVarName, admissioncel.OldObjectVarName, tolerationVar, taintVar, operationVar, podVar, claimVar}

// setMacro finds the questions whether a field with a default is set. A field without one is there, or
// it is not.
var setMacro = regexp.MustCompile(`\bhas\s*\(\s*(toleration|taint)\s*\.\s*(` + strings.Join(textFields, "|") + `)\s*\)`)

// Embed returns the expression as the API server can evaluate it. The error says why it
// cannot.
func Embed(place Place, text string, result Type) (Embedded, error) {
	program, err := Compile(place, text, result)
	if err != nil {
		return Embedded{}, err
	}
	env, embedded := environments()[place].StoredExpressionsEnv(), Embedded{Text: setMacro.ReplaceAllString(text, "$1."+SetName("$2")), Uses: program.uses}
	before, _ := env.Parse(text) // It was compiled, so it has no issues.
	parsed, issues := env.Parse(embedded.Text)
	if issues.Err() != nil {
		return Embedded{}, fmt.Errorf("read what replaces has(): %w", issues.Err())
	}
	for _, e := range nodesOf(before, ast.LiteralKind) {
		if literal, ok := e.AsLiteral().(types.String); ok && setMacro.MatchString(string(literal)) {
			return Embedded{}, fmt.Errorf("the string %q in it has a has() that would be replaced", literal)
		}
	}
	embedded.Names, err = namesIn(parsed)
	return embedded, err
}

// namesIn returns the variables of an expression that is parsed, and not checked: a dot before a
// variable is still there. The error is the first thing that the API server cannot evaluate: a macro
// that calls its own variable like one that the expression is given, of which the text does not show
// which is meant; a toleration or a taint that is more than its fields; a question whether a field is
// set that setMacro did not find.
func namesIn(parsed *cel.Ast) ([]string, error) {
	for _, e := range nodesOf(parsed, ast.ComprehensionKind) {
		for _, name := range []string{e.AsComprehension().IterVar(), e.AsComprehension().IterVar2()} {
			if slices.Contains(given, name) {
				return nil, fmt.Errorf("a macro in it calls its own variable %s", name)
			}
		}
	}
	var names []string
	var notFound error
	for _, e := range nodesOf(parsed, ast.IdentKind) {
		name := e.AsIdent()
		names = append(names, name)
		if plain, dotted := strings.CutPrefix(name, "."); dotted {
			return nil, fmt.Errorf("write %s without the dot before it", plain)
		}
		if name != tolerationVar && name != taintVar {
			continue
		}
		parent, ok := e.Parent()
		if !ok || parent.Kind() != ast.SelectKind {
			return nil, fmt.Errorf("it uses %s as a whole, of which the API server knows fields alone", name)
		}
		if field := parent.AsSelect().FieldName(); parent.AsSelect().IsTestOnly() && slices.Contains(textFields, field) {
			notFound = cmp.Or(notFound, fmt.Errorf("has() was not found in the text: write has(%s.%s), without anything in between", name, field))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), notFound
}
