// Package command runs the commands of e2e/cmd, and prints their progress.
package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// Run executes a command, whose context ends with SIGINT and SIGTERM. It prints an error after the name of the
// command, and returns the exit code.
func Run(cmd *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := cmd.ExecuteContext(ctx); err != nil {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s: %v\n", cmd.Name(), err)
		return 1
	}
	return 0
}

// Progress returns a function that prints a line after the seconds since Progress was called.
func Progress(to io.Writer) (say func(format string, args ...any)) {
	start := time.Now()
	return func(format string, args ...any) {
		_, _ = fmt.Fprintf(to, "%7.1fs  %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
	}
}
