package main

import (
	"flag"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write testdata/modules.txt")

// The server is what runs in every cluster with rights over pods: a module that comes into it is
// a decision, and not a side effect of an import.
func TestTheServerHasNoModuleThatNobodyLookedAt(t *testing.T) {
	t.Parallel()
	const file = "testdata/modules.txt"
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".")
	list.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	out, err := list.Output()
	require.NoError(t, err)
	modules := strings.Fields(string(out))
	slices.Sort(modules)
	text := strings.Join(slices.Compact(modules), "\n") + "\n"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	written, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(written), text, "to write it: go test ./cmd/tollgate -update")
	for _, unwanted := range []string{"ldap", "kustomize", "k8s.io/kubectl", "k8s.io/cli-runtime"} {
		require.NotContains(t, text, unwanted)
	}
}
