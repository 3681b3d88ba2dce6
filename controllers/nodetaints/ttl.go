package nodetaints

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/selector"
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/tracker"
)

// maxRecheck bounds the delay until the next attempt, because the clocks of the API server
// and of this machine may drift apart.
const maxRecheck = time.Hour

// The values of the label source.
const (
	sourceNode  = "node"
	sourceRule  = "rule"
	sourcePatch = "patch"
)

// sourceKinds are the kinds of the sources.
var sourceKinds = map[string]string{sourceNode: "Node", sourceRule: "DeviceTaintRule", sourcePatch: "ResourceSlicePatch"}

// TTLMetrics counts the removals of expired taints.
type TTLMetrics struct{ expired *prometheus.CounterVec }

// NewTTLMetrics registers the metrics with reg.
func NewTTLMetrics(reg prometheus.Registerer) *TTLMetrics {
	return &TTLMetrics{expired: controller.NewCounter(reg, "tollgate_expired_taints_total",
		"Taints of nodes and ResourceSlicePatches, and DeviceTaintRules, that were removed at the end of the ttl of a TaintPolicy, by source.",
		"source", sourceNode, sourceRule, sourcePatch)}
}

// slicePatches writes ResourceSlicePatches; a dynamic client implements it.
type slicePatches interface {
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*unstructured.Unstructured, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions, subresources ...string) error
}

// rules reads DeviceTaintRules; tracker.Tracker implements it.
type rules interface {
	Rules() []string
	Rule(name string) (tracker.Rule, bool)
}

// deleter deletes a rule with the UID and resourceVersion that were read. Paired reports
// whether the rule is the paired rule of another rule or of a published taint that still
// exists.
type deleter interface {
	Paired(ctx context.Context, current *policyset.Set, rule *tracker.Rule) (bool, error)
	DeleteRule(ctx context.Context, rule *tracker.Rule) error
}

// TTLOptions configures a TTLController. Nodes and Metrics are required.
type TTLOptions struct {
	// Nodes writes nodes.
	Nodes NodeClient
	// Patches writes ResourceSlicePatches; nil if their feature gate is off.
	Patches slicePatches
	// Rules reads DeviceTaintRules, and Deleter deletes them; nil where rules are not
	// watched. The component that updates Rules must call RuleChanged.
	Rules   rules
	Deleter deleter
	Metrics *TTLMetrics
}

// TTLController removes expired taints.
type TTLController struct {
	*controller.Controller[ttlKey]

	options TTLOptions
}

// ttlKey names a node, a rule or a ResourceSlicePatch; source is a value of the label
// source.
type ttlKey struct{ source, name string }

func (k ttlKey) describe() string { return sourceKinds[k.source] + "/" + k.name }

// NewTTL returns a controller; Start starts it. The cache of base holds nodes with their
// metadata and taints, and ResourceSlicePatches.
func NewTTL(base controller.Base, options TTLOptions) *TTLController {
	c := &TTLController{options: options}
	onEvent := func(source string) toolscache.ResourceEventHandler {
		return controller.OnEvent(func(object client.Object) { c.Add(ttlKey{source, object.GetName()}) })
	}
	watches := map[client.Object]toolscache.ResourceEventHandler{&corev1.Node{}: onEvent(sourceNode)}
	if options.Patches != nil {
		watches[&v1alpha1.ResourceSlicePatch{}] = onEvent(sourcePatch)
	}
	c.Controller = controller.New(base, controller.Options[ttlKey]{
		Name: "tollgate-ttl", Workers: 2, Describe: ttlKey.describe, Started: c.addRules, Watches: watches,
		PoliciesChanged: c.policiesChanged, Reconcile: c.reconcile,
	})
	return c
}

// RuleChanged queues a rule that was created or changed. It does not block.
func (c *TTLController) RuleChanged(name string) { c.Add(ttlKey{sourceRule, name}) }

func (c *TTLController) addRules() {
	if c.options.Rules == nil {
		return
	}
	for _, name := range c.options.Rules.Rules() {
		c.RuleChanged(name)
	}
}

