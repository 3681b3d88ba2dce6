package preview

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
)

// edge has the dependencies of a command besides the cluster.
type edge struct {
	// connect returns clients; nil means those of the flags.
	connect func(notes io.Writer) (*cli.Clients, error)
	clock   clock.PassiveClock
	// terminal reports whether a stream is a terminal.
	terminal func(any) bool
}

// realEdge is the edge of the program.
var realEdge = edge{clock: clock.RealClock{}, terminal: cli.Terminal}

// addConnection adds the flags of a connection, which is used unless there is one, and returns it.
func (e *edge) addConnection(cmd *cobra.Command) *cli.Connection {
	connection := cli.ConnectToAll(cmd)
	if e.connect == nil {
		e.connect = connection.Clients
	}
	return connection
}

// writing is one run of a command that writes carriers, with the common options.
type writing struct {
	edge
	cli.WriteFlags

	target Target
	// taints are all to add or all to remove.
	taints []Taint
}

// addTo adds cmd to its parent, which it returns. cmd reads the name of the devices, then the taints,
// which are removals if removal is true, and writes the carriers of a plan.
func (w *writing) addTo(
	parent, cmd *cobra.Command, removal bool, plan func(cmd *cobra.Command, clients *cli.Clients) ([]*carrier, error),
) *cobra.Command {
	state.CompleteNames(cmd, w.addConnection(cmd), "device", 1)
	w.target.AddFlags(cmd)
	w.AddFlags(cmd, "`format` of what was written", "`none`, client (write nothing) or server (have the API server judge, and write nothing)")
	cmd.RunE = func(cmd *cobra.Command, arguments []string) error {
		changes, err := w.target.changes(arguments, removal)
		if err == nil && !removal && len(changes.Remove) > 0 {
			err = fmt.Errorf("taint %q is to go: that is what untaint device is for", changes.Remove[0])
		}
		if err = cmp.Or(err, w.Validate()); err != nil {
			return err
		}
		w.taints = slices.Concat(changes.Add, changes.Remove)
		clients, err := w.connect(cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		defer clients.Progress.End()
		carriers, err := plan(cmd, clients)
		if err != nil {
			return err
		}
		return w.write(cmd.Context(), clients, carriers, cmd.OutOrStdout())
	}
	parent.AddCommand(cmd)
	parent.Args = cobra.NoArgs
	return parent
}

// done says what was done to an object, by the verb of the request.
var done = map[string]string{"create": "created", "update": "configured", "delete": "deleted"}

// write writes the carriers, up to the first error, and prints what was written.
func (w *writing) write(ctx context.Context, clients *cli.Clients, carriers []*carrier, out io.Writer) error {
	var failed error
	var written []cli.Written
	for _, c := range carriers {
		client, object, dryRun := clients.Dynamic.Resource(c.resource), c.object, w.RequestDryRun()
		var err error
		switch {
		case w.DryRun == cli.DryRunClient:
		case c.verb == "create":
			object, err = client.Create(ctx, object, metav1.CreateOptions{DryRun: dryRun})
		case c.verb == "update":
			object, err = c.update(ctx, client, metav1.UpdateOptions{DryRun: dryRun})
		default:
			same := metav1.NewUIDPreconditions(string(object.GetUID()))
			err = client.Delete(ctx, object.GetName(), metav1.DeleteOptions{DryRun: dryRun, Preconditions: same})
		}
		if err != nil {
			failed = cli.Failed(err, c.verb+" "+c.String(), c.verb, c.resource.GroupResource())
			break
		}
		written = append(written, cli.Written{Object: object, Done: done[c.verb]})
	}
	return errors.Join(failed, w.WriteObjects(out, written...))
}

// carrier is an object with one device taint: a DeviceTaintRule, or a ResourceSlicePatch for
// targets with a class or expressions.
type carrier struct {
	resource schema.GroupVersionResource
	object   *unstructured.Unstructured
	// verb is that of the request: create, update or delete.
	verb string
	// existing is the object that an update changes, as it was read.
	existing *unstructured.Unstructured
}

// update writes an object, again if only its status has changed since it was read: controllers write
// that at any time.
func (c *carrier) update(ctx context.Context, client dynamic.ResourceInterface, options metav1.UpdateOptions) (*unstructured.Unstructured, error) {
	var written *unstructured.Unstructured
	err := retry.RetryOnConflict(retry.DefaultRetry, func() (err error) {
		if written, err = client.Update(ctx, c.object, options); !apierrors.IsConflict(err) {
			return err
		}
		now, failed := client.Get(ctx, c.object.GetName(), metav1.GetOptions{})
		if failed == nil && equality.Semantic.DeepEqual(withoutStatus(now), withoutStatus(c.existing)) {
			c.object.SetResourceVersion(now.GetResourceVersion())
		}
		return err
	})
	return written, err
}

// withoutStatus returns a copy of an object without the fields that change with its status.
func withoutStatus(object *unstructured.Unstructured) map[string]any {
	object = object.DeepCopy()
	object.SetResourceVersion("")
	object.SetManagedFields(nil)
	unstructured.RemoveNestedField(object.Object, "status")
	return object.Object
}

// String returns the name of the object as kubectl prints it.
func (c *carrier) String() string { return cli.NameOf(c.object) }

// taintNameOf returns the object name for a target, a key and an effect: deterministic, so that
// there is at most one, with a readable prefix. The effect None has the name of NoExecute, which
// it becomes.
func taintNameOf(target *Target, taint Taint) string {
	effect, readableEffect := string(taint.Effect), "-"+string(taint.Effect)
	if effect == none || effect == noExecute {
		effect, readableEffect = noExecute, ""
	}
	text, _ := json.Marshal([]any{target, taint.Key, effect}) // Strings always marshal.
	sum := sha256.Sum256(text)
	devices := cmp.Or(target.Device, target.Pool, target.Driver, target.Class, "devices")
	_, key, _ := strings.Cut(taint.Key, "/")
	const most, hashed = 60, 4
	readable := cli.PartOfName(devices + "-" + cmp.Or(key, taint.Key) + readableEffect)
	return fmt.Sprintf("%s-%x", strings.Trim(readable[:min(len(readable), most)], "-"), sum[:hashed])
}

// isOurs reports whether taint device created an object.
func isOurs(object metav1.Object) bool {
	return object.GetLabels()[v1alpha1.LabelMadeBy] == v1alpha1.ProgramCommandLine
}

// The effects of a taint before and after activation.
const (
	none      = "None"
	noExecute = "NoExecute"
)

// merge merges the existing object with the name of the carrier. Other fields, such as timeAdded,
// are kept; a new effect counts from now. A taint with the effect None is not active yet, so its
// change needs no overwrite.
func (c *carrier) merge(existing *unstructured.Unstructured, taint Taint, overwrite bool) error {
	made := c.object
	c.verb, c.object, c.existing = "update", existing.DeepCopy(), existing
	taints := taintsOf(c.object)
	has, effect := "", string(taint.Effect)
	if len(taints) > 0 {
		has, _ = taints[0]["effect"].(string)
	}
	switch {
	case !isOurs(existing):
		return fmt.Errorf("%s exists, and taint device did not make it: delete it first", c)
	case !overwrite && (has != none || effect == none):
		return fmt.Errorf("%s gives them a taint with the key %s and the effect %s already, and --overwrite is not given", c, taint.Key, has)
	case len(taints) != 1:
		return fmt.Errorf("%s was changed: spec.devices.taints has %d taints, want the one that it was made with: delete it first", c, len(taints))
	}
	taints[0]["value"] = taint.Value
	if has != effect && (has == none || has == noExecute) {
		taints[0]["effect"] = effect
		delete(taints[0], "timeAdded")
	}
	// Otherwise devices outside of the target would get the new value.
	if field := differs(c.object, made); field != "" {
		return fmt.Errorf("%s was changed: its %s is not the one that it was made with: delete it first", c, field)
	}
	return nil
}

// taintsOf returns the taints of a DeviceTaintRule or ResourceSlicePatch. They are not copies.
func taintsOf(object *unstructured.Unstructured) []map[string]any {
	list, isPatch, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "devices", "taints")
	items, _ := list.([]any)
	if !isPatch {
		taint, _, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "taint")
		items = []any{taint}
	}
	var taints []map[string]any
	for _, item := range items {
		if taint, ok := item.(map[string]any); ok {
			taints = append(taints, taint)
		}
	}
	return taints
}

// differs returns the first field of an object with one taint that differs from the created one,
// except timeAdded and the value; empty for none.
func differs(object, made *unstructured.Unstructured) string {
	is, was := taintsOf(object)[0], taintsOf(made)[0]
	if made.GetKind() == "ResourceSlicePatch" && (is["key"] != was["key"] || is["effect"] != was["effect"]) {
		return "spec.devices.taints[0]"
	}
	for _, path := range []string{"spec.devices.filter", "spec.deviceSelector", "spec.taint.key", "spec.taint.effect"} {
		names := strings.Split(path, ".")
		is, _, _ := unstructured.NestedFieldNoCopy(object.Object, names...)
		was, _, _ := unstructured.NestedFieldNoCopy(made.Object, names...)
		if !equality.Semantic.DeepEqual(is, was) {
			return path
		}
	}
	return ""
}
