// Package chart has the tests of the chart that need no Helm. What Helm renders is tested in
// e2e/manifests.
package chart

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the table of values in the README of the chart")

const (
	begin = "<!-- values, written by make generate -->\n"
	end   = "<!-- end of values -->\n"
)

// value is a value that users of the chart set.
type value struct {
	name, description string
	fallback          any
}

// schema is the part of a JSON schema that the chart has.
type schema struct {
	Description          string            `json:"description"`
	Type                 any               `json:"type"`
	Properties           map[string]schema `json:"properties"`
	AdditionalProperties any               `json:"additionalProperties"`
}

// UnmarshalJSON implements json.Unmarshaler. A schema can be true or false.
func (s *schema) UnmarshalJSON(text []byte) error {
	if string(text) == "true" || string(text) == "false" {
		return nil
	}
	type plain schema
	return json.Unmarshal(text, (*plain)(s))
}

// isDefinedElsewhere tells whether Kubernetes or Tollgate define what is in a value.
func isDefinedElsewhere(name string) bool { return name == "resources" || name == "config" }

func read(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("tollgate", file))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, into), file)
}

// valuesOf returns the values of a schema in the order of their names.
func valuesOf(t *testing.T, s schema, defaults map[string]any, prefix string) []value {
	t.Helper()
	var values []value
	for _, key := range slices.Sorted(maps.Keys(s.Properties)) {
		name, below := prefix+key, s.Properties[key]
		if name == "global" {
			continue
		}
		require.NotEmpty(t, below.Description, "%s has no description", name)
		require.Contains(t, defaults, key, "%s has no default in values.yaml", name)
		if len(below.Properties) == 0 || isDefinedElsewhere(name) {
			values = append(values, value{name: name, description: below.Description, fallback: defaults[key]})
			continue
		}
		require.Equal(t, false, below.AdditionalProperties, "%s accepts what it does not know", name)
		inner, _ := defaults[key].(map[string]any)
		values = append(values, valuesOf(t, below, inner, name+".")...)
	}
	for key := range defaults {
		require.Contains(t, s.Properties, key, "%s%s of values.yaml is not in the schema", prefix, key)
	}
	return values
}

var page = regexp.MustCompile(`docs/([a-z-]+)\.md(#[a-z-]+)?`)

// row is the line of a value in the table.
func row(t *testing.T, v value) string {
	t.Helper()
	fallback := ""
	switch {
	case v.name == "tolerations" || v.name == "nodeSelector" || v.name == "resources":
		fallback = "see [values.yaml](values.yaml)"
	case !isEmpty(v.fallback):
		text, err := json.Marshal(v.fallback)
		require.NoError(t, err)
		fallback = "`" + strings.Trim(string(text), `"`) + "`"
	}
	description := page.ReplaceAllString(v.description, "[$1](../../../docs/$1.md$2)")
	return fmt.Sprintf("| `%s` | %s | %s |\n", v.name, fallback, description)
}

// isEmpty tells whether a default says nothing. false and 0 do.
func isEmpty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	default:
		return false
	}
}

// With -update, as make generate runs it, it writes the table.
func TestTheReadMeListsTheValuesOfTheSchema(t *testing.T) {
	var all schema
	read(t, "values.schema.json", &all)
	require.Equal(t, false, all.AdditionalProperties)
	var defaults map[string]any
	read(t, "values.yaml", &defaults)
	var table strings.Builder
	table.WriteString("| value | default | |\n|---|---|---|\n")
	for _, v := range valuesOf(t, all, defaults, "") {
		table.WriteString(row(t, v))
	}

	file := filepath.Join("tollgate", "README.md")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), begin)
	require.True(t, found, "README.md has no line %q", begin)
	_, after, found := strings.Cut(rest, end)
	require.True(t, found, "README.md has no line %q", end)
	want := before + begin + "\n" + table.String() + "\n" + end + after
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(want), 0o600))
		return
	}
	require.Equal(t, want, string(text), "make generate writes it")
}

func TestArtifactHubListsTheDefinitionsOfTheChart(t *testing.T) {
	var meta struct {
		Annotations map[string]string `json:"annotations"`
	}
	read(t, "Chart.yaml", &meta)
	var listed []struct{ Kind, Version, Name, DisplayName, Description string }
	require.NoError(t, yaml.Unmarshal([]byte(meta.Annotations["artifacthub.io/crds"]), &listed))
	names := map[string]string{}
	for _, crd := range listed {
		require.NotEmpty(t, crd.Description, crd.Kind)
		require.Equal(t, crd.Kind, crd.DisplayName)
		names[crd.Name] = crd.Kind + " " + crd.Version
	}
	files, err := filepath.Glob(filepath.Join("tollgate", "files", "crds", "*.yaml"))
	require.NoError(t, err)
	require.Len(t, names, len(files))
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var crd struct {
			Metadata struct{ Name string }
			Spec     struct {
				Names    struct{ Kind string }
				Versions []struct{ Name string }
			}
		}
		require.NoError(t, yaml.Unmarshal(text, &crd))
		require.Equal(t, crd.Spec.Names.Kind+" "+crd.Spec.Versions[0].Name, names[crd.Metadata.Name], file)
	}
}