// policiesChanged queues all rules, patches and nodes.
func (c *TTLController) policiesChanged(ctx context.Context) {
	c.addRules()
	var list v1alpha1.ResourceSlicePatchList
	if c.options.Patches != nil && c.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy) == nil {
		for i := range list.Items {
			c.Add(ttlKey{sourcePatch, list.Items[i].Name})
		}
	}
	addNodes(ctx, c.Cache, func(node *corev1.Node) { c.Add(ttlKey{sourceNode, node.Name}) })
}

// reconcile removes the expired taints of one node, rule or patch.
func (c *TTLController) reconcile(ctx context.Context, k ttlKey) (time.Duration, error) {
	current := c.Policies.Current()
	if current == nil {
		return policiesPause, nil
	}
	e := &expiry{set: current.Taints, now: c.Clock.Now()}
	reference := &corev1.ObjectReference{Kind: sourceKinds[k.source], Name: k.name}
	var removed bool
	var err error
	switch k.source {
	case sourceRule:
		removed, err = c.reconcileRule(ctx, current, e, reference)
	case sourcePatch:
		removed, err = c.reconcilePatch(ctx, e, reference)
	default:
		removed, err = c.reconcileNode(ctx, e, reference)
	}
	if err != nil {
		return 0, client.IgnoreNotFound(err) // A deleted object has no taints.
	}
	for i := range e.expired {
		if !removed {
			break
		}
		taint := &e.expired[i]
		c.options.Metrics.expired.WithLabelValues(k.source).Inc()
		c.Recorder.Eventf(reference, corev1.EventTypeNormal, "TaintExpired", "Removed, because the %s", taint)
		logr.FromContextOrDiscard(ctx).Info("removed what its ttl was over of",
			"source", k.source, "name", k.name, "taint", taint.taint.String(), "policy", taint.policy, "ttl", taint.ttl.String())
	}
	return min(e.next, maxRecheck), nil
}

// reconcileNode removes the expired taints of a node, and reports whether there were any.
func (c *TTLController) reconcileNode(ctx context.Context, e *expiry, reference *corev1.ObjectReference) (bool, error) {
	var node corev1.Node
	if err := c.Cache.Get(ctx, types.NamespacedName{Name: reference.Name}, &node); err != nil {
		return false, err
	}
	e.addNode(&node)
	if len(e.expired) == 0 {
		return false, nil
	}
	reference.APIVersion, reference.UID = "v1", node.UID
	// The patch tests that each taint is still at its position.
	operations := []jsonpatch.Operation{jsonpatch.NewOperation("test", "/metadata/uid", node.UID)}
	for _, expired := range slices.Backward(e.expired) {
		path := "/spec/taints/" + strconv.Itoa(expired.position)
		operations = append(operations, jsonpatch.NewOperation("test", path, node.Spec.Taints[expired.position]), jsonpatch.NewOperation("remove", path, nil))
	}
	patched, err := patchNode(ctx, c.options.Nodes, "remove taints of", node.Name, operations)
	return patched != nil, err
}

// reconcileRule deletes a rule with an expired taint, and reports whether it did.
func (c *TTLController) reconcileRule(ctx context.Context, current *policyset.Set, e *expiry, reference *corev1.ObjectReference) (bool, error) {
	rule, ok := c.options.Rules.Rule(reference.Name)
	if !ok || rule.Patch != (tracker.PatchRef{}) {
		return false, nil // The rule of a patch is deleted with the taint of the patch.
	}
	driver, _ := rule.Selector.Driver()
	e.add(0, taint.OfDevice(driver, &rule.Taint), nil)
	if len(e.expired) == 0 {
		return false, nil
	}
	paired, err := c.options.Deleter.Paired(ctx, current, &rule)
	if err != nil {
		return false, fmt.Errorf("read rule %s: %w", rule.Name, err)
	}
	if paired {
		e.next = maxRecheck // Package devicetaints would recreate it, and deletes it when it is not needed.
		return false, nil
	}
	if err := c.options.Deleter.DeleteRule(ctx, &rule); err != nil {
		return false, fmt.Errorf("delete rule %s: %w", rule.Name, err)
	}
	reference.APIVersion, reference.UID = resourcev1.SchemeGroupVersion.String(), rule.UID
	return true, nil
}

