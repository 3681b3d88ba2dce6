// Command tollgate is the server: the admission webhook, and the evictor with the other
// controllers of the leader. The commands for people are in kubectl-tollgate.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // Expressions of policies name time zones, and the image has no database of them.

	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/app"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The second signal ends the program, whatever it waits for.
	context.AfterFunc(ctx, stop)
	err := app.NewCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tollgate:", err)
		os.Exit(1)
	}
}
