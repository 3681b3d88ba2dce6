package app

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// ownModule is the import path of the repository's root.
const ownModule = "github.com/tollgate-dev/tollgate/"

// source is the non-test code of the product, by import path.
type source map[string]*sourcePackage

type sourcePackage struct {
	path  string
	files []*sourceFile
	// constants are the expressions of constants with a value.
	constants map[string]constant
	types     map[string]typeDeclaration
	functions []place
}

type sourceFile struct {
	pkg    *sourcePackage
	syntax *ast.File
	// imports are import paths by their names in the file.
	imports map[string]string
}

type constant struct {
	file *sourceFile
	// kind is the name of its type, if declared and of the same package.
	kind  string
	value ast.Expr
}

type typeDeclaration struct {
	file *sourceFile
	spec *ast.TypeSpec
}

// place is the position of an expression: a file, and a function or none.
type place struct {
	file     *sourceFile
	function *ast.FuncDecl
}

// foreignConstants are the Kubernetes constants that Tollgate writes.
var foreignConstants = map[string]string{
	"k8s.io/api/core/v1.DisruptionTarget":                           string(corev1.DisruptionTarget),
	"k8s.io/api/resource/v1.DeviceTaintConditionEvictionInProgress": resourcev1.DeviceTaintConditionEvictionInProgress,
}

func readSource(t *testing.T) source {
	t.Helper()
	all := source{}
	for _, room := range []string{"api", "certs", "cmd", "controllers", "evictor", "policy", "scheduler", "tracker", "webhook"} {
		err := filepath.WalkDir(filepath.Join("../../../..", room), func(name string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.IsDir() && entry.Name() == "testdata" {
				return fs.SkipDir
			}
			if !entry.IsDir() && strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
				all.add(t, name)
			}
			return nil
		})
		require.NoError(t, err)
	}
	return all
}

func (all source) add(t *testing.T, name string) {
	t.Helper()
	syntax, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution|parser.ParseComments)
	require.NoError(t, err)
	all.addFile(syntax, ownModule+strings.TrimPrefix(filepath.ToSlash(filepath.Dir(name)), "../../../../"))
}

func (all source) addFile(syntax *ast.File, at string) {
	pkg := all[at]
	if pkg == nil {
		pkg = &sourcePackage{path: at, constants: map[string]constant{}, types: map[string]typeDeclaration{}}
		all[at] = pkg
	}
	file := &sourceFile{pkg: pkg, syntax: syntax, imports: map[string]string{}}
	pkg.files = append(pkg.files, file)
	for _, spec := range syntax.Imports {
		imported := strings.Trim(spec.Path.Value, `"`)
		switch base := path.Base(imported); {
		case spec.Name != nil:
			file.imports[spec.Name.Name] = imported
		case majorVersion.MatchString(base):
			file.imports[path.Base(path.Dir(imported))] = imported
		default:
			file.imports[base] = imported
		}
	}
	ast.Inspect(syntax, func(node ast.Node) bool {
		if literal, ok := node.(*ast.CompositeLit); ok {
			giveType(literal)
		}
		return true
	})
	for _, decl := range syntax.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			pkg.functions = append(pkg.functions, place{file, decl})
			ast.Inspect(decl, func(node ast.Node) bool {
				if local, ok := node.(*ast.GenDecl); ok {
					file.declare(local)
				}
				return true
			})
		case *ast.GenDecl:
			file.declare(decl)
		}
	}
}

// majorVersion matches a version suffix of an import path.
var majorVersion = regexp.MustCompile(`^v[2-9][0-9]*$`)

// giveType sets the elided type of elements of a literal.
func giveType(literal *ast.CompositeLit) {
	var kind ast.Expr
	switch of := literal.Type.(type) {
	case *ast.ArrayType:
		kind = of.Elt
	case *ast.MapType:
		kind = of.Value
	}
	if pointer, ok := kind.(*ast.StarExpr); ok {
		kind = pointer.X
	}
	for _, element := range literal.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			element = pair.Value
		}
		if inner, ok := element.(*ast.CompositeLit); ok && inner.Type == nil {
			inner.Type = kind
		}
	}
}

// declare adds constants and types, also of functions.
func (file *sourceFile) declare(decl *ast.GenDecl) {
	for _, spec := range decl.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			file.pkg.types[spec.Name.Name] = typeDeclaration{file, spec}
		case *ast.ValueSpec:
			var kind string
			if named, ok := spec.Type.(*ast.Ident); ok {
				kind = named.Name
			}
			for i := range min(len(spec.Names), len(spec.Values)) {
				if decl.Tok == token.CONST {
					file.pkg.constants[spec.Names[i].Name] = constant{file, kind, spec.Values[i]}
				}
			}
		}
	}
}

// text returns the value of an expression made of strings and constants.
func (all source) text(file *sourceFile, expr ast.Expr) (string, bool) {
	switch expr := expr.(type) {
	case *ast.BasicLit:
		value, err := strconv.Unquote(expr.Value)
		return value, err == nil && expr.Kind == token.STRING
	case *ast.ParenExpr:
		return all.text(file, expr.X)
	case *ast.BinaryExpr:
		before, ok := all.text(file, expr.X)
		after, alsoOK := all.text(file, expr.Y)
		return before + after, ok && alsoOK && expr.Op == token.ADD
	case *ast.Ident:
		c, ok := file.pkg.constants[expr.Name]
		if !ok {
			return "", false
		}
		return all.text(c.file, c.value)
	case *ast.SelectorExpr:
		of, ok := expr.X.(*ast.Ident)
		if !ok {
			return "", false
		}
		if value, ok := foreignConstants[file.imports[of.Name]+"."+expr.Sel.Name]; ok {
			return value, true
		}
		if pkg := all[file.imports[of.Name]]; pkg != nil {
			return all.text(pkg.files[0], expr.Sel)
		}
	}
	return "", false
}

// valuesOf returns the values of the constants of a type of strings, sorted.
func (all source) valuesOf(pkg *sourcePackage, kind string) []string {
	var values []string
	for _, c := range pkg.constants {
		if value, ok := all.text(c.file, c.value); ok && c.kind == kind {
			values = append(values, value)
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// sorted returns the packages in the order of their import paths.
func (all source) sorted() []*sourcePackage {
	var list []*sourcePackage
	for _, at := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[at])
	}
	return list
}

// inspect calls a function for each node of a package, with its place.
func (pkg *sourcePackage) inspect(visit func(at place, node ast.Node)) {
	for _, file := range pkg.files {
		for _, decl := range file.syntax.Decls {
			at := place{file: file}
			if function, ok := decl.(*ast.FuncDecl); ok {
				at.function = function
			}
			ast.Inspect(decl, func(node ast.Node) bool {
				if node != nil {
					visit(at, node)
				}
				return true
			})
		}
	}
}
