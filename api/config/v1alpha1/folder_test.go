package v1alpha1_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/api/config/v1alpha1"
)

// folder returns a folder in the form in which a kubelet mounts a ConfigMap: files are
// links into a hidden folder, which is a link itself.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	path := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(path, "..2026"), 0o700))
	require.NoError(t, os.Symlink("..2026", filepath.Join(path, "..data")))
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(path, "..2026", name), []byte(text), 0o600))
		require.NoError(t, os.Symlink(filepath.Join("..data", name), filepath.Join(path, name)))
	}
	return path
}

func TestLaterFilesOfAFolderAreReadOnTopOfEarlierOnes(t *testing.T) {
	config, err := v1alpha1.LoadPath(folder(t, map[string]string{
		"10-base.yaml": head + "health: {bindAddress: ':8081'}\neviction: {workers: 3}\n" +
			"admission: {schedulers: [a, b]}\nfeatureGates: {GatePolicies: false, TaintPolicies: false}",
		"30-mode.yaml": head + "eviction: {mode: Window}",
		"90-local.yml": head + "admission: {schedulers: [c]}\nfeatureGates: {GatePolicies: true}",
		"readme.txt":   "not read",
	}))
	require.NoError(t, err)
	require.Equal(t, ":8081", config.Health.BindAddress)
	require.Equal(t, 3, config.Eviction.Workers)
	require.Equal(t, v1alpha1.EvictionWindow, config.Eviction.Mode)
	require.Equal(t, []string{"c"}, config.Admission.Schedulers)
	require.Equal(t, map[string]bool{"GatePolicies": true, "TaintPolicies": false}, config.FeatureGates)
	require.Equal(t, "127.0.0.1:8080", config.Metrics.BindAddress)
}

func TestAFileIsReadAsItself(t *testing.T) {
	path := filepath.Join(t.TempDir(), "any.name")
	require.NoError(t, os.WriteFile(path, []byte(head+"namespace: x"), 0o600))
	config, err := v1alpha1.LoadPath(path)
	require.NoError(t, err)
	require.Equal(t, "x", config.Namespace)
}

func TestL07ABadFileOfAFolderIsNamed(t *testing.T) {
	tests := map[string]struct {
		files map[string]string
		names string
	}{
		"no file at all":                    {nil, "has no file named *.yaml or *.yml"},
		"a file that does not say its kind": {map[string]string{"1.yaml": head, "2.yaml": "namespace: x"}, "2.yaml: read configuration: apiVersion and kind are"},
		"an unknown key":                    {map[string]string{"1.yaml": head, "2.yaml": head + "x: 1"}, `2.yaml: read configuration: unknown field "x"`},
		"a bad setting of two files together": {
			map[string]string{"1.yaml": head + "leaderElection: {leaseDuration: 5s}", "2.yaml": head + "leaderElection: {renewDeadline: 9s}"},
			"check configuration: leaderElection",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := v1alpha1.LoadPath(folder(t, tt.files))
			require.ErrorContains(t, err, tt.names)
		})
	}
	_, err := v1alpha1.LoadPath(filepath.Join(t.TempDir(), "missing"))
	require.ErrorContains(t, err, "missing")
}
