// Package export is the command that exports policies as policies of Kubernetes.
package export

import (
	"github.com/spf13/cobra"
)

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write policies as policies of Kubernetes",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(newMap(), newVAP())
	return cmd
}
