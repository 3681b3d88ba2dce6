// Package export is the command that writes policies as policies of Kubernetes.
package export

import (
	"github.com/spf13/cobra"
)

// New returns the command.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write policies as policies of Kubernetes",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(newMap(), newVAP())
	return cmd
}
