package check

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

var update = flag.Bool("update", false, "write the golden files")

// runs runs the command line, and returns what it writes and its exit code.
func runs(t *testing.T, stdin string, arguments ...string) (out, notes string, code int) {
	t.Helper()
	cmd := NewCommand()
	var stdout, stderr bytes.Buffer
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetArgs(arguments)
	err := cmd.ExecuteContext(t.Context())
	if err != nil {
		stderr.WriteString("error: " + err.Error() + "\n")
	}
	return stdout.String(), stderr.String(), cli.ExitCode(err)
}

func TestGoldenOutput(t *testing.T) {
	t.Parallel()
	both := []string{"-p", "testdata/policies", "-f", "testdata/manifests.yaml"}
	for name, c := range map[string]struct {
		arguments []string
		code      int
	}{
		"text":            {both, 2},
		"wide":            {append(both, "-o", "wide", "--as", "alice", "--as-group", "team-apple,devs"), 2},
		"json":            {append(both, "-o", "json"), 2},
		"yaml":            {append(both, "-o", "yaml"), 2},
		"junit":           {append(both, "-o", "junit"), 2},
		"sarif":           {append(both, "-o", "sarif"), 2},
		"undecided":       {[]string{"-p", "testdata/policies", "-f", "testdata/undecided.yaml", "--as", "paul", "--as-group", "platform"}, 1},
		"undecided.junit": {[]string{"-p", "testdata/policies", "-f", "testdata/undecided.yaml", "--as", "paul", "--as-group", "platform", "-o", "junit"}, 1},
		"tests":           {[]string{"--tests", "testdata/tests", "-o", "wide"}, 0},
		"tests.wrong":     {[]string{"--tests", "testdata/wrong"}, 2},
		"tests.junit":     {[]string{"--tests", "testdata/wrong", "-o", "junit"}, 2},
		"tests.sarif":     {[]string{"--tests", "testdata/wrong", "-o", "sarif"}, 2},
		"tests.json":      {[]string{"--tests", "testdata/wrong", "-o", "json"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, notes, code := runs(t, "", c.arguments...)
			require.Equal(t, c.code, code, notes)
			golden := filepath.Join("testdata", name+".golden")
			got := out + "-- stderr --\n" + notes
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), got)
			if name == "text" || name == "wide" {
				for line := range strings.Lines(out) {
					require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), cli.Width)
					require.NotContains(t, line, "\x1b", "colours are for terminals")
				}
			}
		})
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	pod := func(namespace, key string) string {
		return "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: " + namespace + "}, spec: {tolerations: [{key: " + key + "}]}}"
	}
	for sentence, c := range map[string]struct {
		stdin     string
		arguments []string
		code      int
		says      string
	}{
		"allowed":                           {pod("apple", "other"), []string{"-p", "testdata/policies", "-f", "-"}, 0, "1 object judged by 4 policies: 1 allowed\n"},
		"denied":                            {pod("apple", "dedicated"), []string{"-p", "testdata/policies", "-f", "-"}, 2, "error: 1 object is denied\n"},
		"warned":                            {pod("apple", "spot"), []string{"-p", "testdata/policies", "-f", "-"}, 0, "1 allowed with warnings"},
		"warned, and that counts":           {pod("apple", "spot"), []string{"-p", "testdata/policies", "-f", "-", "--warnings-as-errors"}, 2, "error: 1 object is allowed with warnings\n"},
		"a namespace of the command line":   {"{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {tolerations: [{key: dedicated}]}}", []string{"-p", "testdata/policies", "-f", "-", "-n", "banana"}, 0, "1 allowed"},
		"quiet":                             {pod("apple", "dedicated"), []string{"-p", "testdata/policies", "-f", "-", "-q"}, 2, "error: 1 object is denied\n"},
		"policies among the manifests":      {pod("apple", "dedicated"), []string{"-f", "testdata/policies,-"}, 2, "5 objects judged by 4 policies: 4 allowed, 1 denied\n"},
		"nothing to judge":                  {"", []string{"-p", "testdata/policies", "-f", "-"}, 0, "0 objects judged by 4 policies\n"},
		"no policies":                       {pod("apple", "dedicated"), []string{"-f", "-"}, 0, "1 object judged by 0 policies: 1 allowed\n"},
		"policies that are none":            {pod("apple", "dedicated"), []string{"-p", "-", "-f", "testdata/manifests.yaml"}, 1, "error: --policies: there is no policy of Tollgate in them; the first object is a Pod (<stdin>:1)\n"},
		"a policy that is not valid":        {"{apiVersion: tollgate.dev/v1alpha1, kind: TolerationPolicy, metadata: {name: a}, spec: {taints: []}}", []string{"-p", "-", "-f", "testdata/manifests.yaml"}, 1, "<stdin>:1: TolerationPolicy a: spec.taints: Required value"},
		"a file that is not there":          {"", []string{"-f", "testdata/none"}, 1, "no such file"},
		"nothing at all":                    {"", nil, 1, "error: there is nothing to check: give manifests (-f), tests (--tests) or --cluster\n"},
		"standard input for two":            {"", []string{"-p", "-", "-f", "-"}, 1, "error: standard input can be read once: give - once\n"},
		"a format that there is not":        {"", []string{"-f", "-", "-o", "xml"}, 1, `error: --output is "xml", want one of text, wide, json, yaml, junit, sarif`},
		"groups of nobody":                  {"", []string{"-f", "-", "--as-group", "a"}, 1, "error: --as-group needs --as: groups are those of a user\n"},
		"users in tests":                    {"", []string{"--tests", "testdata/tests", "--as", "a"}, 1, "each case names who creates its objects"},
		"no tests":                          {"", []string{"--tests", "testdata/policies"}, 1, "error: there is no PolicyTest of config.tollgate.dev/v1alpha1 in testdata/policies\n"},
		"a configuration that is not there": {"", []string{"-f", "-", "--config", "testdata/none"}, 1, "error: --config: "},
		"a configuration that is none":      {"", []string{"-f", "-", "--config", "testdata/manifests.yaml"}, 1, "error: --config testdata/manifests.yaml: "},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			out, notes, code := runs(t, c.stdin, c.arguments...)
			require.Equal(t, c.code, code, "%s%s", out, notes)
			require.Contains(t, out+notes, c.says)
			if sentence == "quiet" {
				require.Empty(t, out)
			}
		})
	}
}

