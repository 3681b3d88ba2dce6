package cli

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// unwrapped returns notes in one line.
func unwrapped(notes string) string { return strings.Join(strings.Fields(notes), " ") }

// interrupt runs the program until a line has some words, and interrupts it then.
func (s *evictionSite) interrupt(ctx context.Context, t *testing.T, arguments, words string) output {
	t.Helper()
	cmd := exec.CommandContext(ctx, programs.Plugin(), strings.Fields(s.text(arguments))...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+shared.Kubeconfig())
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var text strings.Builder
	interrupted := false
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		text.WriteString(lines.Text() + "\n")
		if !interrupted && strings.Contains(lines.Text(), words) {
			interrupted = true
			require.NoError(t, cmd.Process.Signal(os.Interrupt))
		}
	}
	require.Contains(t, text.String(), words)
	_ = cmd.Wait() // Its code is looked at.
	return output{out: text.String(), code: cmd.ProcessState.ExitCode()}
}
