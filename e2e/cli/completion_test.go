package cli

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCompletesNamesOfObjects(t *testing.T) {
	t.Parallel()
	s := newEvictionSite(t, nodeOfDevices)
	s.create(t, policy("completed", "paused: true"), podOfApp("completed-0", "app", 0))
	for line, want := range map[string]string{
		"explain ":                             "pod claim node device",
		"explain node NODE":                    "NODE",
		"explain pod -n NAMESPACE comp":        "completed-0",
		"explain pod -n NAMESPACE completed-1": "",
		"pause policy NAMESPACE-":              "NAMESPACE-completed",
		"release NAMESPACE-":                   "NAMESPACE-completed",
		"release NAMESPACE-completed ":         "",
		"approve ":                             "node rule patch policy",
		"evictions --node NODE":                "NODE",
		"evictions -o ":                        "table wide yaml json name",
		"pause all --dry-run=":                 "none client server",
		"preview node NODE":                    "NODE",
	} {
		// An empty last word is one that the user has not begun.
		cmd := exec.CommandContext(t.Context(), programs.Plugin(), append([]string{"__complete"}, strings.Split(s.text(line), " ")...)...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+shared.Kubeconfig())
		out, err := cmd.Output()
		require.NoError(t, err, line)
		names := strings.Fields(string(out))
		require.Equal(t, ":4", names[len(names)-1], "%s: no files", line)
		require.Equal(t, s.text(want), strings.Join(names[:len(names)-1], " "), line)
	}
}
