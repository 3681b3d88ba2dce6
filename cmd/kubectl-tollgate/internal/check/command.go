// Package check is the command that judges objects from files as the webhook would judge
// their creation, without a cluster, that judges existing objects, and that runs tests of
// policies. The command export writes policies as policies of Kubernetes.
//
// The endpoints of the webhook answer in this process, so there is one judgement. The code here
// does what surrounds them: it changes an object as the API server does before it calls the
// webhook, it selects the objects for which the API server calls the webhook, and it answers the
// reads of a review from the files.
//
// # Defaults and built-in admission plugins
//
// A kube-apiserver sets defaults and runs its own admission plugins before it calls webhooks
// (TP-03 and TP-15 to TP-19 in the comments). Package check does the same for all fields that a
// verdict can depend on: tolerations, node selectors, the service account, the priority, requests,
// and fields of pods and device requests that always have a value. Refusals by plugins are left
// out, and so are the changes by which PodNodeSelector, PodTolerationRestriction and LimitRanger
// apply annotations and objects of a namespace. Kubernetes' own validation is not done: a pod
// without containers passes.
//
// # Existing objects
//
// The command judges objects in a cluster by TolerationPolicies alone: by what they would refuse
// if the object were created today. The creator is unknown then, so conditions on the creator
// count as satisfied, as in package audit.
//
// # NodePools
//
// Karpenter launches nodes for pods that fit its NodePools. The command warns of a NodePool that
// does not name a taint that TaintPolicies register on its nodes.
//
// Reports are text, JSON, YAML, JUnit for the pages of a CI system, or SARIF for findings beside
// the code.
package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

