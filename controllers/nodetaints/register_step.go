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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/taint"
)

// step adds the registered taints that one node lacks.
func (c *RegisterController) step(ctx context.Context, name string) (time.Duration, error) {
	current := c.options.Policies.Current()
	if current == nil {
		return policiesPause, nil
	}
	var node corev1.Node
	if err := c.options.Cache.Get(ctx, types.NamespacedName{Name: name}, &node); client.IgnoreNotFound(err) != nil {
		return 0, err
	}
	if before, gone := c.nodeUIDs.observe(name, node.UID); gone {
		c.remove(before)
	}
	if node.UID == "" {
		return 0, nil
	}
	c.newcomers.observe(node.UID, node.Spec.Taints)
	nonEvicting, evicting, err := c.missing(ctx, current.Taints, &node)
	if err != nil {
		return 0, err
	}
	left := c.newcomers.finishStep(node.UID, c.options.Local.Now())
	if len(nonEvicting)+len(evicting) == 0 || node.DeletionTimestamp != nil {
		c.clearWaiting(node.UID)
		return left, nil
	}
	again, err := c.addMissing(ctx, current.Taints, &node, nonEvicting, evicting)
	return cmp.Or(again, left), err
}

// clearWaiting removes the rate-limit reservations and the hold of a node that lacks
// nothing.
func (c *RegisterController) clearWaiting(uid types.UID) {
	c.nonEvicting.remove(uid)
	c.evicting.remove(uid)
	c.heldNodes.remove(uid)
}

// addMissing adds taints to a node: first those that do not evict pods, to which no limit
// applies.
func (c *RegisterController) addMissing(ctx context.Context, set *taint.Set, node *corev1.Node, nonEvicting, evicting []taint.Registered) (time.Duration, error) {
	if len(nonEvicting) > 0 {
		if wait := c.nonEvicting.take(node.UID, c.options.Local.Now()); wait > 0 {
			return wait, nil
		}
		answer, err := c.patchNode(ctx, node, nonEvicting)
		if err != nil || answer == nil {
			return 0, err
		}
		node = answer
	}
	if len(evicting) == 0 {
		c.heldNodes.remove(node.UID)
		return 0, nil
	}
	return c.addEvicting(ctx, set, node, evicting)
}

// missing returns the registered taints that a node is to get, with and without effect
// NoExecute.
func (c *RegisterController) missing(ctx context.Context, set *taint.Set, node *corev1.Node) (nonEvicting, evicting []taint.Registered, err error) {
	// Checked once: a node that becomes a newcomer during this loop is queued again, and
	// would otherwise get only the last of its taints now.
	newcomer := c.newcomers.has(node.UID)
	for _, r := range set.Missing(node.Labels, node.Spec.Taints) {
		if !r.Reconcile {
			if !newcomer {
				continue
			}
			before, err := c.policyPredates(ctx, r.Policy, node)
			if err != nil {
				return nil, nil, err
			}
			if !before || !c.newcomers.require(node.UID, taintID{r.Taint.Key, r.Taint.Effect}, c.options.Local.Now()) {
				continue
			}
		}
		if r.Taint.Effect == corev1.TaintEffectNoExecute {
			evicting = append(evicting, r)
		} else {
			nonEvicting = append(nonEvicting, r)
		}
	}
	return nonEvicting, evicting, nil
}

// policyPredates reports whether a policy is at least as old as a node, in whole seconds.
func (c *RegisterController) policyPredates(ctx context.Context, policy string, node *corev1.Node) (bool, error) {
	var object v1alpha1.TaintPolicy
	err := c.options.Cache.Get(ctx, types.NamespacedName{Name: policy}, &object)
	if apierrors.IsNotFound(err) {
		return false, nil // The policy was deleted.
	}
	if err != nil {
		return false, fmt.Errorf("read TaintPolicy %s: %w", policy, err)
	}
	return !node.CreationTimestamp.Before(&object.CreationTimestamp), nil
}

// patchNode adds taints to a node and reports them. It returns the patched node, nil if
// the node does not exist.
func (c *RegisterController) patchNode(ctx context.Context, node *corev1.Node, missing []taint.Registered) (*corev1.Node, error) {
	body, err := patch(node, missing, c.options.Clock.Now())
	if err != nil {
		return nil, err
	}
	answer, err := c.options.Nodes.Patch(ctx, node.Name, types.JSONPatchType, body, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // A missing node is no error.
	}
	if err != nil {
		return nil, fmt.Errorf("taint node %s: %w", node.Name, err)
	}
	c.newcomers.observe(node.UID, answer.Spec.Taints)
	for i := range missing {
		why := whyRestored
		if missing[i].Reconcile {
			why = whyReconciled
		}
		c.options.Metrics.taints.WithLabelValues(why).Inc()
	}
	c.report(ctx, node, missing)
	return answer, nil
}

// describe returns the policies that register taints, and the taints, as text.
func describe(registered []taint.Registered) (policies, taints string) {
	var names, list []string
	for i := range registered {
		names = append(names, "TaintPolicy/"+registered[i].Policy)
		list = append(list, registered[i].String())
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", "), strings.Join(list, ", ")
}

func referenceTo(node *corev1.Node) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
}

// report records the added taints in an event, the log and the metrics; for taints that
// were missing since creation, with the number of pods that do not tolerate them.
func (c *RegisterController) report(ctx context.Context, node *corev1.Node, added []taint.Registered) {
	log := logr.FromContextOrDiscard(ctx).WithValues("node", node.Name)
	policies, taints := describe(added)
	if !slices.ContainsFunc(added, func(r taint.Registered) bool { return !r.Reconcile }) {
		c.options.Recorder.Eventf(referenceTo(node), corev1.EventTypeNormal, "TaintAdded", "%s keeps %s on this node: added", policies, taints)
		log.Info("added registered taints", "taints", taints, "policies", policies)
		return
	}
	count := "could not be counted"
	pods, err := c.intolerantPods(ctx, node.Name, added)
	if err != nil {
		log.Error(err, "cannot count the pods that came before the taint")
	} else {
		count = strconv.Itoa(pods)
	}
	c.options.Metrics.intolerantPods.Add(float64(pods))
	c.options.Recorder.Eventf(referenceTo(node), corev1.EventTypeWarning, "TaintRestored",
		"This node was created without %s, which %s registers: added; pods that came before and do not tolerate it: %s", taints, policies, count)
	log.Info("restored registered taints", "taints", taints, "policies", policies, "slipped", count)
}

// countIntolerantPods counts the running or pending pods on a node that do not tolerate
// one of the taints.
func (c *RegisterController) intolerantPods(ctx context.Context, node string, added []taint.Registered) (int, error) {
	list, err := c.options.Pods.List(ctx, metav1.ListOptions{
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
		if slices.ContainsFunc(added, func(r taint.Registered) bool { return repels(&r, pod.Spec.Tolerations) }) {
			count++
		}
	}
	return count, nil
}

// repels reports whether a taint would have kept a pod with these tolerations off the
// node. Numeric comparison operators count as tolerating it: whether the cluster enables
// them is not known here.
func repels(r *taint.Registered, tolerations []corev1.Toleration) bool {
	if r.Taint.Effect == corev1.TaintEffectPreferNoSchedule {
		return false
	}
	taint := corev1.Taint{Key: r.Taint.Key, Value: r.Taint.Value, Effect: r.Taint.Effect}
	return !slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
		return t.ToleratesTaint(logr.Logger{}, &taint, true)
	})
}
