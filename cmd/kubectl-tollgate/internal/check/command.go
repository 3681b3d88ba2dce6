package check

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

// outputs are what -o takes.
var outputs = []string{"text", "wide", "json", "yaml", "junit", "sarif"}

// flags are what the command line says.
type flags struct {
	policies, manifests, tests []string
	by                         Subject
	config, output             string
	cluster, quiet, strict     bool
	pods                       bool
}

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	f := &flags{output: outputs[0]}
	cmd := &cobra.Command{
		Use:   "check -p POLICIES -f MANIFESTS",
		Short: "Judge manifests by policies, before a cluster does",
		Long: `Judge manifests by policies, before a cluster does: in a pull request, on a laptop, without
a cluster. The verdict is that of Tollgate's webhook on the creation of each object. What
the API server has added by then is added first: default tolerations and fields, what a
RuntimeClass brings, the priority, the taint of a new node; then what PlacementPolicies and
TaintPolicies give. Pods, templates of pods, claims and their templates, nodes, namespaces,
slices, DeviceTaintRules and Tollgate's own objects are judged, and others left out. What
Kubernetes itself thinks of an object is not looked at. What was read from a cluster is judged
as if it were created anew: a pod that is bound already, as one put past the scheduler.

Policies and manifests are files, directories with .yaml, .yml and .json files, or - for
standard input; policies may also stand among the manifests. Namespaces with their labels,
nodes, RuntimeClasses, DeviceClasses, PriorityClasses, Roles and their bindings are looked up
among the manifests. What was not found there and may have made a difference is said.

Objects are created by --as and --as-group, else by nobody in particular, who is in no group
but system:authenticated. Workloads that are let in are followed by a pod of each, as its
controller makes it: PlacementPolicies are about pods. --config takes the configuration of the
Tollgate whose verdicts are wanted, where its mode, its feature gates or its admission settings
are not the default.

With --cluster, what is not in the files is looked up in the cluster, each thing once: policies,
namespaces, nodes, and what RBAC allows. That takes the rights to list policies, to get
namespaces, and, where an object hangs on them, to get nodes, ResourceClaims and their templates,
to list DeviceClasses and to create SubjectAccessReviews. Without the rights to get and list
PriorityClasses, to get RuntimeClasses, or to list nodes, over which pods spread, a note says
what is not known.

Without manifests, --cluster asks what TolerationPolicies, those of -p or else those of the
cluster, would refuse of the pods, templates and claims that stand there. Nobody knows who
created these: what policies say of that is not held against them. That takes the right to list
them, namespaces, and policies.

Limits of TaintPolicies on how many pods a taint may affect are not known here: an object
that they would have to be looked at for is undecided.

--tests runs tests of policies, files of kind PolicyTest: objects, who creates them, and what
is to become of each.

Of text, each object that is not simply allowed is listed, with the policy, the field, the
value and what would be allowed; -o wide lists all. JUnit and SARIF are for CI systems: SARIF
names the file and the line where the document of an object begins.

Exit codes: 0, all is allowed and all tests came out as expected; 1, a policy is not valid, a
file does not read, an object is undecided, or the cluster does not answer; 2, an object is
denied, a test did not come out as expected, or there is a warning under
--warnings-as-errors.`,
		Example: `  kubectl tollgate check -p policies/ -f deploy/
  kustomize build overlays/prod | kubectl tollgate check -p policies/ -f - --as alice --as-group team-banana
  kubectl tollgate check --tests policies/tests
  kubectl tollgate check -p policies/ -f deploy/ -o sarif > tollgate.sarif
  kubectl tollgate check --cluster -p new-policy.yaml`,
		Args: cobra.NoArgs,
	}
	connection := cli.ConnectAsOneself(cmd)
	set := cmd.Flags()
	set.StringSliceVarP(&f.policies, "policies", "p", nil, "`files` and directories with policies; - for standard input")
	set.StringSliceVarP(&f.manifests, "filename", "f", nil, "`files` and directories with manifests; - for standard input")
	set.StringSliceVar(&f.tests, "tests", nil, "`files` and directories with PolicyTests")
	set.StringVar(&f.by.User, "as", "", "`user` who creates the objects, such as system:serviceaccount:ci:deployer")
	set.StringSliceVar(&f.by.Groups, "as-group", nil, "`groups` that the user is in")
	set.StringVar(&f.config, "config", "", "`file` with the configuration of Tollgate")
	set.BoolVar(&f.pods, "pods", true, "judge the pods of workloads too, as their controllers make them")
	set.BoolVar(&f.cluster, "cluster", false, "look in the cluster for what is not in files")
	set.StringVarP(&f.output, "output", "o", f.output, "`format`: "+strings.Join(outputs, ", "))
	set.BoolVarP(&f.quiet, "quiet", "q", false, "write nothing: the exit code tells")
	set.BoolVar(&f.strict, "warnings-as-errors", false, "a warning is as bad as a refusal")
	if err := cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputs, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // There is such a flag.
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.validate(); err != nil {
			return err
		}
		config, err := f.configuration()
		if err != nil {
			return err
		}
		r := &runner{
			flags: f, config: config, clock: clock.RealClock{}, connection: connection,
			stdin: cmd.InOrStdin(), out: cmd.OutOrStdout(), notes: cmd.ErrOrStderr(),
		}
		return r.run(cmd.Context())
	}
	return cmd
}

// validate returns what is wrong with the command line.
func (f *flags) validate() error {
	switch {
	case !slices.Contains(outputs, f.output):
		return fmt.Errorf("--output is %q, want one of %s", f.output, strings.Join(outputs, ", "))
	case len(f.manifests) == 0 && len(f.tests) == 0 && !f.cluster:
		return errors.New("there is nothing to check: give manifests (-f), tests (--tests) or --cluster")
	case len(f.tests) > 0 && (f.by.User != "" || len(f.by.Groups) > 0) && len(f.manifests) == 0:
		return errors.New("--as and --as-group say nothing to tests: each case names who creates its objects")
	case len(f.by.Groups) > 0 && f.by.User == "":
		return errors.New("--as-group needs --as: groups are those of a user")
	case stdins(f.policies)+stdins(f.manifests) > 1:
		return errors.New("standard input can be read once: give - once")
	}
	return nil
}

func stdins(paths []string) int {
	count := 0
	for _, path := range paths {
		if path == "-" {
			count++
		}
	}
	return count
}

// configuration returns that of the Tollgate whose verdicts are wanted.
func (f *flags) configuration() (*configv1alpha1.TollgateConfiguration, error) {
	if f.config == "" {
		return configv1alpha1.Default(), nil
	}
	text, err := os.ReadFile(f.config)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	config, err := configv1alpha1.Load(text)
	if err != nil {
		return nil, fmt.Errorf("--config %s: %w", f.config, err)
	}
	return config, nil
}
