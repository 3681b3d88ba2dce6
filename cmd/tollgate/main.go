// Command tollgate decides who may pass a taint, stamps taints with the time
// from which they count, and evicts the pods that may not stay.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(run())
}

// run returns the exit code, so that deferred calls have run by then.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newRootCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "tollgate:", err)
		return 1
	}
	return 0
}
