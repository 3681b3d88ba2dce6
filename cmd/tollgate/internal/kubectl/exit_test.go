package kubectl_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/kubectl"
)

func TestExitCodesTellNoFromNoAnswer(t *testing.T) {
	t.Parallel()
	require.Zero(t, kubectl.ExitCode(nil))
	require.Equal(t, 1, kubectl.ExitCode(errors.New("no such file")))
	verdict := &kubectl.VerdictError{Reason: "3 of 7 objects do not pass"}
	require.Equal(t, 2, kubectl.ExitCode(fmt.Errorf("check: %w", verdict)))
	require.EqualError(t, verdict, "3 of 7 objects do not pass")
}
