package nodetaints

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// The values of the label operation, in the order in which a patch applies the changes.
const (
	operationChange = "change"
	operationRemove = "remove"
	operationAdd    = "add"
)

// NewPairingMetrics registers the counter of the writes of paired taints with reg.
func NewPairingMetrics(reg prometheus.Registerer) *prometheus.CounterVec {
	return controller.NewCounter(reg, "tollgate_node_twin_writes_total",
		"Writes of NoSchedule taints beside NoExecute taints of nodes, so that evicted pods do not return, by operation.",
		"operation", operationAdd, operationChange, operationRemove)
}

// PairingOptions configures a PairingController. All fields are required.
type PairingOptions struct {
	// Nodes reads and writes nodes.
	Nodes typedcorev1.NodeInterface
	// Window is true in mode Window. If false, the controller adds no taint and removes
	// the paired taints that exist.
	Window  bool
	Metrics *prometheus.CounterVec
}

// PairingController adds and removes the paired taints of nodes.
type PairingController struct {
	*controller.Controller[string]
	PairingOptions
}

// NewPairing returns a controller; Start starts it. The cache of base holds nodes with
// their labels, their taints and the annotation v1alpha1.AnnotationTwins.
func NewPairing(base controller.Base, options PairingOptions) *PairingController {
	c := &PairingController{PairingOptions: options}
	add := func(object client.Object) {
		if mayNeedPairing(object.(*corev1.Node)) {
			c.Add(object.GetName())
		}
	}
	c.Controller = controller.New(base, controller.Options[string]{
		// Evictions wait for paired taints.
		Name: "tollgate-twins", Workers: 8, Reconcile: c.reconcile,
		PoliciesChanged: func(ctx context.Context) { addAll(ctx, c.Cache, &corev1.NodeList{}, add) },
		Watches:         map[client.Object]toolscache.ResourceEventHandler{&corev1.Node{}: controller.OnEvent(add)},
	})
	return c
}

// reconcile writes the paired taints of one node. The cached node decides whether to read
// the live node, and the live node decides what to write.
func (c *PairingController) reconcile(ctx context.Context, name string) (time.Duration, error) {
	current := c.Policies.Current()
	if current == nil {
		return policiesPause, nil
	}
	var cached corev1.Node
	if err := c.Cache.Get(ctx, types.NamespacedName{Name: name}, &cached); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	if _, patch := planFor(current, c.Window, &cached); cached.DeletionTimestamp != nil || len(patch) == 0 {
		return 0, nil
	}
	node, err := c.Nodes.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return 0, client.IgnoreNotFound(fmt.Errorf("read node %s: %w", name, err))
	}
	changes, patch := planFor(current, c.Window, node)
	if len(patch) == 0 {
		return 0, nil // The cache lags behind; its update needs no write.
	}
	if patched, err := patchNode(ctx, c.Nodes, "write the taints of", node, patch); err != nil || patched == nil {
		return 0, err
	}
	for _, change := range changes {
		c.Metrics.WithLabelValues(change.operation).Inc()
		text := change.taint.ToString()
		logr.FromContextOrDiscard(ctx).Info("wrote a NoSchedule taint beside one of NoExecute", "node", name, "operation", change.operation, "taint", text)
		reason, message := "NoSchedulePaired", "Added the taint %s, which keeps pods from coming back that are given time before they are evicted"
		if change.operation == operationRemove {
			reason, message = "NoSchedulePairRemoved", "Removed the taint %s: no pod is given time of a taint that it stood beside any more"
		}
		c.Recorder.Eventf(referenceTo(node), corev1.EventTypeNormal, reason, message, text)
	}
	return 0, nil
}

// mayNeedPairing reports whether a node has a NoExecute taint or the annotation of paired
// taints.
func mayNeedPairing(node *corev1.Node) bool {
	return node.Annotations[v1alpha1.AnnotationTwins] != "" || slices.ContainsFunc(node.Spec.Taints, evicts)
}

func evicts(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute }

// IsTwin reports whether a taint of a node was added by PairingController and its
// NoExecute taint exists.
func IsTwin(node *corev1.Node, taint *corev1.Taint) bool {
	return taint.Effect == corev1.TaintEffectNoSchedule && lists(recordedTaints(node), taint) &&
		slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return evicts(t) && t.Key == taint.Key })
}

