// Package export is the command that exports policies as policies of Kubernetes.
package export

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/vap"
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

func newMap() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "map",
		Short: "Write the taints that policies register as MutatingAdmissionPolicies",
		Long: `Write the taints that TaintPolicies and guards of PlacementPolicies register as
MutatingAdmissionPolicies with their bindings. The API server then adds the taints to nodes
itself, even if Tollgate does not run. The command skips objects of other kinds in the file.`,
		Example: `  kubectl tollgate export map -f policies.yaml | kubectl apply -f -
  kubectl get taintpolicies,placementpolicies -o yaml | kubectl tollgate export map -f - | kubectl apply -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := readFile(file, cmd.InOrStdin())
			if err != nil {
				return err
			}
			if len(found.taints) == 0 {
				return errors.New("there is no TaintPolicy in the file")
			}
			var all []runtime.Object
			for i := range found.taints {
				p := &found.taints[i]
				objects, err := vap.Registrations(p)
				if err != nil {
					return fmt.Errorf("export %s: %w", policy.Ref("TaintPolicy", p.Name), err)
				}
				all = append(all, objects...)
			}
			return write(cmd.OutOrStdout(), all)
		},
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", "`file` with TaintPolicies and PlacementPolicies, YAML or JSON; - for standard input")
	_ = cmd.MarkFlagRequired("filename") // There is such a flag.
	return cmd
}
