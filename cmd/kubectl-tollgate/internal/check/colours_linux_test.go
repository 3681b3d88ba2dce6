package check

import (
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// terminal returns both ends of a terminal: the one that a program writes to, and the one that shows it.
func terminal(t *testing.T) (program, screen *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = screen.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	program, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = program.Close() })
	return program, screen
}

func TestColours(t *testing.T) {
	for sentence, c := range map[string]struct {
		noColour, term, format string
		coloured               bool
	}{
		"a terminal gets colours":            {"", "xterm", "text", true},
		"NO_COLOR takes them away":           {"1", "xterm", "text", false},
		"so does a terminal that is dumb":    {"", "dumb", "text", false},
		"JSON has none, also for a terminal": {"", "xterm", "json", false},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Setenv("NO_COLOR", c.noColour)
			t.Setenv("TERM", c.term)
			program, screen := terminal(t)
			cmd := NewCommand()
			cmd.SilenceUsage, cmd.SilenceErrors = true, true
			cmd.SetIn(strings.NewReader("{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: apple}, spec: {tolerations: [{key: dedicated}]}}"))
			cmd.SetOut(program)
			cmd.SetErr(io.Discard)
			cmd.SetArgs([]string{"-p", "testdata/policies", "-f", "-", "-o", c.format})
			written := make(chan error, 1)
			go func() {
				err := cmd.ExecuteContext(t.Context())
				_ = program.Close()
				written <- err
			}()
			shown, _ := io.ReadAll(screen) // It ends with an error when the other end is closed.
			require.Error(t, <-written, "the pod is denied")
			require.Contains(t, string(shown), "denied")
			if c.coloured {
				require.Contains(t, string(shown), red+"denied"+plain)
			} else {
				require.NotContains(t, string(shown), "\x1b")
			}
		})
	}
}
