package preview

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
)

// taintRun is one run of taint device.
type taintRun struct {
	writing

	wants          state.Wants
	overwrite, yes bool
	// unpublished allows devices that do not exist yet.
	unpublished bool
}

// NewTaintCommand returns the command that taints.
func NewTaintCommand() *cobra.Command { return newTaint(realEdge()) }

func newTaint(e edge) *cobra.Command {
	parent := &cobra.Command{
		Use:   "taint",
		Short: "Taint devices (kubectl taint does so for nodes)",
		Args:  cobra.NoArgs,
	}
	t := &taintRun{writing: writing{edge: e}}
	cmd := &cobra.Command{
		Use:   "device [DRIVER[/POOL[/DEVICE]]] KEY[=VALUE]:EFFECT...",
		Short: "Taint devices, after a preview of the evictions",
		Long: `Taint devices, as kubectl taint does for nodes. The command first shows the pods that the taint
evicts (see preview device), and asks for confirmation. A name without a device, or without a
pool, means all devices of the pool or the driver.

For names, the command creates a DeviceTaintRule, which works in every cluster that serves
DeviceTaintRules. With --class or --selector, it creates a ResourceSlicePatch, which needs
Tollgate. The name of the object is derived from the devices, the key and the effect, so that
the same devices are not tainted twice. The label tollgate.dev/made-by and the annotation
tollgate.dev/author name the program and the user. untaint device removes the object.
--overwrite changes the value of such a taint; its time stays.

The effects are NoExecute, which evicts pods, NoSchedule, and None, which has no effect and
shows the evictions that NoExecute would cause. If the taint exists with the effect None, a
command with NoExecute changes the same object, as a TaintPolicy with requirePreview requires.
The taint then counts from that time.

The command does not taint devices that no ResourceSlice publishes, unless you confirm a
separate question or set --allow-unpublished. --yes is not enough, because the name may be
misspelt. The taint applies to devices that are published later.

The exit code is 1 if nothing was written, even because you did not confirm.

You need the right to create devicetaintrules or resourceslicepatches, and with --overwrite also
to get and update them. The preview needs the rights to get them, and to list pods, nodes and
resourceclaims; with --class or --selector also resourceslices and deviceclasses. With --yes,
the command omits the preview if you lack these rights. Standard error names other objects that
you may not read.`,
		Example: `  kubectl tollgate taint device gpu.example.com/node-7/gpu-0 overheating:NoExecute
  kubectl tollgate taint device gpu.example.com/node-7 maintenance=fans:NoSchedule --yes

  # First what it would do, in the status of the rule, and then that.
  kubectl tollgate taint device gpu.example.com/node-7/gpu-1 broken:None --yes
  kubectl tollgate taint device gpu.example.com/node-7/gpu-1 broken:NoExecute

  kubectl tollgate taint device --class gpus --selector 'device.attributes["gpu.example.com"].model == "A100"' recall:NoExecute --dry-run=server`,
	}
	t.addFlags(cmd)
	t.wants.AddFlags(cmd)
	cmd.Flags().BoolVar(&t.overwrite, "overwrite", false, "change the value of taints that taint device set")
	cmd.Flags().BoolVar(&t.unpublished, "allow-unpublished", false, "taint devices that no ResourceSlice publishes yet")
	cmd.Flags().BoolVarP(&t.yes, "yes", "y", false, "do not ask")
	cmd.RunE = func(cmd *cobra.Command, arguments []string) error {
		if err := t.complete(arguments); err != nil {
			return err
		}
		if err := t.Validate(); err != nil {
			return err
		}
		return t.run(cmd)
	}
	parent.AddCommand(cmd)
	return parent
}

// complete reads the name of the devices, then the taints.
func (t *taintRun) complete(arguments []string) error {
	changes, err := t.target.changes(arguments)
	if err == nil && len(changes.Remove) > 0 {
		err = fmt.Errorf("taint %q is to go: that is what untaint device is for", changes.Remove[0])
	}
	t.taints = changes.Add
	return err
}

// run previews the taints, asks for confirmation, and writes them.
func (t *taintRun) run(cmd *cobra.Command) error {
	ctx, notes := cmd.Context(), cmd.ErrOrStderr()
	clients, err := t.connect(notes)
	if err != nil {
		return err
	}
	defer clients.Progress.End()
	carriers, err := t.carriers(ctx, clients)
	if err != nil {
		return err
	}
	asks := t.DryRun == cli.DryRunNone && !t.yes
	if err := t.foretell(ctx, clients, carriers, notes); err != nil {
		clients.Progress.End()
		if err := t.excuse(err, asks && t.terminal(cmd.InOrStdin()), notes); err != nil {
			return err
		}
	}
	if asks {
		if err := t.ask(ctx, cmd.InOrStdin(), notes); err != nil {
			return err
		}
	}
	return t.write(ctx, clients, carriers, cmd.OutOrStdout())
}

