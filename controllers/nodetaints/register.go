package nodetaints

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/evictor/preview"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/taint"
)

// holdPause is the delay between two checks of a node whose taints are held back. An
// approval takes effect at the next check.
const holdPause = 30 * time.Second

// The values of the label why.
const (
	whyReconciled = "reconciled"
	whyRestored   = "restored"
)

// RegisterMetrics counts the registered taints that nodes got or lack.
type RegisterMetrics struct {
	taints         *prometheus.CounterVec
	intolerantPods prometheus.Counter
	heldNodes      prometheus.Gauge
}

// NewRegisterMetrics registers the metrics with reg.
func NewRegisterMetrics(reg prometheus.Registerer) *RegisterMetrics {
	factory := promauto.With(reg)
	return &RegisterMetrics{
		taints: controller.NewCounter(reg, "tollgate_registered_taints_total",
			"Registered taints of a TaintPolicy or the guard of a PlacementPolicy that were added to existing nodes, by cause: the policy keeps them on its nodes (reconciled), or the node was created without them (restored).",
			"why", whyReconciled, whyRestored),
		intolerantPods: factory.NewCounter(prometheus.CounterOpts{
			Name: "tollgate_slipped_pods_total",
			Help: "Pods that were found on nodes created without a registered taint, and that do not tolerate the taint.",
		}),
		heldNodes: factory.NewGauge(prometheus.GaugeOpts{
			Name: "tollgate_held_registrations",
			Help: "Nodes that do not get a registered taint with the effect NoExecute, because a limit of a TaintPolicy does not allow so many evictions.",
		}),
	}
}

// RegisterOptions configures a RegisterController. All fields are required.
type RegisterOptions struct {
	// Nodes writes nodes, and ListPods lists pods, at the API server.
	Nodes    typedcorev1.NodeInterface
	ListPods func(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error)
	// Check checks taints of effect NoExecute against the limits of TaintPolicies before a
	// node gets them. The recent writes of all users count; taints within the limits count
	// from then on. Self is the user name that writes them.
	Check func(ctx context.Context, set *taint.Set, w preview.NodeWrite) (preview.Verdict, error)
	Self  string
	// Since returns the time since which nodes may have been created that no leader has
	// seen. Start calls it once.
	Since   func() time.Time
	Metrics *RegisterMetrics
}

// RegisterController adds registered taints to nodes that lack them.
type RegisterController struct {
	*controller.Controller[string]
	RegisterOptions

	states nodeStates
}

// NewRegister returns a controller; Start starts it. The cache of base holds nodes with
// their metadata and taints.
func NewRegister(base controller.Base, options RegisterOptions) *RegisterController {
	c := &RegisterController{RegisterOptions: options, states: nodeStates{heldCount: options.Metrics.heldNodes}}
	c.Controller = controller.New(base, controller.Options[string]{
		Name: "tollgate-register", Workers: 2, Reconcile: c.reconcile,
		Started: func() { c.states.reset(options.Since()) },
		Watches: map[client.Object]toolscache.ResourceEventHandler{&corev1.Node{}: c},
		PoliciesChanged: func(ctx context.Context) {
			addAll(ctx, c.Cache, &corev1.NodeList{}, func(node client.Object) { c.Add(node.GetName()) })
		},
	})
	return c
}

// Start runs the controller until ctx is done. Afterwards the metric of held nodes is
// zero: only the leader exports it.
func (c *RegisterController) Start(ctx context.Context) error {
	defer c.states.reset(time.Time{})
	return c.Controller.Start(ctx)
}

// OnAdd implements cache.ResourceEventHandler.
func (c *RegisterController) OnAdd(obj any, initial bool) {
	node := obj.(*corev1.Node)
	c.states.add(node, !initial)
	// The attempt may run only after the taint was removed again.
	c.states.observe(node)
	c.Add(node.Name)
}

