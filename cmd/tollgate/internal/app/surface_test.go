package app

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
)

// surfaceFolder has a file for each part of the public surface that scripts, dashboards and
// manifests may depend on, with one name per line.
const surfaceFolder = "testdata/surface"

const surfaceChanged = `%s is what scripts, dashboards and manifests of users depend on, and it has changed.
A change of it goes in a commit of its own with a line in CHANGELOG.md. To write it:
go test ./cmd/tollgate/internal/app -run TestTheSurface -update`

func TestTheSurface(t *testing.T) {
	t.Parallel()
	code := readSource(t)
	parts := map[string][]string{
		"commands":      surfaceCommands(),
		"conditions":    surfaceConditions(t, code),
		"configuration": surfaceConfiguration(t, code),
		"documents":     surfaceDocuments(t, code),
		"events":        surfaceEvents(t, code),
		"features":      surfaceFeatures(t),
		"kinds":         surfaceKinds(t),
		"metrics":       surfaceMetrics(t),
		"names":         surfaceNames(code),
		"refusals":      code.valuesOf(code[ownModule+"policy"], "Reason"),
	}
	var files []string
	for part, lines := range parts {
		file := filepath.Join(surfaceFolder, part+".txt")
		files = append(files, file)
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			require.NotEmpty(t, lines)
			text := strings.Join(lines, "\n") + "\n"
			if *update {
				require.NoError(t, os.MkdirAll(surfaceFolder, 0o750))
				require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			}
			written, err := os.ReadFile(file)
			require.NoError(t, err)
			if string(written) != text {
				require.Fail(t, strings.Join(changes(string(written), text), "\n"), surfaceChanged, file)
			}
		})
	}
	written, err := filepath.Glob(filepath.Join(surfaceFolder, "*"))
	require.NoError(t, err)
	if !*update {
		require.ElementsMatch(t, files, written, "each file is that of a part")
	}
}

// changes returns the lines that differ between two texts.
func changes(before, after string) []string {
	gone, added := strings.Split(before, "\n"), strings.Split(after, "\n")
	var all []string
	for _, line := range gone {
		if !slices.Contains(added, line) {
			all = append(all, "- "+line)
		}
	}
	for _, line := range added {
		if !slices.Contains(gone, line) {
			all = append(all, "+ "+line)
		}
	}
	return all
}

// A constant named reason is one of events or of conditions.
func TestNoReasonIsForgotten(t *testing.T) {
	t.Parallel()
	code := readSource(t)
	listed := append(surfaceConditions(t, code), surfaceEvents(t, code)...)
	for _, pkg := range code.sorted() {
		if strings.HasPrefix(pkg.path, ownModule+"cmd/kubectl-tollgate/internal/") {
			continue // Commands read them.
		}
		for name, c := range pkg.constants {
			value, ok := code.text(c.file, c.value)
			if ok && reasonName.MatchString(name) && reasonValue.MatchString(value) {
				require.Contains(t, listed, "reason "+value, "%s of %s: have the test find where it is written", name, pkg.path)
			}
		}
	}
}

var (
	reasonName  = regexp.MustCompile(`^[rR]eason|Reason$`)
	reasonValue = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
)

func surfaceMetrics(t *testing.T) []string {
	t.Helper()
	var lines []string
	for _, m := range describedMetrics(t) {
		lines = append(lines, strings.TrimSpace(m.name+" "+m.kind+" "+strings.Join(m.labels, ",")))
	}
	return lines
}

func surfaceFeatures(t *testing.T) []string {
	t.Helper()
	gates, err := settings.NewFeatureGates(nil)
	require.NoError(t, err)
	var lines []string
	for _, gate := range gates.KnownFeatures() {
		if !strings.HasPrefix(gate, "AllAlpha=") && !strings.HasPrefix(gate, "AllBeta=") { // Each set of gates has these.
			lines = append(lines, gate)
		}
	}
	return lines
}

// surfaceCommands lists the flags of all commands of the server.
func surfaceCommands() []string {
	var lines []string
	var list func(cmd *cobra.Command)
	list = func(cmd *cobra.Command) {
		lines = append(lines, cmd.CommandPath())
		cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			lines = append(lines, fmt.Sprintf("%s --%s %s = %q", cmd.CommandPath(), f.Name, f.Value.Type(), f.DefValue))
		})
		for _, sub := range cmd.Commands() {
			list(sub)
		}
	}
	list(NewCommand())
	return lines
}

