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
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
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
var sourceKinds = map[string]schema.GroupVersionKind{
	sourceNode:  corev1.SchemeGroupVersion.WithKind("Node"),
	sourceRule:  resourcev1.SchemeGroupVersion.WithKind("DeviceTaintRule"),
	sourcePatch: v1alpha1.GroupVersion.WithKind("ResourceSlicePatch"),
}

// NewTTLMetrics registers the counter of the removals of expired taints with reg.
func NewTTLMetrics(reg prometheus.Registerer) *prometheus.CounterVec {
	return controller.NewCounter(reg, "tollgate_expired_taints_total",
		"Taints of nodes and ResourceSlicePatches, and DeviceTaintRules, that were removed at the end of the ttl of a TaintPolicy, by source.",
		"source", sourceNode, sourceRule, sourcePatch)
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
	Nodes typedcorev1.NodeInterface
	// Patches writes ResourceSlicePatches; nil if their feature gate is off.
	Patches dynamic.ResourceInterface
	// Rules reads DeviceTaintRules, and Deleter deletes them; nil where rules are not
	// watched. The component that updates Rules must call RuleChanged.
	Rules   *tracker.Tracker
	Deleter deleter
	Metrics *prometheus.CounterVec
}

// TTLController removes expired taints.
type TTLController struct {
	*controller.Controller[ttlKey]
	TTLOptions
}

// ttlKey names a node, a rule or a ResourceSlicePatch; source is a value of the label
// source.
type ttlKey struct{ source, name string }

func (k ttlKey) describe() string { return sourceKinds[k.source].Kind + "/" + k.name }

// NewTTL returns a controller; Start starts it. The cache of base holds nodes with their
// metadata and taints, and ResourceSlicePatches.
func NewTTL(base controller.Base, options TTLOptions) *TTLController {
	c := &TTLController{TTLOptions: options}
	watches := map[client.Object]toolscache.ResourceEventHandler{&corev1.Node{}: controller.OnEvent(c.add(sourceNode))}
	if options.Patches != nil {
		watches[&v1alpha1.ResourceSlicePatch{}] = controller.OnEvent(c.add(sourcePatch))
	}
	c.Controller = controller.New(base, controller.Options[ttlKey]{
		Name: "tollgate-ttl", Workers: 2, Describe: ttlKey.describe, Started: c.addRules, Watches: watches,
		PoliciesChanged: c.policiesChanged, Reconcile: c.reconcile,
	})
	return c
}

// RuleChanged queues a rule that was created or changed. It does not block.
func (c *TTLController) RuleChanged(name string) { c.Add(ttlKey{sourceRule, name}) }

// add returns a function that queues an object of a source.
func (c *TTLController) add(source string) func(client.Object) {
	return func(object client.Object) { c.Add(ttlKey{source, object.GetName()}) }
}

func (c *TTLController) addRules() {
	if c.Rules == nil {
		return
	}
	for _, name := range c.Rules.Rules() {
		c.RuleChanged(name)
	}
}

// policiesChanged queues all rules, patches and nodes.
func (c *TTLController) policiesChanged(ctx context.Context) {
	c.addRules()
	if c.Patches != nil {
		addAll(ctx, c.Cache, &v1alpha1.ResourceSlicePatchList{}, c.add(sourcePatch))
	}
	addAll(ctx, c.Cache, &corev1.NodeList{}, c.add(sourceNode))
}

// reconcile removes the expired taints of one node, rule or patch.
func (c *TTLController) reconcile(ctx context.Context, k ttlKey) (time.Duration, error) {
	current := c.Policies.Current()
	if current == nil {
		return policiesPause, nil
	}
	e := &expiry{policies: current, now: c.Clock.Now()}
	var err error
	switch k.source {
	case sourceRule:
		err = c.reconcileRule(ctx, e, k.name)
	case sourcePatch:
		err = c.reconcilePatch(ctx, e, k.name)
	default:
		err = c.reconcileNode(ctx, e, k.name)
	}
	if err != nil {
		return 0, client.IgnoreNotFound(err) // A deleted object has no taints.
	}
	reference := &corev1.ObjectReference{Name: k.name, UID: e.uid}
	reference.SetGroupVersionKind(sourceKinds[k.source])
	for i := range e.expired {
		taint := &e.expired[i]
		c.Metrics.WithLabelValues(k.source).Inc()
		c.Recorder.Eventf(reference, corev1.EventTypeNormal, "TaintExpired",
			"Removed, because the taint %s is older than the ttl %s of TaintPolicy/%s", taint.taint, taint.ttl, taint.policy)
		logr.FromContextOrDiscard(ctx).Info("removed what its ttl was over of",
			"source", k.source, "name", k.name, "taint", taint.taint.String(), "policy", taint.policy, "ttl", taint.ttl.String())
	}
	return min(e.next, maxRecheck), nil
}

