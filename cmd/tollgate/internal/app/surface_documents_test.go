package app

import (
	"go/ast"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// documents are the types of the JSON and YAML that commands write or read, by command.
var documents = []struct{ command, folder, root string }{
	{"check", "check", "Report"},
	{"check --tests FILE", "check", "Test"},
	{"devices .devices[]", "devices", "description"},
	{"evictions", "evictions", "list"},
	{"explain claim", "explain", "Claim"},
	{"explain device", "explain", "Device"},
	{"explain node", "explain", "Node"},
	{"explain pod", "explain", "Pod"},
	{"preview", "preview", "document"},
	{"simulate", "preview", "simulation"},
	{"status", "operate", "Status"},
}

// commands is the import path of the commands.
const commands = ownModule + "cmd/kubectl-tollgate/internal/"

// documentOf lists the fields of a document, sorted.
func (all source) documentOf(t *testing.T, folder, root string) *document {
	t.Helper()
	pkg := all[commands+folder]
	require.NotNil(t, pkg, folder)
	declaration, ok := pkg.types[root]
	require.True(t, ok, "%s has no type %s", folder, root)
	d := &document{source: all, comments: map[string]string{}, reached: map[*ast.TypeSpec]bool{}}
	d.add("", typeIn{declaration.spec.Name, scope{file: declaration.file}}, nil)
	slices.Sort(d.lines)
	return d
}

// document lists the fields of a document.
type document struct {
	source
	lines []string
	// comments are the comments of fields by their paths.
	comments map[string]string
	// reached are the types of the repository in the document.
	reached map[*ast.TypeSpec]bool
}

// scope resolves the names in a file.
type scope struct {
	file *sourceFile
	// arguments are the type arguments by type parameter.
	arguments map[string]typeIn
}

// typeIn is a type with the scope of its names.
type typeIn struct {
	expr ast.Expr
	in   scope
}

// add lists a field and its fields. Outer are the enclosing types.
func (d *document) add(name string, of typeIn, outer []*ast.TypeSpec) {
	switch expr := of.expr.(type) {
	case *ast.StarExpr:
		d.add(name, typeIn{expr.X, of.in}, outer)
	case *ast.ArrayType:
		d.add(name+"[]", typeIn{expr.Elt, of.in}, outer)
	case *ast.MapType:
		d.add(name+"{}", typeIn{expr.Value, of.in}, outer)
	case *ast.StructType:
		d.addFields(name, expr, of.in, outer, nil)
	case *ast.IndexExpr:
		d.addNamed(name, expr.X, []ast.Expr{expr.Index}, of.in, outer)
	default:
		d.addNamed(name, expr, nil, of.in, outer)
	}
}

// addNamed lists a field whose type has a name.
func (d *document) addNamed(name string, expr ast.Expr, arguments []ast.Expr, in scope, outer []*ast.TypeSpec) {
	if ident, ok := expr.(*ast.Ident); ok {
		if argument, ok := in.arguments[ident.Name]; ok {
			d.add(name, argument, outer)
			return
		}
	}
	declaration, ok := d.declarationOf(expr, in)
	if !ok {
		d.lines = append(d.lines, name+" "+foreign(expr, in))
		return
	}
	spec := declaration.spec
	d.reached[spec] = true
	if slices.Contains(outer, spec) {
		d.lines = append(d.lines, name+" "+spec.Name.Name+" (see above)")
		return
	}
	inner := scope{declaration.file, map[string]typeIn{}}
	if spec.TypeParams != nil {
		for i, parameter := range names(spec.TypeParams) {
			inner.arguments[parameter] = typeIn{arguments[i], in}
		}
	}
	if basic, ok := spec.Type.(*ast.Ident); ok && basic.Name == "string" {
		text := name + " string"
		switch values := d.valuesOf(declaration.file.pkg, spec.Name.Name); {
		case declaration.file.pkg.path == ownModule+"policy" && spec.Name.Name == "Reason":
			text += ": one of refusals.txt"
		case len(values) > 0:
			text += ": " + strings.Join(values, " | ")
		}
		d.lines = append(d.lines, text)
		return
	}
	d.add(name, typeIn{spec.Type, inner}, append(slices.Clone(outer), spec))
}

// declarationOf finds the declaration of a type of the repository.
func (d *document) declarationOf(expr ast.Expr, in scope) (typeDeclaration, bool) {
	switch expr := expr.(type) {
	case *ast.Ident:
		declaration, ok := in.file.pkg.types[expr.Name]
		return declaration, ok
	case *ast.SelectorExpr:
		if of, ok := expr.X.(*ast.Ident); ok && d.source[in.file.imports[of.Name]] != nil {
			declaration, ok := d.source[in.file.imports[of.Name]].types[expr.Sel.Name]
			return declaration, ok
		}
	}
	return typeDeclaration{}, false
}

// addFields lists the fields of a struct. Embedded fields are promoted unless shadowed.
func (d *document) addFields(prefix string, structure *ast.StructType, in scope, outer []*ast.TypeSpec, hidden []string) {
	var embedded []*ast.Field
	hidden = slices.Clone(hidden)
	for _, field := range structure.Fields.List {
		name, options, _ := strings.Cut(jsonTag(field), ",")
		switch {
		case name == "-":
		case len(field.Names) == 0 && (name == "" || options == "inline"):
			embedded = append(embedded, field)
		case name != "" && !slices.Contains(hidden, name):
			hidden = append(hidden, name)
			path := strings.TrimPrefix(prefix+"."+name, ".")
			d.comments[path] = strings.Join(strings.Fields(field.Doc.Text()), " ")
			d.add(path, typeIn{field.Type, in}, outer)
		}
	}
	for _, field := range embedded {
		declaration, ok := d.declarationOf(field.Type, in)
		if !ok {
			d.lines = append(d.lines, strings.TrimPrefix(prefix+".*", ".")+" "+foreign(field.Type, in))
			continue
		}
		d.reached[declaration.spec] = true
		if inner, ok := declaration.spec.Type.(*ast.StructType); ok {
			d.addFields(prefix, inner, scope{declaration.file, nil}, outer, hidden)
		}
	}
}

func jsonTag(field *ast.Field) string {
	if field.Tag == nil {
		return ""
	}
	tag, err := strconv.Unquote(field.Tag.Value)
	if err != nil {
		return ""
	}
	return reflect.StructTag(tag).Get("json")
}

// foreign returns the name of a type from another module.
func foreign(expr ast.Expr, in scope) string {
	switch expr := expr.(type) {
	case *ast.Ident:
		return expr.Name
	case *ast.SelectorExpr:
		if of, ok := expr.X.(*ast.Ident); ok {
			return in.file.imports[of.Name] + "." + expr.Sel.Name
		}
	}
	return "any"
}
