package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/policy/vap"
)

// NewExportCommand returns the command export.
func NewExportCommand() *cobra.Command {
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
			for _, p := range found.taints {
				objects, err := vap.Registrations(&p)
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

// exportOptions are the flags of export vap.
type exportOptions struct {
	file     string
	partial  bool
	settings vap.Settings
}

func newVAP() *cobra.Command {
	o := exportOptions{settings: vap.DefaultSettings()}
	cmd := &cobra.Command{
		Use:   "vap",
		Short: "Write policies as ValidatingAdmissionPolicies",
		Long: `Write TolerationPolicies, TaintPolicies and guards of PlacementPolicies as
ValidatingAdmissionPolicies with their bindings, which the API server evaluates itself. This is
for clusters that cannot have a webhook, and for times in which Tollgate does not run. Without
-f, the command reads the policies of the cluster with your rights.

A TolerationPolicy becomes policies about pods and pod templates, about claims, and about the
labels of namespaces in its grants. A TaintPolicy becomes policies about the taints of nodes
and of DeviceTaintRules. The guard of a PlacementPolicy becomes the policies of the
TolerationPolicy and the TaintPolicy whose effect it has. The verdicts are those of Tollgate,
with exceptions that standard error and the annotation tollgate.dev/not-exported list. For
example, these policies cannot see the taints of the node to which a pod is bound without the
scheduler.

The command does not export a policy with a field that the API server cannot evaluate, such as
limits; --partial exports the rest of the policy. Exported policies do not follow their
originals. When the originals change, export and apply them again. When an original is deleted,
delete its exported policies, which have the annotation tollgate.dev/exported-from.

Flags pass the settings of Tollgate and the flags of the API server. For example, without
--workload-controllers the exported policies refuse the pods that such a controller creates
from a judged template, unless a grant names its user.

The API server limits the cost of one expression, and refuses a request beyond the limit: for
example, an update that adds several hundred guarded tolerations to a pod, or an object with
more than 8 taint keys that only RBAC could grant.

The exit code is 0 if all policies were exported, 2 if some were not, and 1 if they could not be
read. You need the right to list tolerationpolicies, taintpolicies and placementpolicies of the
API group tollgate.dev.`,
		Example: `  kubectl tollgate export vap -f policies.yaml | kubectl apply -f -
  kubectl tollgate export vap --partial > exported.yaml
  kubectl get tolerationpolicies,placementpolicies -o yaml | kubectl tollgate export vap -f -`,
		Args: cobra.NoArgs,
	}
	connection := cli.ConnectToAll(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&o.file, "filename", "f", "", "`file` with policies, YAML or JSON, instead of those of the cluster; - for standard input")
	flags.BoolVar(&o.partial, "partial", false, "export policies with fields that cannot be exported, without those fields")
	flags.StringSliceVar(&o.settings.Exempt, "exempt-namespaces", o.settings.Exempt, "`namespaces` to which the policies do not apply")
	flags.StringVar(&o.settings.Self, "tollgate-user", o.settings.Self, "`user` of Tollgate, whose writes of taints are not judged")
	flags.StringSliceVar(&o.settings.WorkloadControllers, "workload-controllers", nil, "`users` that create pods from templates, in addition to the controllers of Kubernetes, as in Tollgate's configuration")
	flags.Int64Var(&o.settings.NotReady, "default-not-ready-toleration-seconds", o.settings.NotReady, "`seconds` in the flag of the API server of the same name")
	flags.Int64Var(&o.settings.Unreachable, "default-unreachable-toleration-seconds", o.settings.Unreachable, "`seconds` in the flag of the API server of the same name")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		found, err := o.read(cmd.Context(), connection, cmd.InOrStdin(), cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		return o.export(found, cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return cmd
}

func (o *exportOptions) read(ctx context.Context, connection *cli.Connection, stdin io.Reader, notes io.Writer) (policies, error) {
	if o.file == "" {
		clients, err := connection.Clients(notes)
		if err != nil {
			return policies{}, err
		}
		return readCluster(ctx, clients)
	}
	found, err := readFile(o.file, stdin)
	if err == nil && found.len() == 0 {
		err = errors.New("there is no TolerationPolicy and no TaintPolicy in the file")
	}
	return found, err
}

// export writes the exported policies to out, and the rest to notes.
func (o *exportOptions) export(found policies, out, notes io.Writer) error {
	if found.len() == 0 {
		_, err := fmt.Fprintln(notes, "There are no TolerationPolicies and no TaintPolicies: nothing to export.")
		return err
	}
	r := result{partial: o.partial}
	if err := o.add(&found, &r); err != nil {
		return err
	}
	if err := write(out, r.objects); err != nil {
		return err
	}
	if len(r.general) > 0 {
		r.lines = append(append(r.lines, "What Tollgate does and no exported policy can:"), r.general...)
	}
	for _, line := range r.lines {
		indent := len(line) - len(strings.TrimLeft(line, " "))
		if _, err := io.WriteString(notes, cli.Wrap(indent, line)); err != nil {
			return fmt.Errorf("write notes: %w", err)
		}
	}
	if r.left > 0 {
		return &cli.VerdictError{Reason: fmt.Sprintf("%d of %d policies not exported: --partial exports what can be", r.left, found.len())}
	}
	return nil
}

// add exports policies, one after the other.
func (o *exportOptions) add(found *policies, r *result) error {
	for _, p := range found.tolerations {
		exported, err := vap.Tolerations(&p, o.settings)
		if err != nil {
			return err
		}
		r.add(policy.Ref("TolerationPolicy", p.Name), &exported)
	}
	for _, p := range found.taints {
		exported, err := vap.Taints(&p, found.taints, o.settings)
		if err != nil {
			return err
		}
		r.add(policy.Ref("TaintPolicy", p.Name), &exported)
	}
	return nil
}

// result has the exported objects and the notes.
type result struct {
	partial bool
	objects []runtime.Object
	// lines are notes about single policies, general those about all.
	lines, general []string
	left           int
}

func (r *result) add(name string, exported *vap.Exported) {
	head := name + ": exported, but without"
	whole := len(exported.Missing()) == 0 || r.partial
	if whole {
		r.objects = append(r.objects, exported.Objects...)
	} else {
		head = name + ": not exported, because of"
		r.left++
	}
	var about []string
	for _, note := range exported.Notes {
		if strings.HasPrefix(name, "PlacementPolicy/") {
			note.Field = placement.GuardField(note.Field)
		}
		line := "  " + note.String()
		switch {
		case note.Field != "" && (whole || note.Partial):
			about = append(about, line)
		case note.Field == "" && whole && !slices.Contains(r.general, line):
			r.general = append(r.general, line)
		}
	}
	if len(about) > 0 {
		r.lines = append(append(r.lines, head), about...)
	}
}
