package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/check"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/dashboard"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/devices"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/explain"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/operate"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/preview"
)

// newRootCommand returns the root command, which is named as users type it.
func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-tollgate",
		Short: "Preview taints, check policies, and show evictions",
		Long: `The commands read the cluster with your rights, and decide with the functions of
Tollgate's admission and eviction.`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl tollgate"},
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	settings.AddVersion(root)
	root.AddCommand(
		operate.NewStatusCommand(), dashboard.NewCommand(), preview.NewSimulateCommand(), preview.NewCommand(), preview.NewTaintCommand(), preview.NewUntaintCommand(), devices.NewCommand(), evictions.NewCommand(),
		operate.NewPauseCommand(), operate.NewResumeCommand(), operate.NewReleaseCommand(), operate.NewApproveCommand(), explain.NewCommand(), check.NewCommand(), check.NewExportCommand(),
	)
	return root
}

// insteadOf maps likely but missing commands to the right ones.
var insteadOf = map[string]string{
	"taint node": "kubectl taint node", "taint nodes": "kubectl taint nodes",
	"untaint node": "kubectl taint node NAME KEY-", "untaint nodes": "kubectl taint nodes NAME KEY-",
}

// execute runs the command of the arguments. For an unknown subcommand Cobra would print help and
// succeed.
func execute(ctx context.Context, root *cobra.Command, args []string) error {
	root.SetArgs(args)
	cmd, rest, err := root.Find(args)
	if err != nil || cmd == root || cmd.Runnable() || len(rest) == 0 || strings.HasPrefix(rest[0], "-") {
		return root.ExecuteContext(ctx) // which says so of an error
	}
	text := fmt.Sprintf("unknown command %q for %q", rest[0], cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = 2
	if instead, ok := insteadOf[cmd.Name()+" "+rest[0]]; ok {
		text += ": that is " + instead
	} else if meant := cmd.SuggestionsFor(rest[0]); len(meant) > 0 {
		text += ": did you mean " + strings.Join(meant, " or ") + "?"
	} else {
		text += ": see " + cmd.CommandPath() + " --help"
	}
	return errors.New(text)
}
