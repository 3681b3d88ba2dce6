package preview

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/tracker/informer"
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
func NewTaintCommand() *cobra.Command { return newTaint(realEdge) }

func newTaint(e edge) *cobra.Command {
	parent := &cobra.Command{Use: "taint", Short: "Taint devices (kubectl taint does so for nodes)"}
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
	t.wants.AddFlags(cmd)
	cmd.Flags().BoolVar(&t.overwrite, "overwrite", false, "change the value of taints that taint device set")
	cmd.Flags().BoolVar(&t.unpublished, "allow-unpublished", false, "taint devices that no ResourceSlice publishes yet")
	cmd.Flags().BoolVarP(&t.yes, "yes", "y", false, "do not ask")
	return t.addTo(parent, cmd, false, t.plan)
}

// plan previews the taints, and asks for confirmation.
func (t *taintRun) plan(cmd *cobra.Command, clients *cli.Clients) ([]*carrier, error) {
	ctx, notes := cmd.Context(), cmd.ErrOrStderr()
	carriers, err := t.carriers(ctx, clients)
	if err != nil {
		return nil, err
	}
	asks := t.DryRun == cli.DryRunNone && !t.yes
	terminal := asks && t.terminal(cmd.InOrStdin())
	if err := t.foretell(ctx, clients, carriers, notes); err != nil {
		clients.Progress.End()
		if err := t.excuse(err, terminal, notes); err != nil {
			return nil, err
		}
	}
	if !asks {
		return carriers, nil
	}
	if !terminal {
		return nil, errors.New("nothing is written: there is no terminal to ask on, give --yes to taint without being asked")
	}
	agreed, err := cli.Ask(ctx, cmd.InOrStdin(), notes, fmt.Sprintf("Taint %s?", &t.target))
	if err == nil && !agreed {
		err = errors.New("nothing is written: the answer was no")
	}
	return carriers, err
}

// excuse writes a note about an error of the preview that does not prevent the write, and returns
// other errors. Asks is true if a question with the names of the devices follows.
func (t *taintRun) excuse(err error, asks bool, notes io.Writer) error {
	_, unpublished := errors.AsType[*UnpublishedError](err)
	_, unreadable := errors.AsType[*unreadableError](err)
	switch {
	case unpublished && !t.unpublished && !asks:
		err = fmt.Errorf("nothing is written: %w; give --allow-unpublished to taint devices before they are published", err)
	case unpublished:
		err = cli.WriteNotes(notes, "warning: ", []string{err.Error()})
	case t.yes && (unreadable || apierrors.IsForbidden(err)): // A write without a question needs no preview.
		_, err = fmt.Fprintf(notes, "note: not foretold: %v\n", err)
	}
	return err
}

// carriers returns the objects to write, one for each taint, in the served version and merged with
// existing ones.
func (t *taintRun) carriers(ctx context.Context, clients *cli.Clients) ([]*carrier, error) {
	resource, kind := informer.RuleResource, "DeviceTaintRule"
	unserved := "the API server does not serve DeviceTaintRules (switch on its feature gate DRADeviceTaintRules and API group resource.k8s.io)"
	if t.target.Conditional() {
		resource, kind = state.PatchResource, "ResourceSlicePatch"
		unserved = "--class and --selector need a ResourceSlicePatch, which the API server does not serve: install Tollgate, or name driver, pool and device"
	}
	version, err := state.Version(ctx, clients, resource)
	if errors.Is(err, cli.ErrNotServed) {
		return nil, errors.New(unserved)
	}
	if err != nil {
		return nil, err
	}
	meta := metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelMadeBy: v1alpha1.ProgramCommandLine}}
	review, err := clients.Kubernetes.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err == nil && review.Status.UserInfo.Username != "" { // Without a name the write goes on.
		meta.Annotations = map[string]string{v1alpha1.AnnotationAuthor: review.Status.UserInfo.Username}
	}
	served := resource.WithVersion(version)
	var carriers []*carrier
	for _, taint := range t.taints {
		meta.Name = taintNameOf(&t.target, taint)
		var typed any = t.target.patch(meta, taint)
		if !t.target.Conditional() {
			typed = &resourcev1.DeviceTaintRule{ObjectMeta: meta, Spec: t.target.RuleSpec(taint)}
		}
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		if err != nil {
			return nil, fmt.Errorf("make %s: %w", kind, err)
		}
		delete(fields, "status")
		object := &unstructured.Unstructured{Object: fields}
		object.SetGroupVersionKind(served.GroupVersion().WithKind(kind))
		made := &carrier{resource: served, object: object, verb: "create"}
		existing, err := clients.Dynamic.Resource(served).Get(ctx, object.GetName(), metav1.GetOptions{})
		switch {
		case err == nil:
			err = made.merge(existing, taint, t.overwrite)
		case apierrors.IsNotFound(err), t.yes && !t.overwrite && apierrors.IsForbidden(err):
			err = nil // If it exists but may not be read, the create fails.
		default:
			err = cli.Failed(err, "read "+made.String(), "get", resource)
		}
		if err != nil {
			return nil, err
		}
		carriers = append(carriers, made)
	}
	return carriers, nil
}

// foretell writes a preview of each carrier, which replaces the object with its name.
func (t *taintRun) foretell(ctx context.Context, clients *cli.Clients, carriers []*carrier, notes io.Writer) error {
	t.wants.Selection = t.target.Conditional()
	teller, err := NewTeller(ctx, clients, t.clock.Now(), t.wants)
	if err != nil {
		return err
	}
	var all []Preview
	published := false
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
		published = published || p.Touches() || made.verb == "update"
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
	if err := cli.WriteNotes(notes, "note: ", teller.Missing()); err != nil || published {
		return err
	}
	return teller.published(ctx, &t.target)
}
