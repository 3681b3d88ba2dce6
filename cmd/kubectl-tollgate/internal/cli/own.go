package cli

import (
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// ConnectAsOneself is Connect without impersonation and --cluster, for a command that defines
// --as, --as-group and --cluster itself.
func ConnectAsOneself(cmd *cobra.Command) *Connection {
	return connect(cmd, func(flags *genericclioptions.ConfigFlags) {
		flags.Impersonate, flags.ImpersonateUID, flags.ImpersonateGroup = nil, nil, nil
		flags.ImpersonateUserExtra, flags.ClusterName = nil, nil
	})
}
