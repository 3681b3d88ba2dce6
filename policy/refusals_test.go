package policy_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The test of docs/refusals.md reads the source, so that a refusal cannot be added
// without saying what its user is to do.

const (
	root     = ".."
	document = "docs/refusals.md"
)

// unreasoned are the functions that make a finding whose reason their callers set.
var unreasoned = map[string]string{
	"policy/toleration/findings.go:blank": "each of its callers gives the finding another reason",
}

func TestEveryReasonIsExplainedAndNoOther(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, document))
	require.NoError(t, err)
	sections := regexp.MustCompile(`(?m)^### `).Split(string(content), -1)[1:]
	var explained []string
	for _, section := range sections {
		title, text, found := strings.Cut(section, "\n")
		require.True(t, found, title)
		require.Contains(t, text, "What to do", "%s does not say what to do about %s", document, title)
		explained = append(explained, title)
	}
	reasons := declaredReasons(t)
	require.ElementsMatch(t, reasons, explained, "the reasons of policy/reasons.go and the sections of %s", document)
}

func TestEveryReasonIsGivenSomewhere(t *testing.T) {
	given := map[string]bool{}
	eachFile(t, func(path string, file *ast.File) {
		if path == "policy/reasons.go" {
			return
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if selector, ok := node.(*ast.SelectorExpr); ok && isPackage(selector.X, "policy") {
				given[selector.Sel.Name] = true
			}
			return true
		})
	})
	for _, reason := range declaredReasons(t) {
		require.True(t, given[reason], "nothing is refused for reason %s", reason)
	}
}

func TestEveryFindingHasAReason(t *testing.T) {
	found := 0
	eachFile(t, func(path string, file *ast.File) {
		for _, declaration := range file.Decls {
			name := path
			if function, ok := declaration.(*ast.FuncDecl); ok {
				name += ":" + function.Name.Name
			}
			for _, literal := range findingsIn(declaration) {
				found++
				if !setsReason(literal) {
					require.Contains(t, unreasoned, name, "%s makes a finding without a reason", name)
				}
			}
		}
	})
	require.Greater(t, found, 15, "the test does not see the findings")
}

// declaredReasons returns the constants of type Reason; each is called what it says.
func declaredReasons(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "reasons.go", nil, 0)
	require.NoError(t, err)
	var reasons []string
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		literal, ok := spec.Values[0].(*ast.BasicLit)
		require.True(t, ok, spec.Names[0].Name)
		value, err := strconv.Unquote(literal.Value)
		require.NoError(t, err)
		require.Equal(t, value, spec.Names[0].Name)
		reasons = append(reasons, value)
		return true
	})
	require.NotEmpty(t, reasons)
	return reasons
}

// eachFile calls see with every file of the program, tests left out.
func eachFile(t *testing.T, see func(path string, file *ast.File)) {
	t.Helper()
	for _, dir := range []string{"policy", "webhook", "controllers", "cmd", "evictor", "tracker"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			path, err = filepath.Rel(root, path)
			see(filepath.ToSlash(path), file)
			return err
		})
		require.NoError(t, err)
	}
}

// findingsIn returns the composite literals of findings, those in lists of findings
// too.
func findingsIn(node ast.Node) []*ast.CompositeLit {
	var found []*ast.CompositeLit
	ast.Inspect(node, func(node ast.Node) bool {
		literal, ok := node.(*ast.CompositeLit)
		if !ok {
			return true
		}
		candidates := []ast.Expr{}
		if isFinding(literal.Type) {
			candidates = append(candidates, literal)
		}
		if list, ok := literal.Type.(*ast.ArrayType); ok && isFinding(list.Elt) {
			candidates = append(candidates, literal.Elts...)
		}
		for _, candidate := range candidates {
			if c, ok := candidate.(*ast.CompositeLit); ok && says(c) && !slices.Contains(found, c) {
				found = append(found, c)
			}
		}
		return true
	})
	return found
}

// isFinding reports whether a type is policy.Finding, as other packages write it.
func isFinding(expr ast.Expr) bool {
	selector, ok := expr.(*ast.SelectorExpr)
	return ok && isPackage(selector.X, "policy") && selector.Sel.Name == "Finding"
}

func isPackage(expr ast.Expr, name string) bool {
	ident, ok := expr.(*ast.Ident)
	return ok && ident.Name == name
}

// says reports whether a finding says anything: one of which only the actions are set is
// made to ask it what they lead to.
func says(literal *ast.CompositeLit) bool {
	return slices.ContainsFunc(literal.Elts, func(element ast.Expr) bool {
		pair, ok := element.(*ast.KeyValueExpr)
		return !ok || !isPackage(pair.Key, "Actions")
	})
}

func setsReason(literal *ast.CompositeLit) bool {
	return slices.ContainsFunc(literal.Elts, func(element ast.Expr) bool {
		pair, ok := element.(*ast.KeyValueExpr)
		return ok && isPackage(pair.Key, "Reason")
	})
}
