package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheSBOMNamesTheModulesOfTheProgram(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "sbom")
	require.NoError(t, writeSBOMs(dir, shared.programs))
	for _, p := range shared.programs {
		content, err := os.ReadFile(filepath.Join(dir, "tollgate-"+p.os+"-"+p.architecture+".spdx.json"))
		require.NoError(t, err)
		var read document
		require.NoError(t, json.Unmarshal(content, &read))
		require.Equal(t, sbom(p), read)

		named := map[string]string{}
		ids := map[string]bool{"SPDXRef-DOCUMENT": true}
		for _, part := range read.Packages {
			named[part.Name] = part.Version
			require.False(t, ids[part.ID], "%s is there twice", part.ID)
			ids[part.ID] = true
		}
		require.Equal(t, modules(t, p), named)
		require.Len(t, read.Relationships, len(read.Packages), "each is related to another")
		for _, relationship := range read.Relationships {
			require.True(t, ids[relationship.Element] && ids[relationship.Related], relationship)
		}
	}
}

// modules asks the go command, which is not what the SBOM is made with.
func modules(t *testing.T, p *program) map[string]string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tollgate")
	require.NoError(t, os.WriteFile(path, p.content, 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "version", "-m", path).Output()
	require.NoError(t, err)
	found := map[string]string{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, path):
			found["stdlib"] = strings.TrimPrefix(fields[1], "go")
		case fields[0] == "mod" || fields[0] == "dep":
			found[fields[1]] = fields[2]
		case fields[0] == "=>":
			t.Fatalf("a module is replaced: %s", line)
		}
	}
	require.Greater(t, len(found), 20)
	return found
}
