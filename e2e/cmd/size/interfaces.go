package main

import (
	"cmp"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// typeName is the name of a type declared in the repository, or elsewhere.
type typeName struct{ pkg, name string }

// declared is what is known of a type.
type declared struct {
	// methods are signatures by name: those of the type or of its pointer.
	methods map[string]string
	// embedded are the types whose methods it has as well.
	embedded []typeName
	// isInterface tells an interface from other types.
	isInterface bool
	// isAlias tells another name of a type from a type.
	isAlias bool
	// isLeftOut tells a type with type parameters, or a constraint.
	isLeftOut bool
}

// declarations are the types of the repository, by name.
type declarations map[typeName]*declared

func declaredTypes(files []*file) declarations {
	all := declarations{}
	for _, f := range files {
		if f.test {
			continue
		}
		s := scopeOf(f)
		for _, decl := range f.syntax.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				all.addMethod(s, decl)
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					if spec, ok := spec.(*ast.TypeSpec); ok {
						all.addType(s, spec)
					}
				}
			}
		}
	}
	return all
}

// get returns what is known of a type, of which methods may be found before it is.
func (all declarations) get(name typeName) *declared {
	if all[name] == nil {
		all[name] = &declared{methods: map[string]string{}}
	}
	return all[name]
}

func (all declarations) addMethod(s scope, fn *ast.FuncDecl) {
	if fn.Recv == nil || len(fn.Recv.List) != 1 {
		return
	}
	if name, ok := s.nameOf(fn.Recv.List[0].Type); ok {
		all.get(name).methods[fn.Name.Name] = s.signature(fn.Type)
	}
}

func (all declarations) addType(s scope, spec *ast.TypeSpec) {
	d := all.get(typeName{s.pkg, spec.Name.Name})
	d.isAlias, d.isLeftOut = spec.Assign.IsValid(), spec.TypeParams != nil
	switch syntax := spec.Type.(type) {
	case *ast.InterfaceType:
		d.isInterface = true
		all.addInterface(s, d, syntax)
	case *ast.StructType:
		for _, field := range syntax.Fields.List {
			if len(field.Names) == 0 {
				d.embed(s, field.Type)
			}
		}
	default:
		if d.isAlias {
			d.embed(s, syntax) // An alias has the methods of the type that it stands for.
		}
	}
}

func (all declarations) addInterface(s scope, d *declared, syntax *ast.InterfaceType) {
	for _, field := range syntax.Methods.List {
		switch element := field.Type.(type) {
		case *ast.FuncType:
			for _, name := range field.Names {
				d.methods[name.Name] = s.signature(element)
			}
		case *ast.Ident, *ast.SelectorExpr:
			d.embed(s, element)
		default:
			d.isLeftOut = true
		}
	}
}

func (d *declared) embed(s scope, expr ast.Expr) {
	if name, ok := s.nameOf(expr); ok {
		d.embedded = append(d.embedded, name)
	}
}

// methodsOf returns all methods of a type, and whether all are known: those of types from
// elsewhere are not.
func (all declarations) methodsOf(name typeName, seen ...typeName) (map[string]string, bool) {
	d := all[name]
	if d == nil || slices.Contains(seen, name) {
		return nil, d != nil
	}
	methods, known := map[string]string{}, true
	for _, embedded := range d.embedded {
		promoted, ok := all.methodsOf(embedded, append(seen, name)...)
		known = known && ok
		maps.Copy(methods, promoted)
	}
	maps.Copy(methods, d.methods)
	return methods, known
}

// withOneImplementation returns the interfaces that exactly one type implements, sorted.
func (all declarations) withOneImplementation() []typeName {
	implementations := map[typeName]map[string]string{}
	for name, d := range all {
		if !d.isInterface && !d.isAlias {
			implementations[name], _ = all.methodsOf(name)
		}
	}
	var found []typeName
	for name, d := range all {
		if !d.isInterface || d.isLeftOut {
			continue
		}
		wanted, known := all.methodsOf(name)
		if !known || len(wanted) == 0 {
			continue
		}
		var count int
		for _, methods := range implementations {
			if implements(methods, wanted) {
				count++
			}
		}
		if count == 1 {
			found = append(found, name)
		}
	}
	slices.SortFunc(found, func(a, b typeName) int { return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.name, b.name)) })
	return found
}

