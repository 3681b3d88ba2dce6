package preview

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The manual shows what they have.
func TestTaintWritesWhatTheGoldenFilesHave(t *testing.T) {
	t.Parallel()
	class := []string{"--class", "a100", "recall:NoExecute"}
	for name, arguments := range map[string][]string{
		"taint":       {gpu0, "overheating:NoExecute"},
		"taint-class": append(class, "--dry-run", "-o", "yaml"),
		"taint-two":   {"gpu.example.com/node-7", "fans:NoSchedule", "power:NoExecute", "--yes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := argumentTypes(t, taintTollgate(t), newTaint, "y\n", arguments...)
			require.NoError(t, r.err)
			// Who answers ends the line.
			if name == "taint" {
				r.notes += "y\n"
			}
			golden(t, name, r.notes+r.out)
		})
	}
}

func TestWritesOfARemovalWhatTheGoldenFilesHave(t *testing.T) {
	t.Parallel()
	clients := taintTollgate(t)
	require.NoError(t, argumentTypes(t, clients, newTaint, "", gpu0, "overheating:NoExecute", "--yes").err)
	refused := argumentTypes(t, clients, newUntaint, "", gpu0, "hot")
	golden(t, "untaint-refused", "kubectl tollgate: "+refused.err.Error()+"\n")
	r := argumentTypes(t, clients, newUntaint, "", gpu0, "overheating")
	require.NoError(t, r.err)
	golden(t, "untaint", r.notes+r.out)
}

// golden compares what was written with a file, or writes that.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}