// recordedTaints returns the values, by key, of the taints that the annotation of a node
// lists. It ignores an annotation with another UID: the creator of a node can write the
// annotation while admission is unavailable, but learns the UID only afterwards.
func recordedTaints(node *corev1.Node) map[string]string {
	value, mine := strings.CutPrefix(node.Annotations[v1alpha1.AnnotationTwins], string(node.UID)+separator)
	if !mine {
		return nil
	}
	return v1alpha1.ParseTwins(value)
}

// lists reports whether an annotation lists the key and the value of a taint.
func lists(recorded map[string]string, taint *corev1.Taint) bool {
	value, listed := recorded[taint.Key]
	return listed && value == taint.Value
}

// separator follows the UID in the annotation. No UID, taint key or taint value contains it.
const separator = ":"

// change is the write of one taint.
type change struct {
	operation string
	taint     corev1.Taint
}

// planFor returns the changes of taints that a node needs, and the JSON patch for them,
// empty if the node needs none. It is pure. window reports mode Window.
func planFor(policies *policyset.Set, window bool, node *corev1.Node) (changes []change, patch jsonPatch) {
	var windows *eviction.Set
	if window {
		windows = policies.Evictions
	}
	recorded, next := recordedTaints(node), map[string]string{}
	var added []corev1.Taint
	for _, t := range node.Spec.Taints {
		if !needsPair(windows, t) {
			continue
		}
		paired := corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffectNoSchedule}
		at := slices.IndexFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&paired) })
		switch {
		case at < 0:
			added = append(added, paired)
		case !lists(recorded, &node.Spec.Taints[at]):
			continue // The taint of another writer has the same effect.
		case node.Spec.Taints[at].Value != t.Value:
			changes = append(changes, change{operationChange, paired})
			patch.add("replace", "/spec/taints/"+strconv.Itoa(at), paired)
		}
		next[t.Key] = t.Value
	}
	// Indexes refer to the list as it was read. They stay valid if replacements come first,
	// then removals from the end of the list, and then additions.
	for i, t := range slices.Backward(node.Spec.Taints) {
		_, needed := next[t.Key]
		if !needed && t.Effect == corev1.TaintEffectNoSchedule && lists(recorded, &t) && !isRegistered(policies.Taints, node, &t) {
			changes = append(changes, change{operationRemove, t})
			patch.add("remove", "/spec/taints/"+strconv.Itoa(i), nil)
		}
	}
	slices.SortFunc(added, func(a, b corev1.Taint) int { return cmp.Compare(a.Key, b.Key) })
	for _, t := range added {
		changes = append(changes, change{operationAdd, t})
		patch.add("add", "/spec/taints/-", t)
	}
	return changes, withRecord(node, patch, next)
}

// needsPair reports whether a taint of a node is to have a paired taint. The node lifecycle
// controller also sets its taints with effect NoSchedule, and would remove them from a ready
// node.
func needsPair(windows *eviction.Set, t corev1.Taint) bool {
	return evicts(t) && windows.HasWindow(v1alpha1.TaintTargetNode, t.Key) && t.Key != corev1.TaintNodeNotReady && t.Key != corev1.TaintNodeUnreachable
}

// withRecord returns the patch for writes of taints, and for the annotation of paired taints,
// given as values by key. It applies only to the node as it was read: it tests the
// resourceVersion. It is nil if the node needs none.
func withRecord(node *corev1.Node, writes jsonPatch, values map[string]string) (patch jsonPatch) {
	record := ""
	if len(values) > 0 {
		record = string(node.UID) + separator + v1alpha1.FormatTwins(values)
	}
	before, exists := node.Annotations[v1alpha1.AnnotationTwins]
	if len(writes) == 0 && record == before {
		return nil
	}
	patch.add("test", "/metadata/resourceVersion", node.ResourceVersion)
	patch = append(patch, writes...)
	path := "/metadata/annotations/" + strings.ReplaceAll(v1alpha1.AnnotationTwins, "/", "~1")
	switch {
	case record == "" && exists:
		patch.add("remove", path, nil)
	case record == before:
	case len(node.Annotations) == 0:
		patch.add("add", "/metadata/annotations", map[string]string{v1alpha1.AnnotationTwins: record})
	default:
		patch.add("add", path, record)
	}
	return patch
}
