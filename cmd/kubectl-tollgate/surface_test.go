package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

const surfaceFile = "testdata/commands.txt"

// Scripts depend on commands and flags. A change of them goes in a commit of its own with a
// line in CHANGELOG.md.
func TestTheSurface(t *testing.T) {
	t.Parallel()
	text := strings.Join(surfaceCommands(), "\n") + "\n"
	if *update {
		require.NoError(t, os.WriteFile(surfaceFile, []byte(text), 0o600))
	}
	written, err := os.ReadFile(surfaceFile)
	require.NoError(t, err)
	require.Equal(t, string(written), text, "to write it: go test ./cmd/kubectl-tollgate -run TestTheSurface -update")
}

// surfaceCommands lists the flags of all commands but those that kubectl has as well.
func surfaceCommands() []string {
	connection := connectionFlags()
	var lines []string
	var list func(cmd *cobra.Command)
	list = func(cmd *cobra.Command) {
		lines = append(lines, strings.Join(append([]string{cmd.CommandPath()}, cmd.Aliases...), " | "))
		cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			if known := connection.Lookup(f.Name); known == nil || known.Usage != f.Usage {
				name := "--" + f.Name
				if f.Shorthand != "" {
					name += " -" + f.Shorthand
				}
				lines = append(lines, fmt.Sprintf("%s %s %s = %q", cmd.CommandPath(), name, f.Value.Type(), f.DefValue))
			}
		})
		for _, sub := range cmd.Commands() {
			list(sub)
		}
	}
	list(newRootCommand())
	return lines
}
