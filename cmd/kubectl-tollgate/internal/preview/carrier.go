package preview

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// edge has the dependencies of a command besides the cluster.
type edge struct {
	// connect returns clients; nil means those of the flags.
	connect func(notes io.Writer) (*cli.Clients, error)
	clock   clock.PassiveClock
	// terminal reports whether a stream is a terminal.
	terminal func(any) bool
}

func realEdge() edge { return edge{clock: clock.RealClock{}, terminal: cli.Terminal} }

// addConnection adds the flags of a connection, which is used unless there is one, and returns it.
func (e *edge) addConnection(cmd *cobra.Command) *cli.Connection {
	connection := cli.ConnectToAll(cmd)
	if e.connect == nil {
		e.connect = connection.Clients
	}
	return connection
}

// writing has the common options of both commands.
type writing struct {
	edge
	cli.WriteFlags

	target Target
	taints []Taint
}

// addFlags adds the flags of the connection and the common ones. The first argument is a device.
func (w *writing) addFlags(cmd *cobra.Command) {
	state.CompleteNames(cmd, w.addConnection(cmd), "device", 1)
	w.target.AddFlags(cmd)
	w.AddFlags(cmd, "`format` of what was written", "`none`, client (write nothing) or server (have the API server judge, and write nothing)")
}

// print prints the written objects; done says what was done to each. A document is one object as it
// is, or a list of several, as kubectl prints it.
func (w *writing) print(out io.Writer, objects []*unstructured.Unstructured, done func(i int) string) error {
	document := cli.IsDocument(w.Format)
	items := make([]any, 0, len(objects))
	for i, object := range objects {
		if document {
			object.SetManagedFields(nil)
			items = append(items, object.Object)
		} else if _, err := io.WriteString(out, w.Line(object, done(i))); err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	switch len(items) {
	case 0:
		return nil
	case 1:
		return cli.Print(out, w.Format, items[0])
	default:
		return cli.Print(out, w.Format, map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}, "items": items})
	}
}

// carrier is an object with one device taint: a DeviceTaintRule, or a ResourceSlicePatch for
// targets with a class or expressions.
type carrier struct {
	resource schema.GroupVersionResource
	object   *unstructured.Unstructured
	// existing is the existing object with its name, nil for none.
	existing *unstructured.Unstructured
}

// carriers returns the objects that give taints to a target, in the served version.
func (t *Target) carriers(ctx context.Context, clients *cli.Clients, taints []Taint, author string) ([]*carrier, error) {
	resource, kind, versions := informer.RuleResource, "DeviceTaintRule", state.RuleVersions()
	unserved := errors.New("the API server does not serve DeviceTaintRules (switch on its feature gate DRADeviceTaintRules and API group resource.k8s.io)")
	if t.Conditional() {
		resource, kind, versions = state.PatchResource, "ResourceSlicePatch", []string{v1alpha1.GroupVersion.Version}
		unserved = errors.New("--class and --selector need a ResourceSlicePatch, which the API server does not serve: install Tollgate, or name driver, pool and device")
	}
	version, err := clients.Version(ctx, resource, versions...)
	if errors.Is(err, cli.ErrNotServed) {
		return nil, unserved
	}
	if err != nil {
		return nil, err
	}
	carriers := make([]*carrier, 0, len(taints))
	for _, taint := range taints {
		meta := metav1.ObjectMeta{Name: taintNameOf(t, taint), Labels: map[string]string{v1alpha1.LabelMadeBy: v1alpha1.ProgramCommandLine}}
		if author != "" {
			meta.Annotations = map[string]string{v1alpha1.AnnotationAuthor: author}
		}
		var typed any = t.patch(meta, taint)
		if !t.Conditional() {
			typed = &resourcev1.DeviceTaintRule{
				ObjectMeta: meta, Spec: resourcev1.DeviceTaintRuleSpec{DeviceSelector: t.DeviceSelector(), Taint: taint.onDevice()},
			}
		}
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		if err != nil {
			return nil, fmt.Errorf("make %s: %w", kind, err)
		}
		delete(fields, "status")
		made := &carrier{resource: resource.WithVersion(version), object: &unstructured.Unstructured{Object: fields}}
		made.object.SetGroupVersionKind(made.resource.GroupVersion().WithKind(kind))
		carriers = append(carriers, made)
	}
	return carriers, nil
}

