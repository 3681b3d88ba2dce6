package settings

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Version returns the version of the module that the program was built from: the tag of the
// commit, without a tag a pseudo-version with its time and hash, with +dirty where the
// working tree had changes. It is "(devel)" where the go command did not look at git.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version
}

// Origin returns the version on the first line, then the commit, if the go command recorded it.
func Origin() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Version() + "\n"
	}
	commit := ""
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			commit = "commit " + setting.Value + "\n"
		}
	}
	return Version() + "\n" + commit + info.GoVersion + " " + runtime.GOOS + "/" + runtime.GOARCH + "\n"
}

// AddVersion adds the command version and the flag --version to the root command of a program,
// which prints its help otherwise. Cobra's own version flag links text/template into the program.
func AddVersion(root *cobra.Command) {
	version := root.Flags().Bool("version", false, "print the version")
	printVersion := func(cmd *cobra.Command, _ []string) error {
		_, err := fmt.Fprint(cmd.OutOrStdout(), Origin())
		return err
	}
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if !*version {
			return cmd.Help()
		}
		return printVersion(cmd, args)
	}
	root.AddCommand(&cobra.Command{Use: "version", Short: "Print the version", Args: cobra.NoArgs, RunE: printVersion})
}