// OnUpdate implements cache.ResourceEventHandler. A node that was recreated under its name
// while the watch was down arrives as an update too.
func (c *RegisterController) OnUpdate(old, obj any) {
	node := obj.(*corev1.Node)
	if was := old.(*corev1.Node).UID; was != node.UID {
		c.states.remove(was)
		c.states.add(node, true)
	}
	c.states.observe(node)
	c.Add(node.Name)
}

// OnDelete implements cache.ResourceEventHandler.
func (c *RegisterController) OnDelete(obj any) {
	controller.OnEvent(func(node client.Object) {
		c.states.remove(node.GetUID())
		c.Add(node.GetName()) // A concurrent attempt may add its state again.
	}).OnDelete(obj)
}

// reconcile adds the registered taints that one node lacks: first those that do not evict
// pods, to which no limit applies.
func (c *RegisterController) reconcile(ctx context.Context, name string) (time.Duration, error) {
	current := c.Policies.Current()
	if current == nil {
		return policiesPause, nil
	}
	node := &corev1.Node{}
	if err := c.Cache.Get(ctx, types.NamespacedName{Name: name}, node); client.IgnoreNotFound(err) != nil {
		return 0, err
	}
	c.states.read(name, node.UID)
	if node.UID == "" {
		return 0, nil
	}
	nonEvicting, evicting, left := c.states.owed(node, current.Taints.Missing(node.Labels, node.Spec.Taints), c.Local.Now())
	if len(nonEvicting)+len(evicting) == 0 || node.DeletionTimestamp != nil {
		c.states.clearWaiting(node.UID)
		return left, nil
	}
	if len(nonEvicting) > 0 {
		if wait := c.states.reserve(&c.states.nonEvicting, node.UID, c.Local.Now()); wait > 0 {
			return wait, nil
		}
		var err error
		if node, err = c.addTaints(ctx, node, nonEvicting); err != nil || node == nil {
			return left, err
		}
	}
	if len(evicting) == 0 {
		c.states.clearWaiting(node.UID)
		return left, nil
	}
	again, err := c.addEvicting(ctx, current.Taints, node, evicting)
	return cmp.Or(again, left), err
}

// addEvicting adds taints that evict pods to a node, within the limits: otherwise a user
// who may label nodes could evict all pods of the cluster through a policy.
func (c *RegisterController) addEvicting(ctx context.Context, set *taint.Set, node *corev1.Node, missing []taint.Registered) (time.Duration, error) {
	if wait := c.states.reserve(&c.states.evicting, node.UID, c.Local.Now()); wait > 0 {
		return wait, nil
	}
	verdict, err := c.Check(ctx, set, preview.NodeWrite{
		Node: node, Given: nodeTaints(missing, c.Clock.Now()), User: authenticationv1.UserInfo{Username: c.Self},
	})
	var why string
	switch {
	case errors.Is(err, preview.ErrUnfollowed):
		why = "how many pods that evicts cannot be known, as " + err.Error()
	case err != nil:
		return 0, fmt.Errorf("hold taints of node %s against limits: %w", node.Name, err)
	case verdict.Exceeded():
		verdict.Settle(false)
		var denials []string
		for i := range verdict.Findings {
			if verdict.Findings[i].Denies() {
				denials = append(denials, verdict.Findings[i].String())
			}
		}
		why = strings.Join(denials, "; ")
	default:
		_, err = c.addTaints(ctx, node, missing)
		verdict.Settle(err == nil)
		if err == nil {
			c.states.clearWaiting(node.UID)
		}
		return 0, err
	}
	if c.states.hold(node.UID, c.Local.Now()) {
		policies, taints := describe(missing)
		c.Recorder.Eventf(referenceTo(node), corev1.EventTypeWarning, "TaintHeld", "%s registers %s, which is held back: %s", policies, taints, why)
		logr.FromContextOrDiscard(ctx).Info("held registered taints back, for the pods that they would evict",
			"node", node.Name, "taints", taints, "policies", policies, "reason", why)
	}
	return holdPause, nil
}

