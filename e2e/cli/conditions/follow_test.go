package conditions

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// followsOneNamespace has the tenant follow evictions: the pods of the namespace are watched
// there, and what the tenant may not see is said.
func followsOneNamespace(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	cmd := exec.CommandContext(ctx, programs.Plugin(), "evictions", "-n", team, "-w")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfigs[tenant])
	var notes bytes.Buffer // It is read when the program has ended.
	cmd.Stderr = &notes
	require.NoError(t, cmd.Start())
	eventually(t, patience, func(context.Context) error {
		events, err := audit.Read(func(e *auditv1.Event) bool {
			return e.ImpersonatedUser != nil && e.ImpersonatedUser.Username == tenant && e.Verb == "watch" &&
				e.ObjectRef.Resource == "pods" && e.ObjectRef.Namespace == team && e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusOK
		})
		if err == nil && len(events) == 0 {
			err = errors.New("the tenant watches no pods")
		}
		return err
	})
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Wait(), "to be interrupted is no error: %s", notes.String())
	require.NotContains(t, notes.String(), "what is shown may be old")
}
