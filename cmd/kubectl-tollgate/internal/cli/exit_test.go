package cli_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

func TestExitCodesTellNoFromNoAnswer(t *testing.T) {
	t.Parallel()
	require.Zero(t, cli.ExitCode(nil))
	require.Equal(t, 1, cli.ExitCode(errors.New("no such file")))
	verdict := &cli.VerdictError{Reason: "3 of 7 objects do not pass"}
	require.Equal(t, 2, cli.ExitCode(fmt.Errorf("check: %w", verdict)))
	require.EqualError(t, verdict, "3 of 7 objects do not pass")
}