// excuse writes a note about an error of the preview that does not prevent the write, and returns
// other errors. Asks is true if a question with the names of the devices follows.
func (t *taintRun) excuse(err error, asks bool, notes io.Writer) error {
	if unpublished, ok := errors.AsType[*UnpublishedError](err); ok {
		if !t.unpublished && !asks {
			return fmt.Errorf("nothing is written: %w; give --allow-unpublished to taint devices before they are published", unpublished)
		}
		if _, err := fmt.Fprintf(notes, "warning: %v\n", unpublished); err != nil {
			return fmt.Errorf("write notes: %w", err)
		}
		return nil
	}
	// A write without a question needs no preview.
	if _, unreadable := errors.AsType[*unreadableError](err); !t.yes || !unreadable && !apierrors.IsForbidden(err) {
		return err
	}
	_, err = fmt.Fprintf(notes, "note: not foretold: %v\n", err)
	return err
}

// carriers returns the objects to write, one for each taint, merged with existing ones.
func (t *taintRun) carriers(ctx context.Context, clients *cli.Clients) ([]*carrier, error) {
	author := ""
	review, err := clients.Kubernetes.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err == nil { // Without a name the write goes on.
		author = review.Status.UserInfo.Username
	}
	carriers, err := t.target.carriers(ctx, clients, t.taints, author)
	if err != nil {
		return nil, err
	}
	for i, made := range carriers {
		existing, err := clients.Dynamic.Resource(made.resource).Get(ctx, made.object.GetName(), metav1.GetOptions{})
		switch {
		case err == nil:
			err = made.merge(existing, t.taints[i], t.overwrite)
		case apierrors.IsNotFound(err), t.yes && !t.overwrite && apierrors.IsForbidden(err):
			err = nil // If it exists but may not be read, the create fails.
		default:
			err = cli.Failed(err, "read "+made.String(), "get", made.resource.GroupResource())
		}
		if err != nil {
			return nil, err
		}
	}
	return carriers, nil
}

// foretell writes a preview of each carrier, which replaces the object with its name.
func (t *taintRun) foretell(ctx context.Context, clients *cli.Clients, carriers []*carrier, notes io.Writer) error {
	wants := t.wants
	wants.Selection = t.target.Conditional()
	teller, err := NewTeller(ctx, clients, t.clock.Now(), wants)
	if err != nil {
		return err
	}
	all, published := make([]Preview, 0, len(carriers)), false
	for i, made := range carriers {
		p, err := teller.object(ctx, made.object)
		if err != nil {
			return err
		}
		p.Of = "device/" + t.target.String()
		if len(carriers) > 1 {
			p.Of += " " + t.taints[i].String()
		}
		all = append(all, p)
		published = published || p.Touches() || made.existing != nil
	}
	clients.Progress.End()
	if err := teller.Write(notes, "table", all); err != nil {
		return err
	}
	if len(all) > 1 { // A pod may be in several previews.
		if _, err := fmt.Fprintf(notes, "pods that go because of any of them: %d\n", Going(all)); err != nil {
			return fmt.Errorf("write preview: %w", err)
		}
	}
	if err := teller.writeMissing(notes); err != nil || published {
		return err
	}
	return teller.Published(ctx, &t.target)
}

// ask asks for confirmation. It returns an error if the answer is no.
func (t *taintRun) ask(ctx context.Context, in io.Reader, notes io.Writer) error {
	if !t.terminal(in) {
		return errors.New("nothing is written: there is no terminal to ask on, give --yes to taint without being asked")
	}
	agreed, err := cli.Ask(ctx, in, notes, fmt.Sprintf("Taint %s?", &t.target))
	if err == nil && !agreed {
		err = errors.New("nothing is written: the answer was no")
	}
	return err
}

// write writes the carriers and prints the result. It stops at the first error.
func (t *taintRun) write(ctx context.Context, clients *cli.Clients, carriers []*carrier, out io.Writer) error {
	var written []*unstructured.Unstructured
	var failed error
	for _, made := range carriers {
		client, object, doing := clients.Dynamic.Resource(made.resource), made.object, "create"
		var err error
		switch {
		case t.DryRun == cli.DryRunClient:
		case made.existing != nil:
			doing = "update"
			object, err = client.Update(ctx, object, metav1.UpdateOptions{DryRun: t.RequestDryRun()})
		default:
			object, err = client.Create(ctx, object, metav1.CreateOptions{DryRun: t.RequestDryRun()})
		}
		if err != nil {
			failed = cli.Failed(err, doing+" "+made.String(), doing, made.resource.GroupResource())
			break
		}
		written = append(written, object)
	}
	return errors.Join(failed, t.print(out, written, func(i int) string {
		if carriers[i].existing != nil {
			return "configured"
		}
		return "created"
	}))
}
