package main

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheProgramIsCalledAsPeopleCallIt(t *testing.T) {
	t.Parallel()
	for called, want := range map[string]string{
		"/usr/bin/tollgate":                "  tollgate devices [flags]\n",
		"/home/me/.krew/kubectl-tollgate":  "  kubectl tollgate devices [flags]\n",
		"C:/bin/kubectl-tollgate.exe":      "  kubectl tollgate devices [flags]\n",
		"./tollgate-of-my-own-kubectl-fan": "  tollgate devices [flags]\n",
	} {
		var out bytes.Buffer
		root := newRootCommand(called)
		root.SetOut(&out)
		root.SetArgs([]string{"devices", "--help"})
		require.NoError(t, root.ExecuteContext(t.Context()))
		require.Contains(t, out.String(), "Usage:\n"+want)
	}
}

func TestTheVersionStandsAloneOnTheFirstLine(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"version"}, {"--version"}} {
		var out bytes.Buffer
		root := newRootCommand("tollgate")
		root.SetOut(&out)
		root.SetArgs(args)
		require.NoError(t, root.ExecuteContext(t.Context()))
		first, rest, ok := strings.Cut(out.String(), "\n")
		require.True(t, ok, args)
		require.Equal(t, version(), first, args)
		require.Contains(t, rest, runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH+"\n", args)
	}
}
