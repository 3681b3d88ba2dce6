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
	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

// PairingMetrics counts the writes of paired taints.
type PairingMetrics struct {
	writes *prometheus.CounterVec
}

// NewPairingMetrics registers the metrics with reg.
func NewPairingMetrics(reg prometheus.Registerer) *PairingMetrics {
	return &PairingMetrics{writes: controller.NewCounter(reg, "tollgate_node_twin_writes_total",
		"Writes of NoSchedule taints beside NoExecute taints of nodes, so that evicted pods do not return, by operation.",
		"operation", operationAdd, operationChange, operationRemove)}
}

// PairingOptions configures a PairingController. All fields are required.
type PairingOptions struct {
	// Nodes reads and writes nodes.
	Nodes NodeClient
	// Window is true in mode Window. If false, the controller adds no taint and removes
	// the paired taints that exist.
	Window  bool
	Metrics *PairingMetrics
}

// PairingController adds and removes the paired taints of nodes.
type PairingController struct {
	*controller.Controller[string]

	options PairingOptions
}

// NewPairing returns a controller; Start starts it. The cache of base holds nodes with
// their labels, their taints and the annotation v1alpha1.AnnotationTwins.
func NewPairing(base controller.Base, options PairingOptions) *PairingController {
	c := &PairingController{options: options}
	add := func(node *corev1.Node) {
		if mayNeedPairing(node) {
			c.Add(node.Name)
		}
	}
	c.Controller = controller.New(base, controller.Options[string]{
		// Evictions wait for paired taints.
		Name: "tollgate-twins", Workers: 8, Reconcile: c.reconcile,
		PoliciesChanged: func(ctx context.Context) { addNodes(ctx, c.Cache, add) },
		Watches: map[client.Object]toolscache.ResourceEventHandler{
			&corev1.Node{}: controller.OnEvent(func(object client.Object) { add(object.(*corev1.Node)) }),
		},
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
	if changes, record := planFor(current, c.options.Window, &cached); cached.DeletionTimestamp != nil || len(patchFor(&cached, changes, record)) == 0 {
		return 0, nil
	}
	node, err := c.options.Nodes.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read node %s: %w", name, err)
	}
	changes, record := planFor(current, c.options.Window, node)
	operations := patchFor(node, changes, record)
	if len(operations) == 0 {
		return 0, nil // The cache lags behind; its update needs no write.
	}
	if patched, err := patchNode(ctx, c.options.Nodes, "write the taints of", name, operations); err != nil || patched == nil {
		return 0, err
	}
	for _, change := range changes {
		c.options.Metrics.writes.WithLabelValues(change.operation).Inc()
		text := change.taint.ToString()
		logr.FromContextOrDiscard(ctx).Info("wrote a NoSchedule taint beside one of NoExecute", "node", name, "operation", change.operation, "taint", text)
		if change.operation == operationRemove {
			c.Recorder.Eventf(referenceTo(node), corev1.EventTypeNormal, "NoSchedulePairRemoved",
				"Removed the taint %s: no pod is given time of a taint that it stood beside any more", text)
		} else {
			c.Recorder.Eventf(referenceTo(node), corev1.EventTypeNormal, "NoSchedulePaired",
				"Added the taint %s, which keeps pods from coming back that are given time before they are evicted", text)
		}
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
	if taint.Effect != corev1.TaintEffectNoSchedule {
		return false
	}
	value, recorded := recordedTaints(node)[taint.Key]
	return recorded && value == taint.Value &&
		slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return evicts(t) && t.Key == taint.Key })
}

// recordedTaints returns the values, by key, of the taints that the annotation of a node
// lists. It ignores an annotation with another UID: the creator of a node can write the
// annotation while admission is unavailable, but learns the UID only afterwards.
func recordedTaints(node *corev1.Node) map[string]string {
	value, mine := strings.CutPrefix(node.Annotations[v1alpha1.AnnotationTwins], annotationPrefix(node))
	if !mine {
		return nil
	}
	return v1alpha1.ParseTwins(value)
}

// annotationPrefix returns the UID of the node and a separator, which no UID, taint key or
// taint value contains. It is empty for a node without a UID, which only tests have.
func annotationPrefix(node *corev1.Node) string {
	if node.UID == "" {
		return ""
	}
	return string(node.UID) + ":"
}

