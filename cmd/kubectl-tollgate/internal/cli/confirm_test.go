package cli

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnlyYesIsYes(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]bool{"y\n": true, "YES\n": true, "yes": true, "\ty\n": true, "\n": false, "": false, "n\n": false, "yep\n": false} {
		var out bytes.Buffer
		got, err := Ask(t.Context(), strings.NewReader(answer), &out, "Go?")
		require.NoError(t, err)
		require.Equal(t, want, got, answer)
		require.Equal(t, "Go? [y/N] ", out.String())
	}
	require.False(t, Terminal(strings.NewReader("y\n")))
	nobody, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer func() { require.NoError(t, nobody.Close()) }()
	require.False(t, Terminal(nobody), "the null device is a character device too")
}

func TestAnInterruptEndsTheQuestion(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	silent, writer := io.Pipe()
	defer func() { require.NoError(t, writer.Close()) }()
	_, err := Ask(ctx, silent, io.Discard, "Go?")
	require.ErrorIs(t, err, context.Canceled)
}
