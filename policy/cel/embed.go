package cel

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"k8s.io/apimachinery/pkg/util/sets"
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

// Sets reports whether the text asks for what SetName returned.
func (e *Embedded) Sets(name string) bool { return strings.Contains(e.Text, "."+name) }

// SetName is where a map says whether a field is set.
func SetName(field string) string { return "set_" + field }

// textFields are the fields that have a default where they are not set.
var textFields = []string{"key", "operator", "value", "effect"}

// ours are the variables that only Tollgate's expressions see.
var ours = []string{tolerationVar, taintVar, operationVar, podVar, claimVar}

// setMacro finds the questions whether a field is set.
var setMacro = regexp.MustCompile(`\bhas\s*\(\s*(toleration|taint)\s*\.\s*([A-Za-z]+)\s*\)`)

// Embed returns the expression as the API server can evaluate it. The error says why it
// cannot.
func Embed(place Place, text string, result Type) (Embedded, error) {
	program, err := Compile(place, text, result)
	if err != nil {
		return Embedded{}, err
	}
	parsed, issues := environments()[place].StoredExpressionsEnv().Parse(text)
	if issues.Err() != nil {
		return Embedded{}, fmt.Errorf("read the expression: %w", issues.Err())
	}
	names, err := namesIn(parsed)
	if err != nil {
		return Embedded{}, err
	}
	embedded := Embedded{Text: withSetNames(text), Uses: program.uses, Names: slices.Sorted(maps.Keys(names))}
	return embedded, noSetMacro(place, embedded.Text)
}

// withSetNames replaces the questions whether a field with a default is set. A field without
// one is there, or it is not.
func withSetNames(text string) string {
	return setMacro.ReplaceAllStringFunc(text, func(macro string) string {
		parts := setMacro.FindStringSubmatch(macro)
		if !slices.Contains(textFields, parts[2]) {
			return macro
		}
		return parts[1] + "." + SetName(parts[2])
	})
}

// noSetMacro returns an error if a question is left that was not found in the text.
func noSetMacro(place Place, text string) error {
	parsed, issues := environments()[place].StoredExpressionsEnv().Parse(text)
	if issues.Err() != nil {
		return fmt.Errorf("read what replaces has(): %w", issues.Err())
	}
	for _, e := range ast.MatchDescendants(ast.NavigateAST(parsed.NativeRep()), ast.KindMatcher(ast.SelectKind)) {
		field, of := e.AsSelect().FieldName(), e.AsSelect().Operand()
		if e.AsSelect().IsTestOnly() && of.Kind() == ast.IdentKind && slices.Contains([]string{tolerationVar, taintVar}, of.AsIdent()) &&
			slices.Contains(textFields, field) {
			return fmt.Errorf("has() was not found in the text: write has(%s.%s), without anything in between", of.AsIdent(), field)
		}
	}
	return nil
}

// namesIn returns the variables of an expression that is parsed, and not checked: a dot before a
// variable is still there. The error is the first thing that the API server cannot evaluate: a
// toleration and a taint are no more than their fields.
func namesIn(parsed *cel.Ast) (sets.Set[string], error) {
	root := ast.NavigateAST(parsed.NativeRep())
	for _, e := range ast.MatchDescendants(root, ast.KindMatcher(ast.ComprehensionKind)) {
		if err := shadows(e.AsComprehension()); err != nil {
			return nil, err
		}
	}
	names := sets.New[string]()
	for _, e := range ast.MatchDescendants(root, ast.KindMatcher(ast.IdentKind)) {
		name := e.AsIdent()
		if plain, dotted := strings.CutPrefix(name, "."); dotted {
			return nil, fmt.Errorf("write %s without the dot before it", plain)
		}
		if parent, ok := e.Parent(); (name == tolerationVar || name == taintVar) && (!ok || parent.Kind() != ast.SelectKind) {
			return nil, fmt.Errorf("it uses %s as a whole, of which the API server knows fields alone", name)
		}
		names.Insert(name)
	}
	return names, nil
}

// shadows returns an error where a macro calls its own variable like one that the
// expression is given: which is meant is not to be seen in the text.
func shadows(c ast.ComprehensionExpr) error {
	given := append([]string{admissioncel.ObjectVarName, admissioncel.OldObjectVarName}, ours...)
	for _, name := range []string{c.IterVar(), c.IterVar2()} {
		if slices.Contains(given, name) {
			return fmt.Errorf("a macro in it calls its own variable %s", name)
		}
	}
	return nil
}
