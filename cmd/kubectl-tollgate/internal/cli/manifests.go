package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Position is the beginning of a document.
type Position struct {
	// File is the path as given; Stdin for standard input.
	File string `json:"file,omitempty"`
	// Line counts from 1.
	Line int `json:"line,omitempty"`
}

// Stdin is the name of standard input.
const Stdin = "<stdin>"

// String returns the position in the form of a compiler.
func (p Position) String() string { return fmt.Sprintf("%s:%d", p.File, p.Line) }

// Object is an object and its position; for an item of a list, that of the list.
type Object struct {
	Position

	*unstructured.Unstructured
}

// errNotObject is the error of a document without apiVersion or kind.
var errNotObject = errors.New("apiVersion and kind have to be given: this is no Kubernetes object")

// Parse returns the objects, and the items of lists, in the YAML or JSON documents of a file. For
// documents without apiVersion or kind, it returns the other objects and errNotObject.
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
		if errors.Is(err, errNotObject) {
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

func decode(at Position, content []byte) ([]Object, error) {
	var fields map[string]any
	err := kjson.UnmarshalCaseSensitivePreserveInts(content, &fields)
	object := &unstructured.Unstructured{Object: fields}
	if err != nil || object.GetAPIVersion() == "" || object.GetKind() == "" {
		return nil, fmt.Errorf("%s: %w", at, errNotObject)
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
		// The API server leaves out the kind of the items of a typed list.
		if kind := strings.TrimSuffix(object.GetKind(), "List"); kind != "" && single.GetKind() == "" {
			single.SetAPIVersion(object.GetAPIVersion())
			single.SetKind(kind)
		}
		if single.GetAPIVersion() == "" || single.GetKind() == "" {
			return nil, fmt.Errorf("%s: items[%d]: apiVersion and kind have to be given", at, i)
		}
		objects = append(objects, Object{at, single})
	}
	return objects, nil
}

// document is the text of one document, and its first line that is not empty or a comment.
type document struct {
	line int
	text []byte
}

// split returns the documents of a text that are not empty. As for kubectl, lines of three dashes
// separate them.
func split(text []byte) []document {
	documents := []document{{}}
	line := 0
	for each := range bytes.Lines(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))) {
		line++
		rest, separator := bytes.CutPrefix(each, []byte("---"))
		if rest = bytes.TrimSpace(rest); separator && (len(rest) == 0 || rest[0] == '#') {
			documents = append(documents, document{})
			continue
		}
		current := &documents[len(documents)-1]
		current.text = append(current.text, each...)
		if current.line == 0 && len(rest) > 0 && rest[0] != '#' {
			current.line = line
		}
	}
	return slices.DeleteFunc(documents, func(d document) bool { return d.line == 0 })
}

// ReadManifests returns the objects in files and directories, in the order of paths; - is stdin.
// Of a directory and the directories below it, it reads the files that end in .yaml, .yml or .json
// and are not hidden, and ignores documents that are no objects, such as values of Helm.
func ReadManifests(paths []string, stdin io.Reader) ([]Object, error) {
	var objects []Object
	for _, path := range paths {
		files, err := manifestFiles(path)
		if err != nil {
			return nil, fmt.Errorf("read manifests: %w", err)
		}
		for _, file := range files {
			name, doing := file, "read manifests"
			var text []byte
			if file == "-" {
				name, doing = Stdin, "read standard input"
				text, err = io.ReadAll(stdin)
			} else {
				text, err = os.ReadFile(file) //nolint:gosec // The user names the file.
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", doing, err)
			}
			found, err := Parse(name, text)
			// Only a file that the user names must have objects alone.
			if err != nil && (file == path || !errors.Is(err, errNotObject)) {
				return nil, err
			}
			objects = append(objects, found...)
		}
	}
	return objects, nil
}

// manifestFiles returns the files with manifests in a directory and below it, sorted; path itself
// if it is a file or stdin. Path may be a symbolic link; links to directories below it are not
// followed, because they may lead back.
func manifestFiles(path string) ([]string, error) {
	if path == "-" {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	err = fs.WalkDir(os.DirFS(path), ".", func(at string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case at != "." && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
		case !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(at)):
			files = append(files, filepath.Join(path, at))
		}
		return nil
	})
	return files, err
}

// DecodeStrict decodes an object into its type. Unknown fields are an error, as with kubectl
// apply.
func DecodeStrict(object *unstructured.Unstructured, into any) error {
	content, err := json.Marshal(object.Object)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	strict, err := kjson.UnmarshalStrict(content, into)
	if err == nil {
		err = errors.Join(strict...)
	}
	if err != nil {
		return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}