// reconcilePatch removes the expired taints of a ResourceSlicePatch, or deletes a patch
// that would be empty, and reports whether it did.
func (c *TTLController) reconcilePatch(ctx context.Context, e *expiry, reference *corev1.ObjectReference) (bool, error) {
	var patch v1alpha1.ResourceSlicePatch
	if err := c.Cache.Get(ctx, types.NamespacedName{Name: reference.Name}, &patch); err != nil {
		return false, err
	}
	e.addPatch(&patch)
	if len(e.expired) == 0 || patch.DeletionTimestamp != nil {
		return false, nil
	}
	reference.APIVersion, reference.UID = v1alpha1.GroupVersion.String(), patch.UID
	var err error
	spec := &patch.Spec.Devices
	if len(e.expired) == len(spec.Taints) && len(spec.Attributes)+len(spec.Capacity) == 0 {
		err = c.options.Patches.Delete(ctx, patch.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &patch.UID, ResourceVersion: &patch.ResourceVersion},
		})
	} else {
		operations := []jsonpatch.Operation{
			jsonpatch.NewOperation("test", "/metadata/uid", patch.UID), jsonpatch.NewOperation("test", "/metadata/resourceVersion", patch.ResourceVersion),
		}
		for _, expired := range slices.Backward(e.expired) {
			operations = append(operations, jsonpatch.NewOperation("remove", "/spec/devices/taints/"+strconv.Itoa(expired.position), nil))
		}
		var body []byte
		if body, err = json.Marshal(operations); err == nil {
			_, err = c.options.Patches.Patch(ctx, patch.Name, types.JSONPatchType, body, metav1.PatchOptions{})
		}
	}
	if err != nil {
		return false, fmt.Errorf("remove taints of ResourceSlicePatch %s: %w", patch.Name, err)
	}
	return true, nil
}

// expiredTaint is a taint that is older than its ttl.
type expiredTaint struct {
	// position is the index in the taints of the node or patch.
	position int
	taint    taint.Taint
	// ttl is the shortest ttl for the taint, and policy the TaintPolicy that has it.
	ttl    time.Duration
	policy string
}

// String describes the taint, the ttl and the policy.
func (e *expiredTaint) String() string {
	return fmt.Sprintf("taint %s is older than the ttl %s of TaintPolicy/%s", e.taint, e.ttl, e.policy)
}

// expiry collects the taints of an object that are expired at now, and the time until the
// next one expires, zero for never.
type expiry struct {
	set     *taint.Set
	now     time.Time
	expired []expiredTaint
	next    time.Duration
}

// add adds a taint. One without a time or a ttl does not expire, nor does one that stays.
func (e *expiry) add(position int, t taint.Taint, stays func() bool) {
	if t.TimeAdded.IsZero() {
		return
	}
	ttl, policy, ok := e.set.TTL(t)
	if !ok || stays != nil && stays() {
		return
	}
	left := t.TimeAdded.Add(ttl).Sub(e.now)
	switch {
	case left <= 0:
		e.expired = append(e.expired, expiredTaint{position, t, ttl, policy})
	case e.next == 0 || left < e.next:
		e.next = left
	}
}

// addNode adds the taints of a node. PairingController would add a paired taint again, and
// removes it with its NoExecute taint.
func (e *expiry) addNode(node *corev1.Node) {
	for i := range node.Spec.Taints {
		t := &node.Spec.Taints[i]
		e.add(i, taint.OfNode(t), func() bool {
			return selector.System(t.Key) || IsTwin(node, t) || isRegistered(e.set, node, t)
		})
	}
}

// addPatch adds the taints of a ResourceSlicePatch. A taint with a time neither in the spec
// nor in the status does not age yet.
func (e *expiry) addPatch(patch *v1alpha1.ResourceSlicePatch) {
	var driver string
	if names := slicepatch.NamesOf(patch.Spec.Devices.Filter); names.Driver != nil {
		driver = *names.Driver
	}
	for i, t := range patch.Spec.Devices.Taints {
		if t.TimeAdded.IsZero() {
			t.TimeAdded = slicepatch.Since(patch, &t)
		}
		e.add(i, taint.OfDevice(driver, &resourcev1.DeviceTaint{Key: t.Key, Value: t.Value, Effect: t.Effect, TimeAdded: t.TimeAdded}), nil)
	}
}
