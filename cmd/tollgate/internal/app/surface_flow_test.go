package app

import (
	"fmt"
	"go/ast"
	"slices"
)

// flow finds the possible string values of an expression. It matches fields, parameters,
// variables and functions by name, not by type, and so may find too many.
type flow struct {
	source
	found map[string]bool
	// unknown are expressions without a value.
	unknown []string
	seen    map[ast.Expr]bool
}

func newFlow(s source) *flow {
	return &flow{source: s, found: map[string]bool{}, seen: map[ast.Expr]bool{}}
}

// from adds the values of an expression.
func (f *flow) from(at place, expr ast.Expr) {
	if f.seen[expr] {
		return
	}
	f.seen[expr] = true
	if value, ok := f.text(at.file, expr); ok {
		f.found[value] = true
		return
	}
	known := false
	switch expr := expr.(type) {
	case *ast.Ident:
		known = f.fromVariable(at, expr.Name)
	case *ast.SelectorExpr:
		known = f.fromField(at, expr.Sel.Name)
	case *ast.CallExpr:
		known = f.fromCall(at, expr, 0)
	}
	if !known {
		f.unknown = append(f.unknown, fmt.Sprintf("%s: %T %v", at.file.pkg.path, expr, expr))
	}
}

// fromVariable adds the values of a parameter or variable of a function.
func (f *flow) fromVariable(at place, name string) bool {
	if at.function == nil {
		return false
	}
	if i := slices.Index(parameters(at.function.Type), name); i >= 0 {
		var known bool
		at.file.pkg.inspect(func(in place, node ast.Node) {
			if call, ok := node.(*ast.CallExpr); ok && calleeOf(call) == at.function.Name.Name && i < len(call.Args) {
				known = true
				f.from(in, call.Args[i])
			}
		})
		return known
	}
	var known bool
	ast.Inspect(at.function, func(node ast.Node) bool {
		assignment, ok := node.(*ast.AssignStmt)
		if !ok {
			return true
		}
		for i, left := range assignment.Lhs {
			if variable, ok := left.(*ast.Ident); ok && variable.Name == name {
				known = f.fromAssignment(at, assignment, i) || known
			}
		}
		return true
	})
	return known
}

// fromAssignment adds the value assigned to the left side with an index.
func (f *flow) fromAssignment(at place, assignment *ast.AssignStmt, i int) bool {
	if len(assignment.Lhs) == len(assignment.Rhs) {
		f.from(at, assignment.Rhs[i])
		return true
	}
	call, ok := assignment.Rhs[0].(*ast.CallExpr)
	return ok && f.fromCall(at, call, i)
}

// fromField adds the values of the fields with a name in a package, except for known non-strings.
func (f *flow) fromField(at place, name string) bool {
	var known bool
	at.file.pkg.inspect(func(in place, node ast.Node) {
		literal, ok := node.(*ast.CompositeLit)
		if !ok || !mayBeString(in, literal, name) {
			return
		}
		if value := fieldOf(in, literal, name); value != nil {
			known = true
			f.from(in, value)
		}
	})
	return f.fromAssignments(at.file.pkg, name) || known
}

// fromAssignments adds the values assigned to fields with a name in a package.
func (f *flow) fromAssignments(pkg *sourcePackage, name string) bool {
	var known bool
	pkg.inspect(func(in place, node ast.Node) {
		assignment, ok := node.(*ast.AssignStmt)
		if !ok {
			return
		}
		for i, left := range assignment.Lhs {
			if field, ok := left.(*ast.SelectorExpr); ok && field.Sel.Name == name {
				known = f.fromAssignment(in, assignment, i) || known
			}
		}
	})
	return known
}

// fieldOf returns the value of a field in a struct literal, nil for none.
func fieldOf(at place, literal *ast.CompositeLit, name string) ast.Expr {
	for _, element := range literal.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			if key, ok := pair.Key.(*ast.Ident); ok && key.Name == name {
				return pair.Value
			}
		}
	}
	if structure := structOf(at, literal); structure != nil && len(literal.Elts) > 0 {
		_, keyed := literal.Elts[0].(*ast.KeyValueExpr)
		if i := slices.Index(names(structure.Fields), name); !keyed && i >= 0 && i < len(literal.Elts) {
			return literal.Elts[i]
		}
	}
	return nil
}

// structOf returns the struct type of a literal from the same package.
func structOf(at place, literal *ast.CompositeLit) *ast.StructType {
	named, ok := literal.Type.(*ast.Ident)
	if !ok {
		return nil
	}
	declaration, ok := at.file.pkg.types[named.Name]
	if !ok {
		return nil
	}
	structure, _ := declaration.spec.Type.(*ast.StructType)
	return structure
}

// mayBeString reports whether a field of a literal is a string, or its struct is unknown.
func mayBeString(at place, literal *ast.CompositeLit, name string) bool {
	structure := structOf(at, literal)
	if structure == nil {
		return true
	}
	for _, field := range structure.Fields.List {
		if slices.ContainsFunc(field.Names, func(ident *ast.Ident) bool { return ident.Name == name }) {
			kind, ok := field.Type.(*ast.Ident)
			return ok && kind.Name == "string"
		}
	}
	return false
}

// fromCall adds the values of the result with an index.
func (f *flow) fromCall(at place, call *ast.CallExpr, i int) bool {
	name := calleeOf(call)
	if name == "string" && len(call.Args) == 1 {
		f.from(at, call.Args[0])
		return true
	}
	return f.fromResult(at.file.pkg, name, i) || f.fromMethodValue(name, i)
}

// fromResult adds the return values of functions with a name in a package, or in all if it is
// empty.
func (f *flow) fromResult(pkg *sourcePackage, name string, i int) bool {
	packages := []*sourcePackage{pkg}
	if !slices.ContainsFunc(pkg.functions, func(at place) bool { return at.function.Name.Name == name }) {
		packages = f.sorted()
	}
	var known bool
	for _, pkg := range packages {
		for _, at := range pkg.functions {
			if at.function.Name.Name != name || at.function.Body == nil {
				continue
			}
			ast.Inspect(at.function.Body, func(node ast.Node) bool {
				if returned, ok := node.(*ast.ReturnStmt); ok && i < len(returned.Results) {
					known = true
					f.from(at, returned.Results[i])
				}
				_, nested := node.(*ast.FuncLit)
				return !nested
			})
		}
	}
	return known
}

// fromMethodValue adds the return values of functions that are assigned to fields with a name.
func (f *flow) fromMethodValue(name string, i int) bool {
	var known bool
	for _, pkg := range f.sorted() {
		pkg.inspect(func(_ place, node ast.Node) {
			pair, ok := node.(*ast.KeyValueExpr)
			if !ok {
				return
			}
			key, isIdent := pair.Key.(*ast.Ident)
			method, isSelector := pair.Value.(*ast.SelectorExpr)
			if isIdent && isSelector && key.Name == name {
				known = f.fromResult(pkg, method.Sel.Name, i) || known
			}
		})
	}
	return known
}

func calleeOf(call *ast.CallExpr) string {
	switch callee := call.Fun.(type) {
	case *ast.Ident:
		return callee.Name
	case *ast.SelectorExpr:
		return callee.Sel.Name
	}
	return ""
}

func parameters(function *ast.FuncType) []string {
	return names(function.Params)
}

// names returns the names of fields; that of the type for an embedded one.
func names(list *ast.FieldList) []string {
	var all []string
	for _, field := range list.List {
		for _, name := range field.Names {
			all = append(all, name.Name)
		}
		if len(field.Names) == 0 {
			all = append(all, "")
		}
	}
	return all
}
