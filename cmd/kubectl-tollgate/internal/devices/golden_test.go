package devices

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files")

func TestTablesAreAsTheGoldenFilesHaveThem(t *testing.T) {
	t.Parallel()
	for name, wide := range map[string]bool{"table": false, "wide": true} {
		var out bytes.Buffer
		v := cluster(t, Filter{})
		require.NoError(t, v.WriteTable(t.Context(), &out, wide))
		for _, note := range v.Notes() {
			out.WriteString(note + "\n")
		}
		path := filepath.Join("testdata", name+".txt")
		if *update {
			require.NoError(t, os.WriteFile(path, out.Bytes(), 0o600))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(want), out.String())
	}
}
