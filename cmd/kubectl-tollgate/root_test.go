package main

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

func TestTheProgramIsCalledAsPeopleCallIt(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	root := newRootCommand()
	root.SetOut(&out)
	root.SetArgs([]string{"devices", "--help"})
	require.NoError(t, root.ExecuteContext(t.Context()))
	require.Contains(t, out.String(), "Usage:\n  kubectl tollgate devices [flags]\n")
}

func TestTheVersionStandsAloneOnTheFirstLine(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"version"}, {"--version"}} {
		var out bytes.Buffer
		root := newRootCommand()
		root.SetOut(&out)
		root.SetArgs(args)
		require.NoError(t, root.ExecuteContext(t.Context()))
		first, rest, ok := strings.Cut(out.String(), "\n")
		require.True(t, ok, args)
		require.Equal(t, settings.Version(), first, args)
		require.Contains(t, rest, runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH+"\n", args)
	}
}

func TestAWordThatIsNoCommandIsAnError(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"bogus":                     `unknown command "bogus" for "kubectl tollgate"`,
		"taints device x:NoExecute": "Did you mean this?\n\ttaint",
		"taint node n x:NoExecute":  `unknown command "node" for "kubectl tollgate taint": that is kubectl taint node`,
		"taint devices d x:None":    `unknown command "devices" for "kubectl tollgate taint": did you mean device?`,
		"untaint node n x":          `unknown command "node" for "kubectl tollgate untaint": that is kubectl taint node NAME KEY-`,
		"export xyz":                `unknown command "xyz" for "kubectl tollgate export": see kubectl tollgate export --help`,
		"version now":               `unknown command "now" for "kubectl tollgate version"`,
	} {
		root := newRootCommand()
		var out bytes.Buffer
		root.SetOut(&out)
		err := execute(t.Context(), root, strings.Fields(line))
		require.ErrorContains(t, err, want, line)
		require.Equal(t, cli.ExitError, cli.ExitCode(err))
		require.Empty(t, out.String(), line)
	}
	for _, line := range []string{"", "taint", "taint --help", "export", "help taint", "completion bash", "__complete taint dev"} {
		root := newRootCommand()
		var out, notes bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&notes)
		require.NoError(t, execute(t.Context(), root, strings.Fields(line)), line)
		require.NotEmpty(t, out.String(), line)
	}
}
