package main

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	for _, arg := range []string{"--nodes=0", "--rate=0", "--seconds=0", "--pods=-1"} {
		command := newCommand()
		command.SetArgs([]string{arg})
		command.SetErr(io.Discard)
		require.ErrorContains(t, command.ExecuteContext(t.Context()), "must be at least 1", arg)
	}
}
