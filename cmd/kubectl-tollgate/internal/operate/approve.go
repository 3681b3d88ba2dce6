package operate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/tracker"
)

// approveCommand is one run of the command approve.
type approveCommand struct {
	command

	target target
	// taint is the key of the taint, empty for all taints with held pods.
	taint string
	// pods is the approved number of pods, 0 for the number held.
	pods   int32
	expiry time.Duration
}

// NewApproveCommand returns the command approve.
func NewApproveCommand() *cobra.Command {
	c := &approveCommand{command: command{clock: clock.RealClock{}}}
	cmd := &cobra.Command{
		Use:   "approve node|rule|patch|policy NAME",
		Short: "Approve evictions that a breaker holds or a limit would refuse",
		Long: `Create EvictionApprovals. An approval lets pods leave because of one taint of one node,
DeviceTaintRule or ResourceSlicePatch, although the breaker of an EvictionPolicy holds them
or the limits of a TaintPolicy would refuse the taint.

The command shows the held pods, asks for confirmation, and approves that number of pods for
each taint of the object. With policy, it does so for each taint because of which that
EvictionPolicy holds pods. --pods sets another number. For a taint that is not set yet, use
--taint and --pods: the node must exist, but the DeviceTaintRule or ResourceSlicePatch need
not exist yet.

An approval is used once, for one appearance of the taint, within the time of --for. Tollgate
chooses which of the held pods leave. An approval does not end a pause, a protection, or the
wait for a PodDisruptionBudget.

The exit code is 1 after an error or if you do not confirm, and otherwise 0. You need the
rights for "kubectl tollgate evictions", and the verb create on evictionapprovals of the API
group tollgate.dev.`,
		Example: `  kubectl tollgate approve node node-7
  kubectl tollgate approve policy default --yes
  kubectl tollgate approve rule quarantine --taint example.com/broken --pods 120 --for 30m --dry-run=server`,
		Args: cobra.ExactArgs(2),
	}
	state.CompleteKinds(cmd, c.build(cmd, c.complete, c.run), kindNames()...)
	c.addFlags(cmd)
	return cmd
}

func (c *approveCommand) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&c.taint, "taint", "", "only for the taint with this `key`")
	flags.Int32Var(&c.pods, "pods", 0, "maximum `number` of pods that may leave; 0 for the number of held pods")
	flags.DurationVar(&c.expiry, "for", time.Hour, "`duration` for which the approval can be used")
	c.command.addFlags(cmd, "created", true)
}

// complete reads the arguments, or returns an error if they or the flags are invalid.
func (c *approveCommand) complete(args []string) (err error) {
	if c.target, err = targetOf(args[0], args[1]); err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return err
	}
	return validTerms(c.pods, c.expiry)
}

// validTerms returns an error for an invalid number of pods, or time, of an approval.
func validTerms(pods int32, expiry time.Duration) error {
	const longest = 7 * 24 * time.Hour
	switch {
	case pods < 0:
		return fmt.Errorf("--pods is %d, want 1 or more, or 0 for the pods that are held", pods)
	case expiry <= 0 || expiry > longest:
		return fmt.Errorf("--for is %s, want more than 0s and at most %s", expiry, longest)
	}
	return nil
}

// run shows the held pods, asks for confirmation, and creates the approvals.
func (c *approveCommand) run(ctx context.Context, clients *cli.Clients) error {
	if err := c.served(ctx, clients, approvalResource, "EvictionApprovals"); err != nil {
		return err
	}
	now := c.clock.Now()
	shown, cluster, err := c.read(ctx, clients)
	if err != nil {
		return err
	}
	warning, err := c.target.check(cluster)
	if err != nil {
		return err
	}
	planned, err := c.plan(shown.List(now, &evictions.Filter{}))
	if err != nil {
		return err
	}
	if err := cli.WriteWrapped(c.notes, "", slices.Concat(cluster.Missing(), warning, c.sentences(planned, now))); err != nil {
		return err
	}
	if err := c.confirm(ctx, "Approve?", "nothing was approved"); err != nil {
		return err
	}
	for _, a := range planned.list {
		if err := c.approve(ctx, clients, c.objectOf(&a)); err != nil {
			return err
		}
	}
	return nil
}

var approvalResource = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "evictionapprovals"}

// approve creates an approval, unless in a dry run, and prints it. Approvals created before an error
// stay.
func (c *command) approve(ctx context.Context, clients *cli.Clients, approval *v1alpha1.EvictionApproval) error {
	approval.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "EvictionApproval"}
	object, err := unstructuredOf(approval)
	if err != nil {
		return err
	}
	if c.DryRun != cli.DryRunClient {
		options := metav1.CreateOptions{FieldManager: "tollgate-approve", FieldValidation: metav1.FieldValidationStrict, DryRun: c.RequestDryRun()}
		object, err = clients.Dynamic.Resource(approvalResource.WithVersion(v1alpha1.GroupVersion.Version)).Create(ctx, object, options)
		if err != nil {
			return cli.Failed(err, "create EvictionApproval", "create", approvalResource)
		}
	}
	return c.print(object, "created")
}

// objectOf returns the object of an approval. The API server generates its name from the object and
// the taint, since the same taint may be approved again later.
func (c *approveCommand) objectOf(a *approval) *v1alpha1.EvictionApproval {
	object := &v1alpha1.EvictionApproval{
		ObjectMeta: metav1.ObjectMeta{GenerateName: generatedName(a.source.Name + "-" + a.key[strings.LastIndex(a.key, "/")+1:])},
		Spec: v1alpha1.EvictionApprovalSpec{
			Taint:   v1alpha1.ApprovedTaint{Key: a.key, Effect: corev1.TaintEffectNoExecute},
			MaxPods: a.most, ExpiresAfter: metav1.Duration{Duration: c.expiry},
		},
	}
	switch a.source.Kind {
	case tracker.SourceRule:
		object.Spec.DeviceTaintRule = a.source.Name
	case tracker.SourcePatch:
		object.Spec.ResourceSlicePatch = a.source.Name
	case tracker.SourceNode:
		object.Spec.Node = a.source.Name
	case tracker.SourceSlice:
	}
	return object
}

// generatedName returns the prefix of a name that the API server generates.
func generatedName(text string) string { return strings.Trim(cli.PartOfName(text), "-") + "-" }
