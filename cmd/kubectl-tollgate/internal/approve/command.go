// Package approve is the command that approves evictions that a breaker holds.
package approve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/tracker"
)

// command is one run of the command.
type command struct {
	cli.WriteFlags

	target target
	// taint is the key of the taint, empty for all taints with held pods.
	taint string
	// pods is the approved number of pods, 0 for the number held.
	pods   int32
	expiry time.Duration
	yes    bool
	wants  state.Wants
	clock  clock.PassiveClock

	in         io.Reader
	out, notes io.Writer
}

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	c := &command{clock: clock.RealClock{}}
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
		Args:      cobra.ExactArgs(2),
		ValidArgs: kindNames(),
	}
	connection := cli.ConnectToAll(cmd)
	c.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.in, c.out, c.notes = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
		if err := c.complete(args); err != nil {
			return err
		}
		clients, err := connection.Clients(c.notes)
		if err != nil {
			return err
		}
		return c.run(cmd.Context(), clients)
	}
	return cmd
}

func (c *command) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&c.taint, "taint", "", "only for the taint with this `key`")
	flags.Int32Var(&c.pods, "pods", 0, "maximum `number` of pods that may leave; 0 for the number of held pods")
	flags.DurationVar(&c.expiry, "for", time.Hour, "`duration` for which the approval can be used")
	flags.BoolVarP(&c.yes, "yes", "y", false, "do not ask")
	c.AddFlags(cmd, "`format` of what is created", "`none`, client (create nothing) or server (have the API server check it, and create nothing)")
	c.wants.AddFlags(cmd)
}

// complete reads the arguments, or returns an error if they or the flags are invalid.
func (c *command) complete(args []string) (err error) {
	const longest = 7 * 24 * time.Hour
	if c.target, err = targetOf(args[0], args[1]); err != nil {
		return err
	}
	switch err := c.Validate(); {
	case err != nil:
		return err
	case c.pods < 0:
		return fmt.Errorf("--pods is %d, want 1 or more, or 0 for the pods that are held", c.pods)
	case c.expiry <= 0 || c.expiry > longest:
		return fmt.Errorf("--for is %s, want more than 0s and at most %s", c.expiry, longest)
	}
	return nil
}

// run shows the held pods, asks for confirmation, and creates the approvals.
func (c *command) run(ctx context.Context, clients *cli.Clients) error {
	_, err := clients.Version(ctx, approvalResource, v1alpha1.GroupVersion.Version)
	if errors.Is(err, cli.ErrNotServed) {
		return errors.New("approve: the API server does not serve EvictionApprovals: nothing is held here until Tollgate's CustomResourceDefinitions are installed, and it runs")
	}
	if err != nil {
		return err
	}
	now := c.clock.Now()
	shown, cluster, err := evictions.Read(ctx, clients, now, c.wants)
	clients.Progress.End()
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
	if c.DryRun == cli.DryRunNone && !c.yes {
		if !cli.Terminal(c.in) {
			return errors.New("nobody can be asked, since the input is no terminal: give --yes")
		}
		agreed, err := cli.Ask(ctx, c.in, c.notes, "Approve?")
		if err != nil {
			return err
		}
		if !agreed {
			return errors.New("nothing was approved")
		}
	}
	for _, a := range planned.list {
		if err := c.create(ctx, clients, &a); err != nil {
			return err
		}
	}
	return nil
}

var approvalResource = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "evictionapprovals"}

// create creates an approval, unless in a dry run, and prints it. Approvals created before an error
// stay.
func (c *command) create(ctx context.Context, clients *cli.Clients, a *approval) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c.objectOf(a))
	if err != nil {
		return fmt.Errorf("write EvictionApproval: %w", err)
	}
	delete(fields, "status")
	object := &unstructured.Unstructured{Object: fields}
	if c.DryRun != cli.DryRunClient {
		options := metav1.CreateOptions{FieldManager: "tollgate-approve", FieldValidation: metav1.FieldValidationStrict, DryRun: c.RequestDryRun()}
		object, err = clients.Dynamic.Resource(approvalResource.WithVersion(v1alpha1.GroupVersion.Version)).Create(ctx, object, options)
		if err != nil {
			return cli.Failed(err, "create EvictionApproval", "create", approvalResource)
		}
		object.SetManagedFields(nil) // as kubectl shows objects
	}
	switch c.Format {
	case "yaml", "json":
		if c.Format == "yaml" {
			_, err = io.WriteString(c.out, "---\n")
		}
		if err == nil {
			err = cli.Print(c.out, c.Format, object.Object)
		}
	default:
		_, err = io.WriteString(c.out, c.Line(object, "created"))
	}
	if err != nil {
		return fmt.Errorf("write what was created: %w", err)
	}
	return nil
}

// objectOf returns the object of an approval. The API server generates its name from the object and
// the taint, since the same taint may be approved again later.
func (c *command) objectOf(a *approval) *v1alpha1.EvictionApproval {
	prefix := cli.PartOfName(a.source.Name + "-" + a.key[strings.LastIndex(a.key, "/")+1:])
	object := &v1alpha1.EvictionApproval{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "EvictionApproval"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: strings.Trim(prefix, "-") + "-"},
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
