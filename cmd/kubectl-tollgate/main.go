// Command kubectl-tollgate is a kubectl plugin: it previews taints, taints devices, lists and
// explains evictions, approves them, and checks manifests against policies.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // Expressions of policies name time zones, of which not every laptop has a database.

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

func main() {
	os.Exit(run())
}

// run returns the exit code, so that deferred calls have run by then.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The second signal ends the program at once: reads of standard input cannot be interrupted.
	context.AfterFunc(ctx, stop)
	if err := execute(ctx, newRootCommand(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "kubectl tollgate:", err)
		return cli.ExitCode(err)
	}
	return 0
}