// surfaceConfiguration lists the keys of the configuration with their types and defaults.
func surfaceConfiguration(t *testing.T, code source) []string {
	t.Helper()
	pkg := code[ownModule+"api/config/v1alpha1"]
	lines := []string{"apiVersion = " + configv1alpha1.APIVersion, "kind = " + configv1alpha1.Kind}
	var list func(prefix string, value reflect.Value)
	list = func(prefix string, value reflect.Value) {
		for i := range value.NumField() {
			field := value.Type().Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name == "" {
				continue // apiVersion and kind
			}
			key := strings.TrimPrefix(prefix+"."+name, ".")
			set, err := json.Marshal(value.Field(i).Interface())
			require.NoError(t, err)
			if field.Type.Kind() == reflect.Struct && strings.HasPrefix(string(set), "{") {
				list(key, value.Field(i))
				continue
			}
			kind := field.Type.Kind().String()
			if !strings.Contains(field.Type.String(), "v1alpha1.") {
				kind = strings.TrimPrefix(field.Type.String(), "v1.")
			} else if values := code.valuesOf(pkg, field.Type.Name()); len(values) > 0 {
				kind = strings.Join(values, " | ")
			}
			lines = append(lines, fmt.Sprintf("%s %s = %s", key, kind, set))
		}
	}
	list("", reflect.ValueOf(*configv1alpha1.Default()))
	slices.Sort(lines)
	return lines
}

// ownName matches a name in the group of Tollgate or a subdomain.
var ownName = regexp.MustCompile(`^([a-z-]+\.)*tollgate\.dev(/.*)?$`)

// surfaceNames lists annotations, labels and other names in a group of Tollgate.
func surfaceNames(code source) []string {
	found := map[string]bool{}
	for _, pkg := range code.sorted() {
		pkg.inspect(func(at place, node ast.Node) {
			var name string
			ok := true
			switch node := node.(type) {
			case *ast.BasicLit:
				name, ok = code.text(at.file, node)
			case *ast.BinaryExpr:
				name, ok = code.text(at.file, node)
			case *ast.Field:
				name, _, _ = strings.Cut(jsonTag(node), ",")
			}
			if ok && ownName.MatchString(name) {
				found[name] = true
			}
		})
	}
	return slices.Sorted(maps.Keys(found))
}

// surfaceConditions lists the types and reasons of conditions that Tollgate writes.
func surfaceConditions(t *testing.T, code source) []string {
	t.Helper()
	types, reasons := newFlow(code), newFlow(code)
	for _, pkg := range code.sorted() {
		var fillsIn bool
		pkg.inspect(func(at place, node ast.Node) {
			if call, ok := node.(*ast.CallExpr); ok { // of an apply configuration
				switch calleeOf(call) {
				case "WithType":
					types.from(at, call.Args[0])
				case "WithReason":
					reasons.from(at, call.Args[0])
				}
			}
			literal, ok := node.(*ast.CompositeLit)
			if !ok || !isCondition(at, literal.Type) {
				return
			}
			fillsIn = true
			if kind := fieldOf(at, literal, "Type"); kind != nil {
				types.from(at, kind)
			}
			if reason := fieldOf(at, literal, "Reason"); reason != nil {
				reasons.from(at, reason)
			}
		})
		if fillsIn {
			reasons.fromAssignments(pkg, "Reason")
		}
	}
	return append(linesOf(t, "type", types), linesOf(t, "reason", reasons)...)
}

// isCondition reports whether a type is Condition.
func isCondition(at place, expr ast.Expr) bool {
	selector, ok := expr.(*ast.SelectorExpr)
	return ok && foreign(selector, scope{file: at.file}) == "k8s.io/apimachinery/pkg/apis/meta/v1.Condition"
}

// reasonArguments are the indices of the reason among the arguments of functions that write
// events.
var reasonArguments = map[string]int{"Event": 2, "Eventf": 2, "AnnotatedEventf": 3}

// surfaceEvents lists the sources and reasons of the events that Tollgate writes.
func surfaceEvents(t *testing.T, code source) []string {
	t.Helper()
	reasons := newFlow(code)
	for _, pkg := range code.sorted() {
		pkg.inspect(func(at place, node ast.Node) {
			if call, ok := node.(*ast.CallExpr); ok {
				if i, ok := reasonArguments[calleeOf(call)]; ok && len(call.Args) > i {
					reasons.from(at, call.Args[i])
				}
			}
		})
	}
	lines := []string{"source " + deviceEventComponent, "source " + nodeEventComponent, "source " + policyEventComponent}
	return append(lines, linesOf(t, "reason", reasons)...)
}

// linesOf lists the results, and fails if some are unresolved.
func linesOf(t *testing.T, kind string, f *flow) []string {
	t.Helper()
	require.Empty(t, f.unknown, "the test cannot tell what these %ss are", kind)
	delete(f.found, "")
	var lines []string
	for _, value := range slices.Sorted(maps.Keys(f.found)) {
		lines = append(lines, kind+" "+value)
	}
	return lines
}

