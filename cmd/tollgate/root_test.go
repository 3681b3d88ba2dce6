package main

import (
	"bytes"
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