// command is one run of the command.
type command struct {
	policies, manifests, tests []string
	by                         Subject
	output                     cli.Output
	configFile                 string
	cluster, quiet, strict     bool
	pods                       bool

	config *configv1alpha1.TollgateConfiguration
	clock  clock.Clock
	// clients and namespace are those of the connection.
	clients   func(notes io.Writer) (*cli.Clients, error)
	namespace func() (name string, given bool, err error)
	stdin     io.Reader
	// out gets the report, notes the notes.
	out, notes io.Writer
}

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	c := &command{clock: clock.RealClock{}, config: configv1alpha1.Default()}
	cmd := &cobra.Command{
		Use:   "check -p POLICIES -f MANIFESTS",
		Short: "Judge manifests by policies before they reach a cluster",
		Long: `Judge manifests by policies before they reach a cluster, for example in a pull request.

The verdict is that of Tollgate's webhook on the creation of each object. The command first
adds the fields that the API server adds: default tolerations and fields, the fields of the
RuntimeClass, the priority, and the taint of a new node. It then adds the fields of
PlacementPolicies and TaintPolicies. It judges pods, pod templates, claims and their templates,
nodes, namespaces, slices, DeviceTaintRules and the objects of Tollgate, and skips others. It
warns about a NodePool of Karpenter (karpenter.sh/v1) that does not name the taints that
TaintPolicies register on its nodes. It does not validate objects as Kubernetes does. It judges
objects that were read from a cluster as if they were created now: a pod with a node counts as
placed there without the scheduler.

Policies and manifests are files, directories with .yaml, .yml and .json files, or - for
standard input. Manifests may contain policies. The command looks up namespaces with their
labels, nodes, RuntimeClasses, DeviceClasses, PriorityClasses, Roles and their bindings in the
manifests. A note names the missing objects that may change the verdict.

--as and --as-group name the user who creates the objects. By default, it is an unknown user
in the group system:authenticated. For each allowed workload, the command also judges a pod,
as the controller creates it, because PlacementPolicies apply to pods. --config names the
configuration of Tollgate, if its mode, feature gates or admission settings differ from the
defaults.

With --cluster, the command looks up missing objects in the cluster: policies, namespaces,
nodes, and RBAC permissions. You need the rights to list policies and to get namespaces. If
objects refer to them, you also need the rights to get nodes, ResourceClaims and their
templates, to list DeviceClasses, and to create SubjectAccessReviews. If you may not get and
list PriorityClasses, get RuntimeClasses, or list nodes for topology spread, a note names the
missing data.

With --cluster and without manifests, the command judges the existing pods, templates and
claims by the TolerationPolicies of -p, or else by those of the cluster. The creators of these
objects are unknown, so conditions about the creator count as satisfied. You need the rights
to list these objects, namespaces and policies. If Karpenter is installed and you name no
namespace, the command checks NodePools too.

The command cannot evaluate the limits of TaintPolicies on the number of affected pods. An
object to which such a limit applies is undecided.

--tests runs policy tests, which are files of kind PolicyTest with objects, their creators and
the expected verdicts.

The text output lists each object that is not allowed without a warning, with the policy, the
field, the value and the allowed values. -o wide lists all objects. JUnit and SARIF are for CI
systems. SARIF names the file and the line at which the document of an object begins.

Exit codes:

  0  all objects are allowed, and all tests passed
  1  a policy is not valid, a file cannot be read, an object is undecided, or the cluster
     does not answer
  2  an object is denied, a test failed, or there is a warning with --warnings-as-errors`,
		Example: `  kubectl tollgate check -p policies/ -f deploy/
  kustomize build overlays/prod | kubectl tollgate check -p policies/ -f - --as alice --as-group team-banana
  kubectl tollgate check --tests policies/tests
  kubectl tollgate check -p policies/ -f deploy/ -o sarif > tollgate.sarif
  kubectl tollgate check --cluster -p new-policy.yaml`,
		Args: cobra.NoArgs,
	}
	connection := cli.ConnectAsOneself(cmd)
	c.clients, c.namespace = connection.Clients, connection.Namespace
	set := cmd.Flags()
	set.StringSliceVarP(&c.policies, "policies", "p", nil, "`files` and directories with policies; - for standard input")
	set.StringSliceVarP(&c.manifests, "filename", "f", nil, "`files` and directories with manifests; - for standard input")
	set.StringSliceVar(&c.tests, "tests", nil, "`files` and directories with PolicyTests")
	set.StringVar(&c.by.User, "as", "", "`user` who creates the objects, such as system:serviceaccount:ci:deployer")
	set.StringSliceVar(&c.by.Groups, "as-group", nil, "`groups` that the user is in")
	set.StringVar(&c.configFile, "config", "", "`file` with the configuration of Tollgate")
	set.BoolVar(&c.pods, "pods", true, "judge the pods of workloads too, as their controllers make them")
	set.BoolVar(&c.cluster, "cluster", false, "look up objects in the cluster that are not in the files")
	c.output.AddFlag(cmd, "`format`", "text", "wide", "json", "yaml", "junit", "sarif")
	set.BoolVarP(&c.quiet, "quiet", "q", false, "write nothing, and only set the exit code")
	set.BoolVar(&c.strict, "warnings-as-errors", false, "treat warnings as refusals")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c.stdin, c.out, c.notes = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
		if err := c.complete(); err != nil {
			return err
		}
		return c.run(cmd.Context())
	}
	return cmd
}

// complete returns an error for an invalid command line, and reads the configuration of Tollgate.
func (c *command) complete() error {
	stdin := slices.DeleteFunc(slices.Concat(c.policies, c.manifests), func(path string) bool { return path != "-" })
	switch err := c.output.Validate(); {
	case err != nil:
		return err
	case len(c.manifests) == 0 && len(c.tests) == 0 && !c.cluster:
		return errors.New("there is nothing to check: give manifests (-f), tests (--tests) or --cluster")
	case len(c.tests) > 0 && (c.by.User != "" || len(c.by.Groups) > 0) && len(c.manifests) == 0:
		return errors.New("--as and --as-group say nothing to tests: each case names who creates its objects")
	case len(c.by.Groups) > 0 && c.by.User == "":
		return errors.New("--as-group needs --as: groups are those of a user")
	case len(stdin) > 1:
		return errors.New("standard input can be read once: give - once")
	case c.configFile == "":
		return nil
	}
	text, err := os.ReadFile(c.configFile)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	if c.config, err = configv1alpha1.Load(text); err != nil {
		return fmt.Errorf("--config %s: %w", c.configFile, err)
	}
	return nil
}

