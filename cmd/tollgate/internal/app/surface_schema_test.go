package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"sigs.k8s.io/yaml"
)

// schemaFolder has the JSON Schemas of what commands write.
const schemaFolder = "../../../../docs/schemas"

// examples are golden files of each command below cmd/kubectl-tollgate/internal, and the field in
// which they have the document or a list of it; empty for all of the file. An example begins with the
// first line that is "{", or a field of YAML.
var examples = map[string]struct {
	files []string
	field string
}{
	"check":              {files: []string{"check/testdata/json.golden", "check/testdata/tests.json.golden"}},
	"devices .devices[]": {files: []string{"devices/testdata/gpu-0.yaml"}, field: "devices"},
	"evictions":          {files: []string{"evictions/testdata/list.json"}},
	"explain claim":      {files: []string{"explain/testdata/claim.json"}},
	"explain device":     {files: []string{"explain/testdata/device.json"}},
	"explain node":       {files: []string{"explain/testdata/node.json"}},
	"explain pod":        {files: []string{"explain/testdata/pod-held.json", "explain/testdata/pod-missing.json", "explain/testdata/pod-spread.json"}},
	"preview":            {files: []string{"preview/testdata/node-json.txt"}},
	"simulate":           {files: []string{"preview/testdata/rack.json"}},
	"status":             {files: []string{"operate/testdata/status.json"}},
}

// The types of the documents are the source of docs/schemas, and the golden files of the commands are
// valid by them.
func TestTheSchemasOfDocuments(t *testing.T) {
	t.Parallel()
	code := readSource(t)
	var files []string
	for _, of := range documents {
		if of.command == "check --tests FILE" {
			continue // Users write it.
		}
		command, _, _ := strings.Cut(of.command, " .")
		file := filepath.Join(schemaFolder, strings.ReplaceAll(command, " ", "-")+".json")
		files = append(files, file)
		t.Run(of.command, func(t *testing.T) {
			t.Parallel()
			d := code.documentOf(t, of.folder, of.root)
			root := &jsonSchema{Schema: "http://json-schema.org/draft-04/schema#", Title: "kubectl tollgate " + of.command, Type: "object"}
			for _, line := range d.lines {
				name, kind, _ := strings.Cut(line, " ")
				root.add(name, kind, d.comments)
			}
			var text bytes.Buffer
			encoder := json.NewEncoder(&text)
			encoder.SetIndent("", "  ")
			encoder.SetEscapeHTML(false)
			require.NoError(t, encoder.Encode(root))
			if *update {
				require.NoError(t, os.MkdirAll(schemaFolder, 0o750))
				require.NoError(t, os.WriteFile(file, text.Bytes(), 0o600))
			}
			written, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(written), text.String(), surfaceChanged, file)

			root.closeAll()
			closed, err := json.Marshal(root)
			require.NoError(t, err)
			var parsed spec.Schema
			require.NoError(t, json.Unmarshal(closed, &parsed))
			validator := validate.NewSchemaValidator(&parsed, nil, "", strfmt.Default)
			require.NotEmpty(t, examples[of.command].files, "give it a golden file")
			for _, name := range examples[of.command].files {
				for _, example := range examplesIn(t, name, examples[of.command].field) {
					require.Empty(t, validator.Validate(example).Errors, name)
				}
			}
		})
	}
	written, err := filepath.Glob(filepath.Join(schemaFolder, "*"))
	require.NoError(t, err)
	if !*update {
		require.ElementsMatch(t, files, written, "each file is that of a command")
	}
}

// examplesIn returns the documents in a golden file.
func examplesIn(t *testing.T, name, field string) []any {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("../../../kubectl-tollgate/internal", name))
	require.NoError(t, err)
	text := string(content)
	if begin := strings.Index("\n"+text, "\n{\n"); begin >= 0 {
		text = text[begin:]
	}
	text, _, _ = strings.Cut(text, "-- stderr --")
	var document map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &document), name)
	if field == "" {
		return []any{document}
	}
	list, ok := document[field].([]any)
	require.True(t, ok, "%s has no list %s", name, field)
	require.NotEmpty(t, list)
	return list
}

// jsonSchema is the part of JSON Schema that the documents need.
type jsonSchema struct {
	Schema      string                 `json:"$schema,omitempty"`
	Title       string                 `json:"title,omitempty"`
	Description string                 `json:"description,omitempty"`
	Type        string                 `json:"type,omitempty"`
	Format      string                 `json:"format,omitempty"`
	Enum        []string               `json:"enum,omitempty"`
	Properties  map[string]*jsonSchema `json:"properties,omitempty"`
	Items       *jsonSchema            `json:"items,omitempty"`
	// Additional is the schema of the values of a map, or whether there are fields besides Properties.
	Additional any `json:"additionalProperties,omitempty"`
}

// add adds a field by its path, in which [] stands for the items of a list and {} for the values of a
// map.
func (s *jsonSchema) add(name, kind string, comments map[string]string) {
	at, passed := s, ""
	for part := range strings.SplitSeq(name, ".") {
		if part == "*" { // What is embedded is of another module.
			at.Additional, at.Description = true, strings.TrimSpace(at.Description+" It has the fields of "+kind+" too.")
			return
		}
		field := strings.TrimRight(part, "[]{}")
		passed = strings.TrimPrefix(passed+"."+field, ".")
		if at.Properties == nil {
			at.Properties = map[string]*jsonSchema{}
		}
		if at.Properties[field] == nil {
			at.Properties[field] = &jsonSchema{Description: comments[passed]}
		}
		at.Type, at = "object", at.Properties[field]
		for rest := part[len(field):]; rest != ""; rest = rest[2:] {
			at = at.inner(rest[:2])
		}
		passed += part[len(field):]
	}
	at.setType(kind)
}

// inner returns the schema of the items of a list, or of the values of a map.
func (s *jsonSchema) inner(of string) *jsonSchema {
	if of == "[]" {
		s.Type = "array"
		if s.Items == nil {
			s.Items = &jsonSchema{}
		}
		return s.Items
	}
	s.Type = "object"
	if s.Additional == nil {
		s.Additional = &jsonSchema{}
	}
	inner, ok := s.Additional.(*jsonSchema)
	if !ok {
		panic(fmt.Sprintf("%T is no schema", s.Additional))
	}
	return inner
}

// setType sets the type of a value from that of Go.
func (s *jsonSchema) setType(kind string) {
	kind, values, _ := strings.Cut(kind, ": ")
	switch kind {
	case "string", "k8s.io/apimachinery/pkg/types.UID", "k8s.io/apimachinery/pkg/apis/meta/v1.Duration":
		s.Type = "string"
		if strings.Contains(values, " | ") {
			s.Enum = strings.Split(values, " | ")
		}
	case "k8s.io/apimachinery/pkg/apis/meta/v1.Time":
		s.Type, s.Format = "string", "date-time"
	case "bool":
		s.Type = "boolean"
	case "int", "int32", "int64":
		s.Type = "integer"
	case "float64":
		s.Type = "number"
	default:
		s.Type = "object"
		s.Description = strings.TrimSpace(s.Description + " It is a " + kind + ".")
	}
}

// closeAll has objects with known fields refuse others.
func (s *jsonSchema) closeAll() {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		s.Properties[name].closeAll()
	}
	if s.Items != nil {
		s.Items.closeAll()
	}
	if inner, ok := s.Additional.(*jsonSchema); ok {
		inner.closeAll()
	}
	if s.Properties != nil && s.Additional == nil {
		s.Additional = false
	}
}
