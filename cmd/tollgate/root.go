package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/commands/approve"
	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/commands/check"
	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/commands/devices"
	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/commands/devicetaint"
	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/commands/evictions"
	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/commands/explain"
	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/commands/export"
	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/commands/preview"
)

// newRootCommand returns the program's command, which calls itself as it was called: as
// kubectl-tollgate it is a plugin, and kubectl tollgate is what people type.
func newRootCommand(called string) *cobra.Command {
	root := &cobra.Command{
		Use:   "tollgate",
		Short: "Decide who may pass a taint, and evict safely those who may not stay",
		Long: `Tollgate decides who may tolerate the taints of a Kubernetes cluster, writes
into node taints the time from which they count, and evicts pods from nodes with
NoExecute taints, on time and never the wrong one.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version(),
	}
	root.SetVersionTemplate(origin())
	if strings.HasPrefix(filepath.Base(called), "kubectl-") {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl tollgate"}
	}
	root.AddCommand(
		newServeCommand(), preview.New(), devicetaint.NewTaint(), devicetaint.NewUntaint(), devices.New(), evictions.New(),
		approve.New(), explain.New(), check.New(), export.New(), newVersionCommand(),
	)
	return root
}

// insteadOf are commands that people look for here, and what is meant.
var insteadOf = map[string]string{
	"taint node": "kubectl taint node", "taint nodes": "kubectl taint nodes",
	"untaint node": "kubectl taint node NAME KEY-", "untaint nodes": "kubectl taint nodes NAME KEY-",
}

// execute runs what the arguments say. Cobra answers a word that is no command of a command
// that is there for its commands by its help, and with success.
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

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), origin())
			return err
		},
	}
}

// origin says what the program was built from and with: its version alone on the first
// line, then the commit where the go command knew it.
func origin() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return version() + "\n"
	}
	commit := ""
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			commit = "commit " + setting.Value + "\n"
		}
	}
	return version() + "\n" + commit + info.GoVersion + " " + runtime.GOOS + "/" + runtime.GOARCH + "\n"
}

// version is that of the module that the program was built from: the tag of the commit,
// without a tag a pseudo-version with its time and hash, with +dirty where there were
// changes besides. It is "(devel)" where the go command did not look at git.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version
}
