package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// named lists objects as kind/name and where they stand.
func named(objects []Object) []string {
	var list []string
	for _, o := range objects {
		list = append(list, o.GetKind()+"/"+o.GetName()+" "+o.String())
	}
	return list
}

func TestParsesDocumentsAndSaysWhereTheyBegin(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		text string
		want []string
	}{
		"one document":                    {"kind: Pod\napiVersion: v1\nmetadata: {name: a}\n", []string{"Pod/a f:1"}},
		"comments and blank lines before": {"# why\n\n---\n\n# what\nkind: Pod\napiVersion: v1\nmetadata: {name: a}\n", []string{"Pod/a f:6"}},
		"several, with a comment at the separator": {
			"kind: Pod\napiVersion: v1\nmetadata: {name: a}\n--- # next\nkind: Node\napiVersion: v1\nmetadata: {name: b}\n---\n",
			[]string{"Pod/a f:1", "Node/b f:5"},
		},
		"carriage returns":    {"kind: Pod\r\napiVersion: v1\r\nmetadata: {name: a}\r\n---\r\nkind: Node\r\napiVersion: v1\r\nmetadata: {name: b}\r\n", []string{"Pod/a f:1", "Node/b f:5"}},
		"a byte order mark":   {"\ufeffkind: Pod\napiVersion: v1\nmetadata: {name: a}\n", []string{"Pod/a f:1"}},
		"JSON":                {`{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}`, []string{"Pod/a f:1"}},
		"dashes in a string":  {"kind: Pod\napiVersion: v1\nmetadata:\n  name: a\n  annotations:\n    x: |\n      ---\n      y\n", []string{"Pod/a f:1"}},
		"a list":              {"kind: List\napiVersion: v1\nitems:\n- {kind: Pod, apiVersion: v1, metadata: {name: a}}\n- {kind: Node, apiVersion: v1, metadata: {name: b}}\n", []string{"Pod/a f:1", "Node/b f:1"}},
		"a list of one kind":  {"kind: PodList\napiVersion: v1\nitems:\n- {metadata: {name: a}}\n", []string{"Pod/a f:1"}},
		"a list of nothing":   {"kind: List\napiVersion: v1\nitems: []\n", nil},
		"nothing":             {"---\n# nothing\n---\n", nil},
		"a kind ending alike": {"kind: AllowList\napiVersion: example.com/v1\nmetadata: {name: a}\n", []string{"AllowList/a f:1"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			objects, err := Parse("f", []byte(c.text))
			require.NoError(t, err)
			require.Equal(t, c.want, named(objects))
		})
	}
}

func TestSaysWhatIsWrongAndWhere(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct{ text, want string }{
		"no YAML":                    {"---\na: [\n", "f:2: yaml: line 1: did not find expected node content"},
		"a key twice":                {"a: 1\n---\nkind: Pod\nkind: Node\n", "f:3: yaml: "},
		"an item that is no object":  {"kind: List\napiVersion: v1\nitems: [1]\n", "f:1: items[0] is no object"},
		"an item without a kind":     {"kind: List\napiVersion: v1\nitems: [{}]\n", "f:1: items[0]: apiVersion and kind have to be given"},
		"no object":                  {"a: 1\n", "f:1: apiVersion and kind have to be given: this is no Kubernetes object"},
		"a list without any wrapper": {"- 1\n", "f:1: apiVersion and kind have to be given"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			_, err := Parse("f", []byte(c.text))
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestReadsFilesDirectoriesAndStandardInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	pod := func(name string) string { return "kind: Pod\napiVersion: v1\nmetadata: {name: " + name + "}\n" }
	write("b.yaml", pod("b"))
	write("a/c.yml", pod("c"))
	write("a/d.json", `{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "d"}}`)
	write("values.yaml", "replicas: 1\n---\n"+pod("v"))
	write(".git/e.yaml", pod("e"))
	write(".f.yaml", pod("f"))
	write("g.txt", pod("g"))
	objects, err := ReadManifests([]string{dir, "-", filepath.Join(dir, "g.txt")}, strings.NewReader(pod("s")))
	require.NoError(t, err)
	var names []string
	for _, o := range objects {
		names = append(names, o.GetName())
	}
	require.Equal(t, []string{"c", "d", "b", "v", "s", "g"}, names)
	require.Equal(t, "<stdin>:1", objects[4].String())

	link := filepath.Join(t.TempDir(), "deploy")
	require.NoError(t, os.Symlink(dir, link))
	linked, err := ReadManifests([]string{link}, nil)
	require.NoError(t, err)
	require.Equal(t, []string{
		"Pod/c " + filepath.Join(link, "a/c.yml") + ":1", "Pod/d " + filepath.Join(link, "a/d.json") + ":1", "Pod/b " + filepath.Join(link, "b.yaml") + ":1",
	}, named(linked)[:3])

	_, err = ReadManifests([]string{filepath.Join(dir, "values.yaml")}, nil)
	require.ErrorIs(t, err, errNotObject, "a file that was named has to hold objects")
	_, err = ReadManifests([]string{filepath.Join(dir, "none")}, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	write("h.yaml", "a: [\n")
	_, err = ReadManifests([]string{dir}, nil)
	require.ErrorContains(t, err, "h.yaml:1: yaml: ")
}
