package compatibility

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
)

var update = flag.Bool("update", false, "write the outcome into docs/compatibility.md")

// results is the column of one version of Kubernetes in the table of docs/compatibility.md.
type results struct {
	path  string
	names []string
	cells map[string]string
}

func column(t *testing.T) *results {
	t.Helper()
	return &results{path: filepath.Join(programs.Root, "docs", "compatibility.md"), cells: map[string]string{}}
}

// try tries a feature; one that fails has no cell.
func (r *results) try(t *testing.T, f feature) {
	t.Helper()
	if f.try == nil || t.Run(f.name, f.try) {
		r.add(f.name, f.cell)
	}
}

func (r *results) add(name, cell string) {
	r.names = append(r.names, name)
	r.cells[name] = cell
}

// require fails unless the table says the same of the version, row by row.
func (r *results) require(t *testing.T) {
	t.Helper()
	content, err := os.ReadFile(r.path)
	require.NoError(t, err)
	lines := strings.Split(string(content), "\n")
	version := strings.TrimPrefix(programs.Kubernetes, "v")
	first := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "| on Kubernetes ") })
	require.GreaterOrEqual(t, first, 0, "%s has no table", r.path)
	require.Equal(t, binaries.Versions(), prefixed(cellsOf(lines[first])[1:]), "columns of the table in %s", r.path)
	at := slices.Index(cellsOf(lines[first]), version)
	var names []string
	for i := first + 2; i < len(lines) && strings.HasPrefix(lines[i], "|"); i++ {
		cells := cellsOf(lines[i])
		names = append(names, cells[0])
		if *update {
			cells[at] = r.cells[cells[0]]
			lines[i] = "| " + strings.Join(cells, " | ") + " |"
		}
		require.Equal(t, r.cells[cells[0]], cells[at], "%s: %s on Kubernetes %s (go test ./compatibility -update writes it)", r.path, cells[0], version)
	}
	require.Equal(t, r.names, names, "rows of the table in %s", r.path)
	if *update && !t.Failed() {
		require.NoError(t, os.WriteFile(r.path, []byte(strings.Join(lines, "\n")), 0o600))
	}
}

// cellsOf returns the cells of a row.
func cellsOf(line string) []string {
	cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

func prefixed(versions []string) []string {
	var named []string
	for _, version := range versions {
		named = append(named, "v"+version)
	}
	return named
}
