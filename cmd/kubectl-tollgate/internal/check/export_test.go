package check

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const registeringPolicy = `
apiVersion: tollgate.dev/v1alpha1
kind: TaintPolicy
metadata: {name: banana}
spec:
  taints: [{key: dedicated}]
  register:
  - nodeSelector: {matchLabels: {pool: banana}}
    taints: [{key: dedicated, value: banana, effect: NoSchedule}]
`

// runMap runs the command with a file, or without one with standard input.
func runMap(t *testing.T, text string, fromFile bool) (string, error) {
	t.Helper()
	root := NewExportCommand()
	var out bytes.Buffer
	root.SetOut(&out)
	file := "-"
	if fromFile {
		file = filepath.Join(t.TempDir(), "policies.yaml")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	root.SetIn(strings.NewReader(text))
	root.SetArgs([]string{"map", "-f", file})
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestExportMapWritesOnePolicyAndBindingForEachEntry(t *testing.T) {
	inList := "apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(registeringPolicy), "\n", "\n  ")
	for sentence, c := range map[string]struct {
		text     string
		fromFile bool
	}{
		"from a file":                   {registeringPolicy, true},
		"from standard input":           {registeringPolicy, false},
		"out of a list":                 {inList, true},
		"beside objects of other kinds": {"apiVersion: v1\nkind: Pod\n---\n# nothing\n---\n" + registeringPolicy, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			out, err := runMap(t, c.text, c.fromFile)
			require.NoError(t, err)
			require.Equal(t, 1, strings.Count(out, "\nkind: MutatingAdmissionPolicy\n"), out)
			require.Equal(t, 1, strings.Count(out, "\nkind: MutatingAdmissionPolicyBinding\n"), out)
			require.Contains(t, out, "tollgate-register-banana-0")
		})
	}
}

func TestExportMapRefusesWhatItCannotExport(t *testing.T) {
	for sentence, c := range map[string]struct{ text, names string }{
		"a file without a TaintPolicy":   {"apiVersion: v1\nkind: Pod\n", "no TaintPolicy"},
		"an empty file":                  {"", "no TaintPolicy"},
		"a policy with a misspelt field": {registeringPolicy + "    reconsile: true\n", `unknown field "spec.register[0].reconsile"`},
		"a policy that is not valid":     {strings.ReplaceAll(registeringPolicy, "effect: NoSchedule", "effect: Never"), "effect"},
		"a key that stands twice":        {registeringPolicy + "kind: TaintPolicy\n", "kind"},
		"what is not YAML":               {"{", "policies.yaml:1: "},
	} {
		t.Run(sentence, func(t *testing.T) {
			_, err := runMap(t, c.text, true)
			require.ErrorContains(t, err, c.names)
		})
	}
	root := NewExportCommand()
	root.SetArgs([]string{"map", "-f", filepath.Join(t.TempDir(), "none")})
	require.ErrorIs(t, root.ExecuteContext(t.Context()), os.ErrNotExist)
}
