package check

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Position is where a document begins.
type Position struct {
	// File is as it was named; Stdin for standard input.
	File string
	// Line counts from 1.
	Line int
}

// Stdin is the name of standard input.
const Stdin = "<stdin>"

// String returns the position as compilers write it.
func (p Position) String() string { return fmt.Sprintf("%s:%d", p.File, p.Line) }

// Object is an object and where it stands. What came in a list stands where the list does.
type Object struct {
	Position

	*unstructured.Unstructured
}

// Parse returns the objects in the text of a file: YAML, or JSON, of any number of
// documents, and of the items of lists. Where documents are no objects, because they have
// no apiVersion or no kind, the error is a *NotObjectError, and comes with those that are.
func Parse(file string, text []byte) ([]Object, error) {
	var objects []Object
	var not error
	for _, d := range split(text) {
		at := Position{file, d.line}
		content, err := yaml.YAMLToJSONStrict(d.text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		if bytes.Equal(bytes.TrimSpace(content), []byte("null")) {
			continue
		}
		found, err := decode(at, content)
		if IsNotObject(err) {
			not = cmp.Or(not, err)
			continue
		}
		if err != nil {
			return nil, err
		}
		objects = append(objects, found...)
	}
	return objects, not
}

// NotObjectError says that a document is no Kubernetes object.
type NotObjectError struct{ At Position }

// Error implements error.
func (e *NotObjectError) Error() string {
	return e.At.String() + ": apiVersion and kind have to be given: this is no Kubernetes object"
}

func decode(at Position, content []byte) ([]Object, error) {
	var fields map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(content, &fields); err != nil {
		return nil, &NotObjectError{at}
	}
	object := &unstructured.Unstructured{Object: fields}
	if object.GetAPIVersion() == "" || object.GetKind() == "" {
		return nil, &NotObjectError{at}
	}
	items, listed := fields["items"].([]any)
	if !listed || !strings.HasSuffix(object.GetKind(), "List") {
		return []Object{{at, object}}, nil
	}
	var objects []Object
	for i, item := range items {
		of, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s: items[%d] is no object", at, i)
		}
		single := &unstructured.Unstructured{Object: of}
		inherit(single, object)
		if single.GetAPIVersion() == "" || single.GetKind() == "" {
			return nil, fmt.Errorf("%s: items[%d]: apiVersion and kind have to be given", at, i)
		}
		objects = append(objects, Object{at, single})
	}
	return objects, nil
}

// inherit gives an item of a list of one kind its kind, which the API server leaves out.
func inherit(item, list *unstructured.Unstructured) {
	if kind := strings.TrimSuffix(list.GetKind(), "List"); kind != "" && item.GetKind() == "" {
		item.SetAPIVersion(list.GetAPIVersion())
		item.SetKind(kind)
	}
}

// document is the text of one document and the line of its first words.
type document struct {
	line int
	text []byte
}

// split returns the documents of a text that are not empty. They are parted by lines of
// three dashes, as kubectl has it.
func split(text []byte) []document {
	var documents []document
	var current []byte
	line, begins := 0, 0
	end := func() {
		if begins > 0 {
			documents = append(documents, document{begins, current})
		}
		current, begins = nil, 0
	}
	for each := range bytes.Lines(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))) {
		line++
		if separates(each) {
			end()
			continue
		}
		current = append(current, each...)
		if words := bytes.TrimSpace(each); begins == 0 && len(words) > 0 && words[0] != '#' {
			begins = line
		}
	}
	end()
	return documents
}

// separates reports whether a line parts documents.
func separates(line []byte) bool {
	rest, dashes := bytes.CutPrefix(line, []byte("---"))
	rest = bytes.TrimSpace(rest)
	return dashes && (len(rest) == 0 || rest[0] == '#')
}

// IsNotObject reports whether an error says no more than that a document is no object.
func IsNotObject(err error) bool {
	var not *NotObjectError
	return errors.As(err, &not)
}
