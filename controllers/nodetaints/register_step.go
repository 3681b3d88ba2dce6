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

// step gives one node what it lacks.
func (c *RegisterController) step(ctx context.Context, name string) (time.Duration, error) {
	current := c.options.Policies.Current()
	if current == nil {
		return policiesPause, nil
	}
	var node corev1.Node
	if err := c.options.Cache.Get(ctx, types.NamespacedName{Name: name}, &node); client.IgnoreNotFound(err) != nil {
		return 0, err
	}
	if before, gone := c.names.see(name, node.UID); gone {
		c.leave(before)
	}
	if node.UID == "" {
		return 0, nil
	}
	c.newcomers.see(node.UID, node.Spec.Taints)
	calm, evicting, err := c.missing(ctx, current.Taints, &node)
	if err != nil {
		return 0, err
	}
	left := c.newcomers.looked(node.UID, c.options.Local.Now())
	if len(calm)+len(evicting) == 0 || node.DeletionTimestamp != nil {
		c.satisfied(node.UID)
		return left, nil
	}
	again, err := c.give(ctx, current.Taints, &node, calm, evicting)
	return cmp.Or(again, left), err
}

// satisfied takes in that a node lacks nothing, or nothing any more.
func (c *RegisterController) satisfied(uid types.UID) {
	c.calm.leave(uid)
	c.evicting.leave(uid)
	c.held.leave(uid)
}

// give adds taints to a node: first those that evict nobody, which no limit is about.
func (c *RegisterController) give(ctx context.Context, set *taint.Set, node *corev1.Node, calm, evicting []taint.Registered) (time.Duration, error) {
	if len(calm) > 0 {
		if wait := c.calm.take(node.UID, c.options.Local.Now()); wait > 0 {
			return wait, nil
		}
		answer, err := c.taint(ctx, node, calm)
		if err != nil || answer == nil {
			return 0, err
		}
		node = answer
	}
	if len(evicting) == 0 {
		c.held.leave(node.UID)
		return 0, nil
	}
	return c.evict(ctx, set, node, evicting)
}

// missing returns the taints that a node is to be given, and which evict pods.
func (c *RegisterController) missing(ctx context.Context, set *taint.Set, node *corev1.Node) (calm, evicting []taint.Registered, err error) {
	// Asked once: a node that is announced meanwhile is looked at again, and would else be
	// given only those of its taints that come last.
	newcomer := c.newcomers.includes(node.UID)
	for _, r := range set.Missing(node.Labels, node.Spec.Taints) {
		if !r.Reconcile {
			if !newcomer {
				continue
			}
			before, err := c.stoodBefore(ctx, r.Policy, node)
			if err != nil {
				return nil, nil, err
			}
			if !before || !c.newcomers.owes(node.UID, pair{r.Taint.Key, r.Taint.Effect}, c.options.Local.Now()) {
				continue
			}
		}
		if r.Taint.Effect == corev1.TaintEffectNoExecute {
			evicting = append(evicting, r)
		} else {
			calm = append(calm, r)
		}
	}
	return calm, evicting, nil
}

// stoodBefore reports whether a policy existed when a node was created.
func (c *RegisterController) stoodBefore(ctx context.Context, policy string, node *corev1.Node) (bool, error) {
	var object v1alpha1.TaintPolicy
	err := c.options.Cache.Get(ctx, types.NamespacedName{Name: policy}, &object)
	if apierrors.IsNotFound(err) {
		return false, nil // It is being deleted.
	}
	if err != nil {
		return false, fmt.Errorf("read TaintPolicy %s: %w", policy, err)
	}
	return !node.CreationTimestamp.Before(&object.CreationTimestamp), nil
}

// taint adds taints to a node and tells of it. It returns the node as it is then, nil
// where it is gone.
func (c *RegisterController) taint(ctx context.Context, node *corev1.Node, missing []taint.Registered) (*corev1.Node, error) {
	body, err := patch(node, missing, c.options.Clock.Now())
	if err != nil {
		return nil, err
	}
	answer, err := c.options.Nodes.Patch(ctx, node.Name, types.JSONPatchType, body, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // There is no node, and no fault.
	}
	if err != nil {
		return nil, fmt.Errorf("taint node %s: %w", node.Name, err)
	}
	c.newcomers.see(node.UID, answer.Spec.Taints)
	for i := range missing {
		why := restored
		if missing[i].Reconcile {
			why = reconciled
		}
		c.options.Metrics.taints.WithLabelValues(why).Inc()
	}
	c.report(ctx, node, missing)
	return answer, nil
}

// words says which policies register taints, and which taints.
func words(registered []taint.Registered) (who, what string) {
	var names, taints []string
	for i := range registered {
		names = append(names, "TaintPolicy/"+registered[i].Policy)
		taints = append(taints, registered[i].String())
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", "), strings.Join(taints, ", ")
}

func referenceTo(node *corev1.Node) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
}

// report says on the node what it was given, and how many pods had slipped in before.
func (c *RegisterController) report(ctx context.Context, node *corev1.Node, added []taint.Registered) {
	log := logr.FromContextOrDiscard(ctx).WithValues("node", node.Name)
	who, what := words(added)
	if !slices.ContainsFunc(added, func(r taint.Registered) bool { return !r.Reconcile }) {
		c.options.Recorder.Eventf(referenceTo(node), corev1.EventTypeNormal, "TaintAdded", "%s keeps %s on this node: added", who, what)
		log.Info("added registered taints", "taints", what, "policies", who)
		return
	}
	count := "could not be counted"
	pods, err := c.slipped(ctx, node.Name, added)
	if err != nil {
		log.Error(err, "cannot count the pods that came before the taint")
	} else {
		count = strconv.Itoa(pods)
	}
	c.options.Metrics.slipped.Add(float64(pods))
	c.options.Recorder.Eventf(referenceTo(node), corev1.EventTypeWarning, "TaintRestored",
		"This node was created without %s, which %s registers: added; pods that came before and do not tolerate it: %s", what, who, count)
	log.Info("restored registered taints", "taints", what, "policies", who, "slipped", count)
}

// slipped counts the pods on a node that do not tolerate one of the taints.
func (c *RegisterController) slipped(ctx context.Context, node string, added []taint.Registered) (int, error) {
	list, err := c.options.Pods.List(ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector("spec.nodeName", node).String(),
		ResourceVersion: "0", // out of the API server's cache, which knows pods by node
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
		if slices.ContainsFunc(added, func(r taint.Registered) bool { return stops(&r, pod.Spec.Tolerations) }) {
			count++
		}
	}
	return count, nil
}

// stops reports whether a taint would have kept a pod with these tolerations away.
// Comparisons of numbers count as tolerating it: whether they do is a matter of the
// cluster, and nobody is to be accused for it.
func stops(r *taint.Registered, tolerations []corev1.Toleration) bool {
	if r.Taint.Effect == corev1.TaintEffectPreferNoSchedule {
		return false
	}
	taint := corev1.Taint{Key: r.Taint.Key, Value: r.Taint.Value, Effect: r.Taint.Effect}
	return !slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
		return t.ToleratesTaint(logr.Logger{}, &taint, true)
	})
}
