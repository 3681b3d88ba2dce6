package filelock

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOneHolderAtATime(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "on", "demand")
	release, err := Acquire(t.Context(), dir)
	require.NoError(t, err)

	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Acquire(impatient, dir)
	require.ErrorIs(t, err, context.Canceled)

	waited := make(chan error)
	go func() {
		again, err := Acquire(t.Context(), dir)
		if err == nil {
			again()
		}
		waited <- err
	}()
	release()
	require.NoError(t, <-waited)
}