// String returns the name of the object as kubectl prints it.
func (c *carrier) String() string { return cli.NameOf(c.object) }

// taintNameOf returns the object name for a target, a key and an effect: deterministic, so that
// there is at most one, with a readable prefix. The effect None has the name of NoExecute, which
// it becomes.
func taintNameOf(target *Target, taint Taint) string {
	effect, readableEffect := taint.Effect, "-"+taint.Effect
	if effect == none || effect == noExecute {
		effect, readableEffect = noExecute, ""
	}
	text, err := json.Marshal([]any{target, taint.Key, effect})
	if err != nil {
		panic(err) // Strings always marshal.
	}
	sum := sha256.Sum256(text)
	devices := cmp.Or(target.Device, target.Pool, target.Driver, target.Class, "devices")
	_, key, _ := strings.Cut(taint.Key, "/")
	const most, digits = 60, 8
	readable := cli.PartOfName(devices + "-" + cmp.Or(key, taint.Key) + readableEffect)
	readable = strings.Trim(readable[:min(len(readable), most)], "-")
	return readable + "-" + hex.EncodeToString(sum[:])[:digits]
}

// isOurs reports whether taint device created an object.
func isOurs(object metav1.Object) bool {
	return object.GetLabels()[v1alpha1.LabelMadeBy] == v1alpha1.ProgramCommandLine
}

// The effects of a taint before and after activation.
const (
	none      = string(resourcev1.DeviceTaintEffectNone)
	noExecute = string(resourcev1.DeviceTaintEffectNoExecute)
)

// merge merges the existing object with the name of the carrier. Other fields, such as timeAdded,
// are kept; a new effect counts from now. A taint with the effect None is not active yet, so its
// change needs no overwrite.
func (c *carrier) merge(existing *unstructured.Unstructured, taint Taint, overwrite bool) error {
	made := c.object
	c.existing, c.object = existing, existing.DeepCopy()
	taints := taintsOf(c.object)
	has := ""
	if len(taints) > 0 {
		has = text(taints[0], "effect")
	}
	switch {
	case !isOurs(existing):
		return fmt.Errorf("%s exists, and taint device did not make it: delete it first", c)
	case !overwrite && (has != none || taint.Effect == none):
		return fmt.Errorf("%s gives them a taint with the key %s and the effect %s already, and --overwrite is not given", c, taint.Key, has)
	case len(taints) != 1:
		return fmt.Errorf("%s was changed: spec.devices.taints has %d taints, want the one that it was made with: delete it first", c, len(taints))
	}
	taints[0]["value"] = taint.Value
	if has != taint.Effect && (has == none || has == noExecute) {
		taints[0]["effect"] = taint.Effect
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
	field, _, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "taint")
	list, isPatch, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "devices", "taints")
	if !isPatch {
		list = []any{field}
	}
	items, _ := list.([]any)
	var taints []map[string]any
	for _, item := range items {
		if taint, ok := item.(map[string]any); ok {
			taints = append(taints, taint)
		}
	}
	return taints
}

func text(fields map[string]any, name string) string {
	value, _ := fields[name].(string)
	return value
}

// differs returns the first field of an object with one taint that differs from the created one,
// except timeAdded and the value; empty for none.
func differs(object, made *unstructured.Unstructured) string {
	is, was := taintsOf(object)[0], taintsOf(made)[0]
	key, effect := text(is, "key") != text(was, "key"), text(is, "effect") != text(was, "effect")
	changed := func(path ...string) bool {
		is, _, _ := unstructured.NestedFieldNoCopy(object.Object, path...)
		was, _, _ := unstructured.NestedFieldNoCopy(made.Object, path...)
		return !equality.Semantic.DeepEqual(is, was)
	}
	patch := object.GetKind() == "ResourceSlicePatch"
	switch {
	case patch && (key || effect):
		return "spec.devices.taints[0]"
	case changed("spec", "devices", "filter"):
		return "spec.devices.filter"
	case changed("spec", "deviceSelector"):
		return "spec.deviceSelector"
	case key:
		return "spec.taint.key"
	case effect:
		return "spec.taint.effect"
	default:
		return ""
	}
}
