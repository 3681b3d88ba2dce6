// Command bench measures, on one control plane and in one run, how fast Tollgate
// and the controller built into Kubernetes evict the same pods. It fails if a pod
// that had to go stayed, or one that had to stay went.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

// options are what the command line says.
type options struct {
	pods, defaultPods int
	nodes             int
	rounds            int
	workers           int
	quick             bool
	markdown          bool
}

func newCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:           "bench",
		Short:         "Measure eviction by Tollgate and by the built-in controller on one control plane",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.quick {
				o.pods, o.defaultPods, o.nodes, o.rounds = 100, 40, 5, 1
			}
			if err := o.validate(); err != nil {
				return err
			}
			return bench(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), o)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.pods, "pods", 1000, "pods to evict at the same client limits; zero leaves that out")
	flags.IntVar(&o.defaultPods, "default-pods", 200, "pods to evict at each one's default client limits; zero leaves that out")
	flags.IntVar(&o.nodes, "nodes", 20, "nodes, all tainted at once")
	flags.IntVar(&o.rounds, "rounds", 1, "rounds, in each of which both evict twice: Tollgate, built-in, built-in, Tollgate")
	flags.IntVar(&o.workers, "workers", 0, "Tollgate's eviction.workers; zero leaves its default")
	flags.BoolVar(&o.quick, "quick", false, "try it out: few pods and nodes, one round; the figures mean little")
	flags.BoolVar(&o.markdown, "markdown", false, "print the tables as Markdown")
	return cmd
}

func (o options) validate() error {
	if o.nodes < 1 || o.rounds < 1 {
		return errors.New("--nodes and --rounds must be at least 1")
	}
	if o.workers < 0 {
		return errors.New("--workers must not be negative")
	}
	for _, pods := range []int{o.pods, o.defaultPods} {
		if pods < 0 || pods%o.nodes != 0 {
			return fmt.Errorf("%d pods do not spread evenly over %d nodes", pods, o.nodes)
		}
	}
	if perNode := max(o.pods, o.defaultPods) / o.nodes; perNode > maxPodsPerNode {
		return fmt.Errorf("%d pods a node are more than the %d that fit", perNode, maxPodsPerNode)
	}
	return nil
}
