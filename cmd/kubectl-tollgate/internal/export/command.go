// Package export is the command that exports policies as policies of Kubernetes.
package export

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

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
		Short: "Write what TaintPolicies register as MutatingAdmissionPolicies",
		Long: `Write what TaintPolicies register as MutatingAdmissionPolicies with their bindings,
for the API server to give nodes their taints itself, also while Tollgate is away.
Objects of other kinds in the file are left out.`,
		Example: `  kubectl tollgate export map -f policies.yaml | kubectl apply -f -
  kubectl get taintpolicies -o yaml | kubectl tollgate export map -f - | kubectl apply -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			data, err := readInput(file, cmd.InOrStdin())
			if err != nil {
				return err
			}
			return exportMap(data, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", "`file` with TaintPolicies, YAML or JSON; - for standard input")
	if err := cmd.MarkFlagRequired("filename"); err != nil {
		panic(err) // There is such a flag.
	}
	return cmd
}

// exportMap writes the registered taints of the TaintPolicies in data.
func exportMap(data []byte, out io.Writer) error {
	found, err := decode(data)
	if err != nil {
		return err
	}
	if len(found.taints) == 0 {
		return errors.New("there is no TaintPolicy in the file")
	}
	for i := range found.taints {
		p := &found.taints[i]
		objects, err := vap.Registrations(p)
		if err != nil {
			return fmt.Errorf("export %s: %w", policy.Ref("TaintPolicy", p.Name), err)
		}
		for _, object := range objects {
			if err := writeYAML(out, object); err != nil {
				return err
			}
		}
	}
	return nil
}
