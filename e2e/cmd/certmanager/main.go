package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	logf "github.com/cert-manager/cert-manager/pkg/logs"
	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	os.Exit(run())
}

func run() int {
	logf.InitLogs()
	defer logf.FlushLogs()
	ctrl.SetLogger(logf.Log)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// newCommand has a command for each program of cert-manager.
func newCommand() *cobra.Command {
	var kubeconfig string
	cmd := &cobra.Command{Use: "certmanager", SilenceUsage: true, SilenceErrors: true}
	cmd.PersistentFlags().StringVar(&kubeconfig, "kubeconfig", "", "how to reach the cluster")
	programs := map[string]func(ctx context.Context, kubeconfig string) error{
		"controller": runController,
		"cainjector": runInjector,
	}
	for name, program := range programs {
		cmd.AddCommand(&cobra.Command{
			Use:  name,
			Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return program(cmd.Context(), kubeconfig) },
		})
	}
	return cmd
}