// surfaceDocuments lists the fields of the JSON and YAML of commands.
func surfaceDocuments(t *testing.T, code source) []string {
	t.Helper()
	var lines []string
	reached, folders := map[*ast.TypeSpec]bool{}, map[string]bool{}
	for _, of := range documents {
		folders[of.folder] = true
		d := code.documentOf(t, of.folder, of.root)
		maps.Copy(reached, d.reached)
		for _, line := range d.lines {
			lines = append(lines, of.command+": "+line)
		}
	}
	for folder := range folders {
		for name, declaration := range code[commands+folder].types {
			structure, ok := declaration.spec.Type.(*ast.StructType)
			if ok && slices.ContainsFunc(structure.Fields.List, func(f *ast.Field) bool { return jsonTag(f) != "" }) {
				require.True(t, reached[declaration.spec] || strings.HasPrefix(name, "sarif"), "%s.%s is in no document: add its document", folder, name)
			}
		}
	}
	return lines
}

// fieldSchema is the part of a CRD schema that is compared.
type fieldSchema struct {
	Type       string                 `json:"type"`
	Format     string                 `json:"format"`
	Properties map[string]fieldSchema `json:"properties"`
	Items      *fieldSchema           `json:"items"`
	Additional *fieldSchema           `json:"additionalProperties"`
	Required   []string               `json:"required"`
	Enum       []any                  `json:"enum"`
	Default    any                    `json:"default"`
	IntOrText  bool                   `json:"x-kubernetes-int-or-string"`
}

// definition is the part of a CRD that is compared.
type definition struct {
	Spec struct {
		Group string `json:"group"`
		Scope string `json:"scope"`
		Names struct {
			Kind       string   `json:"kind"`
			Plural     string   `json:"plural"`
			ShortNames []string `json:"shortNames"`
			Categories []string `json:"categories"`
		} `json:"names"`
		Versions []struct {
			Name    string `json:"name"`
			Columns []struct {
				Name string `json:"name"`
			} `json:"additionalPrinterColumns"`
			Schema struct {
				Schema fieldSchema `json:"openAPIV3Schema"`
			} `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
}

// surfaceKinds lists the fields of all kinds.
func surfaceKinds(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../../../deploy/crd/*_*.yaml")
	require.NoError(t, err)
	var lines []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		var d definition
		require.NoError(t, yaml.Unmarshal(content, &d))
		names := d.Spec.Names
		for _, version := range d.Spec.Versions {
			kind := names.Kind + "." + version.Name + "." + d.Spec.Group
			lines = append(lines, fmt.Sprintf("%s: %s %s %s %s", kind, d.Spec.Scope, names.Plural,
				strings.Join(names.ShortNames, ","), strings.Join(names.Categories, ",")))
			for _, column := range version.Columns {
				lines = append(lines, kind+": column "+column.Name)
			}
			for _, line := range fields("", version.Schema.Schema) {
				lines = append(lines, kind+": "+line)
			}
		}
	}
	return lines
}

// fields lists the fields of a schema.
func fields(name string, of fieldSchema) []string {
	var lines []string
	for _, property := range slices.Sorted(maps.Keys(of.Properties)) {
		inner := of.Properties[property]
		field := strings.TrimPrefix(name+"."+property, ".")
		line := field + " " + typeOf(inner)
		if slices.Contains(of.Required, property) {
			line += ", required"
		}
		lines = append(lines, line)
		lines = append(lines, fields(field, inner)...)
	}
	if of.Items != nil {
		lines = append(lines, fields(name+"[]", *of.Items)...)
	}
	if of.Additional != nil {
		lines = append(lines, fields(name+"{}", *of.Additional)...)
	}
	return lines
}

// typeOf returns the type of a field, with its validation and default.
func typeOf(of fieldSchema) string {
	text := of.Type
	switch {
	case of.IntOrText:
		text = "integer or string"
	case of.Items != nil:
		text = "[]" + typeOf(*of.Items)
	case of.Additional != nil:
		text = "map of " + typeOf(*of.Additional)
	case of.Format != "":
		text += " (" + of.Format + ")"
	}
	values := make([]string, 0, len(of.Enum))
	for _, value := range of.Enum {
		values = append(values, fmt.Sprint(value))
	}
	if len(values) > 0 {
		text += ": " + strings.Join(values, " | ")
	}
	if of.Default != nil {
		value, _ := json.Marshal(of.Default) //nolint:errchkjson // It was read from YAML.
		text += " = " + string(value)
	}
	return text
}