// addTaints adds taints to a node, and reports them in an event, the log and the metrics; for
// taints that were missing since creation, with the number of pods that do not tolerate
// them. It returns the patched node, nil if the node does not exist. The patch tests that a
// missing list is still absent, or it would replace a list that was created concurrently.
func (c *RegisterController) addTaints(ctx context.Context, node *corev1.Node, missing []taint.Registered) (*corev1.Node, error) {
	const list = "/spec/taints"
	var patch jsonPatch
	if len(node.Spec.Taints) == 0 {
		// A nil slice is null; a nil value would be left out.
		patch.add("test", list, []corev1.Taint(nil))
		patch.add("add", list, []corev1.Taint{})
	}
	for _, taint := range nodeTaints(missing, c.Clock.Now()) {
		patch.add("add", list+"/-", taint)
	}
	patched, err := patchNode(ctx, c.Nodes, "taint", node, patch)
	if err != nil || patched == nil {
		return nil, err
	}
	c.states.observe(patched)
	restored := false
	for i := range missing {
		why := whyReconciled
		if !missing[i].Reconcile {
			why, restored = whyRestored, true
		}
		c.Metrics.taints.WithLabelValues(why).Inc()
	}
	log := logr.FromContextOrDiscard(ctx).WithValues("node", node.Name)
	policies, taints := describe(missing)
	if !restored {
		c.Recorder.Eventf(referenceTo(node), corev1.EventTypeNormal, "TaintAdded", "%s keeps %s on this node: added", policies, taints)
		log.Info("added registered taints", "taints", taints, "policies", policies)
		return patched, nil
	}
	pods, err := c.intolerantPods(ctx, node.Name, missing)
	count := strconv.Itoa(pods)
	if err != nil {
		log.Error(err, "cannot count the pods that came before the taint")
		count = "could not be counted"
	}
	c.Metrics.intolerantPods.Add(float64(pods))
	c.Recorder.Eventf(referenceTo(node), corev1.EventTypeWarning, "TaintRestored",
		"This node was created without %s, which %s registers: added; pods that came before and do not tolerate it: %s", taints, policies, count)
	log.Info("restored registered taints", "taints", taints, "policies", policies, "slipped", count)
	return patched, nil
}

// nodeTaints returns taints with timeAdded now, in whole seconds.
func nodeTaints(missing []taint.Registered, now time.Time) []corev1.Taint {
	at := metav1.NewTime(now.Truncate(time.Second))
	taints := make([]corev1.Taint, 0, len(missing))
	for i := range missing {
		t := missing[i].Taint
		t.TimeAdded = &at
		taints = append(taints, t)
	}
	return taints
}

// describe returns the policies that register taints, and the taints, as text.
func describe(registered []taint.Registered) (policies, taints string) {
	var names, list []string
	for i := range registered {
		names = append(names, policy.Ref("TaintPolicy", registered[i].Policy))
		list = append(list, registered[i].String())
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", "), strings.Join(list, ", ")
}

// intolerantPods counts the running or pending pods on a node that do not tolerate one of
// the taints. Numeric comparison operators count as tolerating it: whether the cluster
// enables them is not known here.
func (c *RegisterController) intolerantPods(ctx context.Context, node string, added []taint.Registered) (int, error) {
	list, err := c.ListPods(ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector("spec.nodeName", node).String(),
		ResourceVersion: "0", // served from the watch cache, which indexes pods by node
	})
	if err != nil {
		return 0, fmt.Errorf("list pods on node %s: %w", node, err)
	}
	count := 0
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		if slices.ContainsFunc(added, func(r taint.Registered) bool {
			t := r.Taint
			return t.Effect != corev1.TaintEffectPreferNoSchedule && !slices.ContainsFunc(pod.Spec.Tolerations, func(toleration corev1.Toleration) bool {
				return toleration.ToleratesTaint(logr.Logger{}, &t, true)
			})
		}) {
			count++
		}
	}
	return count, nil
}