func implements(methods, wanted map[string]string) bool {
	for name, signature := range wanted {
		if methods[name] != signature {
			return false
		}
	}
	return true
}

// scope is what names in a file mean.
type scope struct {
	pkg string
	// imports are import paths by the names that the file has for them.
	imports map[string]string
}

func scopeOf(f *file) scope {
	s := scope{pkg: f.pkg, imports: map[string]string{}}
	for _, spec := range f.syntax.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // The parser accepts none of these.
		}
		name := guessName(imported)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		s.imports[name] = imported
	}
	return s
}

// guessName returns the name of a package by its import path, without a major version.
func guessName(imported string) string {
	base, _, _ := strings.Cut(path.Base(imported), ".v")
	version, found := strings.CutPrefix(base, "v")
	if major, err := strconv.Atoi(version); found && err == nil && major > 1 {
		return path.Base(path.Dir(imported))
	}
	return base
}

// pathOf returns the import path of the package with a name, or the name where that is not known.
func (s scope) pathOf(name string) string {
	return cmp.Or(s.imports[name], name)
}

// nameOf returns the name of the type that an expression names, also through a pointer.
func (s scope) nameOf(expr ast.Expr) (typeName, bool) {
	switch expr := expr.(type) {
	case *ast.Ident:
		return typeName{s.pkg, expr.Name}, types.Universe.Lookup(expr.Name) == nil
	case *ast.StarExpr:
		return s.nameOf(expr.X)
	case *ast.ParenExpr:
		return s.nameOf(expr.X)
	case *ast.IndexExpr:
		return s.nameOf(expr.X)
	case *ast.IndexListExpr:
		return s.nameOf(expr.X)
	case *ast.SelectorExpr:
		if of, ok := expr.X.(*ast.Ident); ok {
			return typeName{s.pathOf(of.Name), expr.Sel.Name}, true
		}
	}
	return typeName{}, false
}

// signature returns the types of parameters and results as text.
func (s scope) signature(fn *ast.FuncType) string {
	return "(" + s.fields(fn.Params) + ")(" + s.fields(fn.Results) + ")"
}

func (s scope) fields(list *ast.FieldList) string {
	if list == nil {
		return ""
	}
	var all []string
	for _, field := range list.List {
		text := s.text(field.Type)
		for range max(1, len(field.Names)) {
			all = append(all, text)
		}
	}
	return strings.Join(all, ",")
}

// text returns a type as text, with import paths for the names of packages.
func (s scope) text(expr ast.Expr) string {
	switch expr := expr.(type) {
	case *ast.Ident:
		if expr.Name == "any" {
			return "interface{}"
		}
		if types.Universe.Lookup(expr.Name) != nil {
			return expr.Name
		}
		return s.pkg + "." + expr.Name
	case *ast.SelectorExpr:
		if of, ok := expr.X.(*ast.Ident); ok {
			return s.pathOf(of.Name) + "." + expr.Sel.Name
		}
	case *ast.StarExpr:
		return "*" + s.text(expr.X)
	case *ast.ParenExpr:
		return s.text(expr.X)
	case *ast.Ellipsis:
		return "..." + s.text(expr.Elt)
	case *ast.IndexExpr:
		return s.text(expr.X) + "[" + s.text(expr.Index) + "]"
	}
	return s.composite(expr)
}

// composite returns a type that consists of others as text.
func (s scope) composite(expr ast.Expr) string {
	switch expr := expr.(type) {
	case *ast.ArrayType:
		if expr.Len != nil {
			return "[" + types.ExprString(expr.Len) + "]" + s.text(expr.Elt)
		}
		return "[]" + s.text(expr.Elt)
	case *ast.MapType:
		return "map[" + s.text(expr.Key) + "]" + s.text(expr.Value)
	case *ast.ChanType:
		return direction(expr.Dir) + s.text(expr.Value)
	case *ast.FuncType:
		return "func" + s.signature(expr)
	case *ast.IndexListExpr:
		var args []string
		for _, index := range expr.Indices {
			args = append(args, s.text(index))
		}
		return s.text(expr.X) + "[" + strings.Join(args, ",") + "]"
	}
	return types.ExprString(expr)
}

func direction(dir ast.ChanDir) string {
	switch dir {
	case ast.SEND:
		return "chan<- "
	case ast.RECV:
		return token.ARROW.String() + "chan "
	default:
		return "chan "
	}
}