// run judges, and writes the report. The error follows from the verdicts.
func (c *command) run(ctx context.Context) error {
	report := &Report{Results: []Result{}}
	if err := c.fill(ctx, report); err != nil {
		return err
	}
	report.summarize()
	if !c.quiet {
		if err := cli.WriteWrapped(c.notes, "note: ", report.Notes); err != nil {
			return err
		}
		if err := report.Write(c.out, c.output.Format); err != nil {
			return err
		}
	}
	are := func(n int, verdict string) string {
		return cli.Counted(n, "object") + cli.Plural(n, " is ", " are ") + verdict
	}
	switch s := &report.Summary; {
	case s.Undecided > 0:
		return errors.New(are(s.Undecided, "undecided"))
	case s.Denied > 0:
		return &cli.VerdictError{Reason: are(s.Denied, "denied")}
	case s.Failed > 0:
		return &cli.VerdictError{Reason: fmt.Sprintf("%d of %d cases did not come out as expected", s.Failed, len(report.Cases))}
	case c.strict && s.Warned > 0:
		return &cli.VerdictError{Reason: are(s.Warned, "allowed with warnings")}
	}
	return nil
}

// fill reads the files, runs the tests, and judges the manifests or the cluster.
func (c *command) fill(ctx context.Context, report *Report) error {
	given, err := cli.ReadManifests(c.policies, c.stdin)
	if err != nil {
		return err
	}
	objects, err := cli.ReadManifests(c.manifests, c.stdin)
	if err != nil {
		return err
	}
	// Without this error, a wrong path would allow everything.
	if len(given) > 0 && !slices.ContainsFunc(given, func(o cli.Object) bool { _, is := policyKindOf(o.Unstructured); return is }) {
		return fmt.Errorf("--policies: there is no policy of Tollgate in them; the first object is a %s (%s)", given[0].GetKind(), given[0].Position)
	}
	all := slices.Concat(given, objects)
	policies, err := (Policies{}).With(all)
	if err != nil {
		return fmt.Errorf("policies that are not valid:\n%w", err)
	}
	options := Options{Policies: policies, Objects: given, Config: c.config, Clock: c.clock, Namespace: "default"}
	if name, named, err := c.namespace(); named && err == nil {
		options.Namespace = name
	}
	tests, err := readTests(c.tests)
	if err != nil {
		return err
	}
	for _, test := range tests {
		outcomes, err := test.Run(ctx, options)
		if err != nil {
			return err
		}
		report.Cases = append(report.Cases, outcomes...)
	}
	switch {
	case len(c.manifests) > 0:
		options.Objects = all
		return c.judge(ctx, options, objects, report)
	case c.cluster:
		return c.scan(ctx, options.Policies, report)
	}
	return nil
}

// judge judges manifests.
func (c *command) judge(ctx context.Context, options Options, objects []cli.Object, report *Report) error {
	if c.by.User == "" {
		report.note("objects are created by nobody in particular, in no group but system:authenticated: say by whom with --as and --as-group")
	}
	if c.cluster {
		if err := c.lookup(ctx, &options, report); err != nil {
			return err
		}
	}
	checker, err := NewChecker(options)
	if err != nil {
		return err
	}
	report.By, report.Policies = c.by.String(), options.Policies.Len()
	for _, object := range objects {
		if pool, ok := checker.JudgeNodePool(object); ok {
			report.Results = append(report.Results, pool)
			continue
		}
		if !checker.Judged(object.Unstructured) {
			report.Skipped++
			continue
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("judge %s: %w", object.Position, err)
		}
		result := checker.Judge(ctx, object, c.by)
		report.Results = append(report.Results, result)
		if !c.pods || result.Verdict == Denied || result.Verdict == Undecided {
			continue
		}
		if pod, ok := checker.JudgePod(ctx, object); ok {
			report.Results = append(report.Results, pod)
		}
	}
	report.note(checker.Notes()...)
	return nil
}