// The schema of SARIF wants lists that are empty, and not left out.
func TestARunThatFoundNothingHasEmptyLists(t *testing.T) {
	t.Parallel()
	out, _, code := runs(t, "{apiVersion: v1, kind: Pod, metadata: {name: a}}", "-f", "-", "-o", "sarif")
	require.Zero(t, code)
	require.Contains(t, out, `"results": []`)
	require.Contains(t, out, `"rules": []`)
}

// The page shows a test of a sample, which is run here as it stands there.
func TestTheTestInTheDocumentationPasses(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..", "..", "..")
	page, err := os.ReadFile(filepath.Join(root, "docs", "policies.md"))
	require.NoError(t, err)
	_, after, found := strings.Cut(string(page), "```yaml\napiVersion: config.tollgate.dev/v1alpha1\nkind: PolicyTest\n")
	require.True(t, found)
	test, _, found := strings.Cut(after, "```")
	require.True(t, found)
	policy, err := os.ReadFile(filepath.Join(root, "deploy", "samples", "dedicated-nodes.yaml"))
	require.NoError(t, err)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"dedicated-nodes.yaml": string(policy),
		"node.yaml":            "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nspec: {taints: [{key: dedicated, value: banana, effect: NoSchedule}]}\n",
		"test.yaml":            "apiVersion: config.tollgate.dev/v1alpha1\nkind: PolicyTest\n" + test,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	out, notes, code := runs(t, "", "--tests", dir)
	require.Zero(t, code, "%s%s", out, notes)
	require.Equal(t, "4 cases: 4 passed, 0 failed\n", out)
}
