// Command tollgate decides who may pass a taint, stamps taints with the time
// from which they count, and evicts the pods that may not stay.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/kubectl"
)

func main() {
	os.Exit(run())
}

// run returns the exit code, so that deferred calls have run by then.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The second signal ends the program, whatever it waits for: standard input cannot be
	// interrupted.
	context.AfterFunc(ctx, stop)
	if err := execute(ctx, newRootCommand(os.Args[0]), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tollgate:", err)
		return kubectl.ExitCode(err)
	}
	return 0
}
