package cli

import (
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// ConnectAsOneself is Connect for a command that has a meaning of its own for --as, --as-group
// and --cluster: nobody is impersonated, and the cluster is that of the context.
func ConnectAsOneself(cmd *cobra.Command) *Connection {
	return connect(cmd, func(flags *genericclioptions.ConfigFlags) {
		flags.Impersonate, flags.ImpersonateUID, flags.ImpersonateGroup = nil, nil, nil
		flags.ImpersonateUserExtra, flags.ClusterName = nil, nil
	})
}
