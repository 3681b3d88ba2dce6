package dashboard

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// leaver is set in the process that leaves a child behind.
const leaver = "TOLLGATE_TEST_LEAVES_A_CHILD"

// It is the program of the test below, and nothing by itself.
func TestLeaveAChild(t *testing.T) {
	if os.Getenv(leaver) == "" {
		t.Skip("it does something only in the process that the test below starts")
	}
	child := exec.Command("sleep", "60")
	child.Stdout = os.Stdout
	require.NoError(t, child.Start())
}

// A child of a command, such as a program for credentials, may keep its output open.
func TestACommandEndsWithoutItsChildren(t *testing.T) {
	t.Setenv(leaver, "yes")
	out := &limited{left: mostOutput}
	code, err := execute(t.Context(), []string{"-test.run=^TestLeaveAChild$"}, out)
	require.NoError(t, err)
	require.Zero(t, code)
	require.Contains(t, out.String(), "PASS")
}
