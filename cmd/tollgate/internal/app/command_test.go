package app

import (
	"bytes"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
)

func TestTheVersionStandsAloneOnTheFirstLine(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"version"}, {"--version"}} {
		var out bytes.Buffer
		root := NewCommand()
		root.SetOut(&out)
		root.SetArgs(args)
		require.NoError(t, root.ExecuteContext(t.Context()))
		first, rest, ok := strings.Cut(out.String(), "\n")
		require.True(t, ok, args)
		require.Equal(t, settings.Version(), first, args)
		require.Contains(t, rest, runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH+"\n", args)
	}
}

func TestEveryFlagOfTheServerIsDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/configuration.md")
	require.NoError(t, err)
	newServeCommand().Flags().VisitAll(func(f *pflag.Flag) {
		require.NotEmpty(t, f.Usage, f.Name)
		require.Contains(t, string(page), "| `--"+f.Name+"` |")
	})
}
