package admission

import (
	"context"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/e2e/process"
)

// A pipe that is full from the start stands for a log that nobody reads: a write to it
// does not return. Tollgate logs as it starts and as it ends.
func TestE14ALogThatNobodyReadsHoldsUpNothing(t *testing.T) {
	pipe := fullPipe(t)
	stuck := startReplica(t, "stuck-log", apiServer(), func(spec *process.Spec) {
		spec.Args = append([]string{"-c", `log=$1; shift; exec "$@" 2>"$log"`, "sh", pipe, spec.Path}, spec.Args...)
		spec.Path = "/bin/sh"
	})
	stuck.waitReady(t)
	callers, err := newCaller(t.Context(), t)
	require.NoError(t, err)
	answered, err := callers.ask(t.Context(), stuck.webhookURL, metav1.NamespaceDefault, podWith())
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answered.status, answered.body)

	require.NoError(t, stuck.process.Signal(syscall.SIGTERM))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, stuck.process.Wait(ctx), "it does not end")
}

// fullPipe returns the path of a named pipe that takes nothing more.
func fullPipe(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	// Whoever opens it again is blocked by it all the same.
	pipe, err := syscall.Open(path, syscall.O_RDWR|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Close(pipe)) })
	page := make([]byte, 4096)
	for err == nil {
		_, err = syscall.Write(pipe, page)
	}
	require.ErrorIs(t, err, syscall.EAGAIN)
	return path
}
