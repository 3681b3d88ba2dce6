// Command bench measures, on one control plane and in one run, how fast Tollgate
// and the controllers built into Kubernetes evict the same pods, from tainted
// nodes and from tainted devices. It fails if a pod that had to go stayed, or one
// that had to stay went.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/tollgate-dev/tollgate/e2e/cmd/internal/command"
)

func main() {
	os.Exit(command.Run(newCommand()))
}

// options are what the command line says.
type options struct {
	// These are how many pods the scenarios have; zero leaves one out.
	pods, defaultPods int
	devicePods        int
	manyDevicePods    int
	defaultDevicePods int
	timedPods         int
	markedPods        int
	decidedPods       int

	nodes    int
	rounds   int
	workers  int
	quick    bool
	markdown bool
}

func newCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:           "bench",
		Short:         "Measure eviction by Tollgate and by the built-in controllers on one control plane",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.quick {
				o.shrink()
			}
			if err := o.validate(); err != nil {
				return err
			}
			return bench(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), o)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.pods, "pods", 1000, "pods to evict from nodes at the same client limits; zero leaves that out, as it does below")
	flags.IntVar(&o.defaultPods, "default-pods", 200, "pods to evict from nodes at each one's default client limits")
	flags.IntVar(&o.devicePods, "device-pods", 1000, "pods to evict from devices at the same client limits, beside a plain loop of PATCH and DELETE")
	flags.IntVar(&o.manyDevicePods, "many-device-pods", 5000, "pods to evict from devices at the same client limits, once by each")
	flags.IntVar(&o.defaultDevicePods, "default-device-pods", 200, "pods to evict from devices at each one's default client limits")
	flags.IntVar(&o.timedPods, "timed-pods", 1000, "pods that become due one hundred a second")
	flags.IntVar(&o.markedPods, "marked-pods", 1000, "pods to evict from nodes with each mark of EvictionPolicies, each beside a loop of the same requests")
	flags.IntVar(&o.decidedPods, "decided-pods", 10_000, "pods up to which is measured how long the decisions take, without an API server")
	flags.IntVar(&o.nodes, "nodes", 20, "nodes, over which the pods are spread")
	flags.IntVar(&o.rounds, "rounds", 1, "rounds, in each of which both evict twice: Tollgate, built-in, built-in, Tollgate")
	flags.IntVar(&o.workers, "workers", 0, "Tollgate's eviction.workers; zero leaves its default")
	flags.BoolVar(&o.quick, "quick", false, "try it out: few pods and nodes, one round; the figures mean little")
	flags.BoolVar(&o.markdown, "markdown", false, "print the tables as Markdown")
	return cmd
}

func (o *options) counts() []*int {
	return []*int{&o.pods, &o.defaultPods, &o.devicePods, &o.manyDevicePods, &o.defaultDevicePods, &o.timedPods, &o.markedPods}
}

// shrink leaves few pods in those scenarios that are not left out.
func (o *options) shrink() {
	o.nodes, o.rounds = 5, 1
	for _, count := range o.counts() {
		*count = min(*count, 100)
	}
	o.decidedPods = min(o.decidedPods, 1000)
	o.defaultPods, o.defaultDevicePods = min(o.defaultPods, 40), min(o.defaultDevicePods, 40)
}

func (o *options) validate() error {
	if o.nodes < 1 || o.rounds < 1 {
		return errors.New("--nodes and --rounds must be at least 1")
	}
	if o.workers < 0 {
		return errors.New("--workers must not be negative")
	}
	most := 0
	for _, count := range o.counts() {
		if *count < 0 || *count%o.nodes != 0 {
			return fmt.Errorf("%d pods do not spread evenly over %d nodes", *count, o.nodes)
		}
		most = max(most, *count)
	}
	if perNode := most / o.nodes; perNode > maxPodsPerNode {
		return fmt.Errorf("%d pods a node are more than the %d that fit", perNode, maxPodsPerNode)
	}
	return nil
}