// change is the write of one taint.
type change struct {
	operation string
	// index is the position of the changed or removed taint in spec.taints.
	index int
	taint corev1.Taint
}

// planFor returns the changes of taints that a node needs, and the desired annotation. It
// is pure. window reports mode Window.
func planFor(policies *policyset.Set, window bool, node *corev1.Node) (changes []change, record string) {
	var windows *eviction.Set
	if window {
		windows = policies.Evictions
	}
	recorded, next := recordedTaints(node), map[string]string{}
	for _, t := range node.Spec.Taints {
		if !evicts(t) || !windows.HasWindow(v1alpha1.TaintTargetNode, t.Key) || setByKubernetes(t.Key) {
			continue
		}
		paired, at := corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffectNoSchedule}, pairedIndex(node, t.Key)
		value, managed := recorded[t.Key]
		switch {
		case at < 0:
			changes = append(changes, change{operationAdd, at, paired})
		case !managed || node.Spec.Taints[at].Value != value:
			continue // The taint of another writer has the same effect.
		case value != t.Value:
			changes = append(changes, change{operationChange, at, paired})
		}
		next[t.Key] = t.Value
	}
	for key, value := range recorded {
		at := pairedIndex(node, key)
		if _, needed := next[key]; !needed && at >= 0 && node.Spec.Taints[at].Value == value && !isRegistered(policies.Taints, node, &node.Spec.Taints[at]) {
			changes = append(changes, change{operationRemove, at, node.Spec.Taints[at]})
		}
	}
	slices.SortFunc(changes, compareChanges)
	return changes, annotationOf(node, next)
}

func pairedIndex(node *corev1.Node, key string) int {
	return slices.IndexFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key && t.Effect == corev1.TaintEffectNoSchedule })
}

// annotationOf returns the annotation for paired taints, given as values by key.
func annotationOf(node *corev1.Node, values map[string]string) string {
	if len(values) == 0 {
		return ""
	}
	return annotationPrefix(node) + v1alpha1.FormatTwins(values)
}

// setByKubernetes reports whether the node lifecycle controller also sets the taint with
// effect NoSchedule, and would remove it from a ready node.
func setByKubernetes(key string) bool {
	return key == corev1.TaintNodeNotReady || key == corev1.TaintNodeUnreachable
}

// compareChanges orders changes so that the indexes, which refer to the list as it was
// read, stay valid: first replacements, then removals from the end of the list, then
// additions.
func compareChanges(a, b change) int {
	order := []string{operationChange, operationRemove, operationAdd}
	return cmp.Or(
		cmp.Compare(slices.Index(order, a.operation), slices.Index(order, b.operation)),
		cmp.Compare(b.index, a.index), cmp.Compare(a.taint.Key, b.taint.Key))
}

// patchFor returns the JSON patch for changes and an annotation, empty if the node needs
// none. It applies only to the node as it was read: it tests the UID and the
// resourceVersion.
func patchFor(node *corev1.Node, changes []change, record string) []jsonpatch.Operation {
	before := node.Annotations[v1alpha1.AnnotationTwins]
	if len(changes) == 0 && record == before {
		return nil
	}
	operations := []jsonpatch.Operation{
		jsonpatch.NewOperation("test", "/metadata/uid", node.UID),
		jsonpatch.NewOperation("test", "/metadata/resourceVersion", node.ResourceVersion),
	}
	for _, change := range changes {
		path := "/spec/taints/" + strconv.Itoa(change.index)
		switch change.operation {
		case operationAdd:
			operations = append(operations, jsonpatch.NewOperation("add", "/spec/taints/-", change.taint))
		case operationChange:
			operations = append(operations, jsonpatch.NewOperation("replace", path, change.taint))
		case operationRemove:
			operations = append(operations, jsonpatch.NewOperation("remove", path, nil))
		}
	}
	path := "/metadata/annotations/" + strings.ReplaceAll(v1alpha1.AnnotationTwins, "/", "~1")
	_, exists := node.Annotations[v1alpha1.AnnotationTwins]
	switch {
	case record == "" && exists:
		operations = append(operations, jsonpatch.NewOperation("remove", path, nil))
	case record == before:
	case len(node.Annotations) == 0:
		operations = append(operations, jsonpatch.NewOperation("add", "/metadata/annotations", map[string]string{v1alpha1.AnnotationTwins: record}))
	default:
		operations = append(operations, jsonpatch.NewOperation("add", path, record))
	}
	return operations
}
