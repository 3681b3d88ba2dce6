package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a reader of the README applies first lets the DaemonSets of a platform run.
func TestTheFirstPolicyLetsPlatformDaemonSetsRun(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..", "..", "..")
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	_, section, found := strings.Cut(string(readme), "## A first policy\n\n```yaml\n")
	require.True(t, found)
	policy, _, found := strings.Cut(section, "```")
	require.True(t, found)
	manifests := filepath.Join("testdata", "platform")

	file := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(file, []byte(policy), 0o600))
	for name, policy := range map[string]string{
		"of the README": file, "of the samples": filepath.Join(root, "deploy", "samples", "tolerationpolicy.yaml"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, notes, code := runs(t, "", "-p", policy, "-f", manifests, "--as", "administrator")
			require.Zero(t, code, out+notes)
			require.Contains(t, out, "6 allowed")
		})
	}

	unlabelled, err := os.ReadFile(filepath.Join(manifests, "daemonsets.yaml"))
	require.NoError(t, err)
	out, notes, code := runs(t, strings.ReplaceAll(string(unlabelled), "tier: system", "tier: user"), "-p", file, "-f", "-")
	require.Equal(t, 2, code, notes)
	require.Contains(t, out, "DaemonSet storage/csi-node: denied")
	require.Contains(t, out, "DaemonSet monitoring/node-exporter: denied")
}