// reconcileNode removes the expired taints of a node.
func (c *TTLController) reconcileNode(ctx context.Context, e *expiry, name string) error {
	var node corev1.Node
	if err := c.Cache.Get(ctx, types.NamespacedName{Name: name}, &node); err != nil {
		return err
	}
	for i := range node.Spec.Taints {
		t := &node.Spec.Taints[i]
		// PairingController would add a paired taint again, and removes it with its NoExecute
		// taint.
		e.add(i, taint.OfNode(t), func() bool {
			return selector.System(t.Key) || IsTwin(&node, t) || isRegistered(e.policies.Taints, &node, t)
		})
	}
	if len(e.expired) == 0 {
		return nil
	}
	e.uid = node.UID
	// The patch tests that each taint is still at its position.
	var patch jsonPatch
	for _, expired := range slices.Backward(e.expired) {
		path := "/spec/taints/" + strconv.Itoa(expired.position)
		patch.add("test", path, node.Spec.Taints[expired.position])
		patch.add("remove", path, nil)
	}
	patched, err := patchNode(ctx, c.Nodes, "remove taints of", &node, patch)
	if patched == nil {
		e.expired = nil
	}
	return err
}

// reconcileRule deletes a rule with an expired taint.
func (c *TTLController) reconcileRule(ctx context.Context, e *expiry, name string) error {
	rule, ok := c.Rules.Rule(name)
	if !ok || rule.Patch != (tracker.PatchRef{}) {
		return nil // The rule of a patch is deleted with the taint of the patch.
	}
	driver, _ := rule.Selector.Driver()
	e.add(0, taint.OfDevice(driver, &rule.Taint), nil)
	if len(e.expired) == 0 {
		return nil
	}
	paired, err := c.Deleter.Paired(ctx, e.policies, &rule)
	if err != nil {
		return fmt.Errorf("read rule %s: %w", rule.Name, err)
	}
	if paired {
		// Package devicetaints would recreate it, and deletes it when it is not needed.
		e.expired, e.next = nil, maxRecheck
		return nil
	}
	if err := c.Deleter.DeleteRule(ctx, &rule); err != nil {
		return fmt.Errorf("delete rule %s: %w", rule.Name, err)
	}
	e.uid = rule.UID
	return nil
}

// reconcilePatch removes the expired taints of a ResourceSlicePatch, or deletes a patch
// that would be empty.
func (c *TTLController) reconcilePatch(ctx context.Context, e *expiry, name string) error {
	var patch v1alpha1.ResourceSlicePatch
	if err := c.Cache.Get(ctx, types.NamespacedName{Name: name}, &patch); err != nil {
		return err
	}
	spec := &patch.Spec.Devices
	driver := ptr.Deref(slicepatch.NamesOf(spec.Filter).Driver, "")
	for i, t := range spec.Taints {
		// A taint with a time neither in the spec nor in the status does not age yet.
		if t.TimeAdded.IsZero() {
			t.TimeAdded = slicepatch.Since(&patch, &t)
		}
		e.add(i, taint.OfDevice(driver, new(resourcev1.DeviceTaint(t))), nil)
	}
	if patch.DeletionTimestamp != nil {
		e.expired = nil
	}
	if len(e.expired) == 0 {
		return nil
	}
	e.uid = patch.UID
	var err error
	if len(e.expired) == len(spec.Taints) && len(spec.Attributes)+len(spec.Capacity) == 0 {
		err = c.Patches.Delete(ctx, patch.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &patch.UID, ResourceVersion: &patch.ResourceVersion},
		})
	} else {
		var operations jsonPatch
		operations.add("test", "/metadata/uid", patch.UID)
		operations.add("test", "/metadata/resourceVersion", patch.ResourceVersion)
		for _, expired := range slices.Backward(e.expired) {
			operations.add("remove", "/spec/devices/taints/"+strconv.Itoa(expired.position), nil)
		}
		var body []byte
		if body, err = json.Marshal(operations); err == nil {
			_, err = c.Patches.Patch(ctx, patch.Name, types.JSONPatchType, body, metav1.PatchOptions{})
		}
	}
	if err != nil {
		return fmt.Errorf("remove taints of ResourceSlicePatch %s: %w", patch.Name, err)
	}
	return nil
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

// expiry collects the UID of an object, its taints that are expired at now and are removed,
// and the time until the next one expires, zero for never.
type expiry struct {
	policies *policyset.Set
	now      time.Time
	uid      types.UID
	expired  []expiredTaint
	next     time.Duration
}

// add adds a taint. One without a time or a ttl does not expire, nor does one that stays.
func (e *expiry) add(position int, t taint.Taint, stays func() bool) {
	if t.TimeAdded.IsZero() {
		return
	}
	ttl, policy, ok := e.policies.Taints.TTL(t)
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
