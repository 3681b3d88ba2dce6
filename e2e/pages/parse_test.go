package pages

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// quoted has backquotes where the text of a test has apostrophes.
func quoted(text string) string { return strings.ReplaceAll(text, "'", "`") }

func TestParse(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		page string
		want []part
		err  string
	}{
		"commands in the text, which may be broken, in tables too": {
			page: "Look with 'kubectl get\nnodes', or 'kubectl' alone.\n\n| 'tollgate version' | the 'version' |\n",
			want: []part{
				{kind: inline, line: 1, commands: []string{"kubectl get nodes"}},
				{kind: inline, line: 4, commands: []string{"tollgate version"}},
			},
		},
		"a script with a comment, a broken line and a here-document": {
			page: "'''sh\n# first\na \\\n  b   # why\ncat <<EOF\nkubectl x\nEOF\nc | d\n'''\n",
			want: []part{{kind: script, line: 2, commands: []string{"a \\\n  b   # why", "cat <<EOF\nkubectl x\nEOF", "c | d"}}},
		},
		"a console with output": {
			page: "'''console\n$ a\n$ b \\\n  c\nout\n\nmore\n'''\n",
			want: []part{
				{kind: console, line: 2, commands: []string{"a"}},
				{kind: console, line: 3, commands: []string{"b \\\n  c"}, text: "out\n\nmore\n"},
			},
		},
		"a file, and a manifest": {
			page: "'''yaml\n# dir/a.yaml\nkind: A\n'''\n'''yaml\n# Not a file.\nkind: B\n'''\n",
			want: []part{
				{kind: manifest, line: 2, file: "dir/a.yaml", text: "kind: A\n"},
				{kind: manifest, line: 6, text: "# Not a file.\nkind: B\n"},
			},
		},
		"a block without a language": {
			page: "a\n'''\n$ kubectl get nodes\n'''\n",
			err:  `line 2: a block of language "", which is none of sh, console, yaml`,
		},
		"output that no command printed": {page: "'''console\nout\n'''\n", err: `line 1: output "out" before any command`},
		"a command without its program":  {page: "Look with\n'explain node'.\n", err: `line 2: "explain node" lacks its program`},
		"a command in an indented block": {page: "a\n\n    $ kubectl x\n", err: `line 3: a command outside of a block: "    $ kubectl x"`},
		"a block without an end":         {page: "'''sh\na\n", err: "line 1: the block does not end"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parse(quoted(tt.page))
			if tt.err != "" {
				require.EqualError(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestKeyIsTheCommandInOneLine(t *testing.T) {
	t.Parallel()
	require.Equal(t, "helm install a --set b=#c", key("helm install a \\\n    --set b=#c   # why"))
	require.Empty(t, key("# a comment"))
}

func TestWhatIsNoLongerOnAPageIsAnError(t *testing.T) {
	t.Parallel()
	parts := []part{{kind: script, commands: []string{"kubectl get node NODE  # look"}}, {kind: manifest, file: "a.yaml"}}
	page := func(name string) tutorial {
		return tutorial{
			path: "page.md", typed: map[string]string{"NODE": "node-1"}, folders: map[string]string{"a.yaml": "../site"},
			before: map[string]func(*testing.T){name: nil},
		}
	}
	require.NoError(t, page("a.yaml").misfits(parts, map[string]bool{"kubectl get node NODE": true}))
	require.EqualError(t, page("b.yaml").misfits(parts, nil), `page.md: what something is done before, "b.yaml" is not on the page`)
	require.EqualError(t, page("a.yaml").misfits(parts, map[string]bool{"make all": true}),
		`page.md: the command that is not run here "make all" is not on the page`)
}

func TestEveryCommandThatIsNotRunHasAReasonAndAPage(t *testing.T) {
	t.Parallel()
	pages := []string{"README.md", "docs/first-policy.md", "docs/first-quarantine.md", "docs/production.md", "docs/quickstart.md", "docs/troubleshooting.md"}
	for _, command := range elsewhere() {
		require.Contains(t, pages, command.page)
		require.NotEmpty(t, command.reason, command.command)
	}
}

func TestExpectation(t *testing.T) {
	t.Parallel()
	const pod = "web-68fcd875d-nz9h7"
	for name, tt := range map[string]struct {
		page, output string
		err          string
		known, want  names
	}{
		"white space of any amount is the same": {page: "A  B\nc  d", output: "A     B\nc     d\n"},
		"a line that the page breaks":           {page: "denied the\nrequest", output: "denied the request\n"},
		"any lines":                             {page: "a\n...\nz", output: "a\nb\nc\nz\n"},
		"any lines at the end":                  {page: "a\n...", output: "a\n"},
		"any lines at the beginning":            {page: "...\nz", output: "z\n"},
		"any lines, and not a longer word":      {page: "...\nz", output: "az\n", err: "the output is another one"},
		"another word":                          {page: "a b", output: "a c", err: "the output is another one"},
		"more than the page has":                {page: "a", output: "Warning: x\na", err: "the output is another one"},
		"an age":                                {page: "ready 41s", output: "ready 3s"},
		"a duration in other units":             {page: "in 2m0s", output: "in 118s"},
		"a duration that is another one": {
			page: "in 30m", output: "in 2m",
			err: "the page has the duration 30m, and the output has 2m, which differs by more than 1m0s",
		},
		"a word where the page has a duration": {
			page: "in 30m", output: "in vain", err: "the page has the duration 30m, and the output has vain",
		},
		"a number is not volatile": {page: "3 pods", output: "4 pods", err: "the output is another one"},
		"a generated name is learnt": {
			page: "pod " + pod, output: "pod web-5bfdc97467-qw6kg", want: names{pod: "web-5bfdc97467-qw6kg"},
		},
		"a generated name stays the same": {
			page: pod, output: "web-5bfdc97467-xpz9p", known: names{pod: "web-5bfdc97467-qw6kg"},
			err: pod + " is web-5bfdc97467-xpz9p here, and was web-5bfdc97467-qw6kg before",
		},
		"a pod of another Deployment": {
			page: pod, output: "batch-5bfdc97467-xpz9p",
			err: "the page has the name " + pod + ", and the output has batch-5bfdc97467-xpz9p",
		},
		"a time": {page: "at 2026-11-23T17:19:13Z", output: "at 2027-01-02T03:04:05Z"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := expect(tt.page)
			require.NoError(t, err)
			known := names{}
			maps.Copy(known, tt.known)
			err = e.compare(tt.output, known)
			if tt.err != "" {
				require.EqualError(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			for shown, actual := range tt.want {
				require.Equal(t, actual, known[shown])
			}
		})
	}
}
