package status

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	// lookPause is the delay between two steps for an open approval: the taint of a node
	// may reach the tracker after the event that queues the approval.
	lookPause = 5 * time.Second
	// countPause is the delay between two counts of the pods that left.
	countPause = 10 * time.Second
	// countFor is how long after its use the pods of an approval are counted.
	countFor = 24 * time.Hour
)

// step reconciles the status of one approval.
func (c *ApprovalController) step(ctx context.Context, name string) (time.Duration, error) {
	var approval v1alpha1.EvictionApproval
	if err := c.options.Cache.Get(ctx, types.NamespacedName{Name: name}, &approval); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	now := c.options.Clock.Now()
	before := approval.DeepCopy()
	c.updateUse(&approval, now)
	meta.SetStatusCondition(&approval.Status.Conditions, approvalReady(&approval, now))
	approval.Status.ObservedGeneration = approval.Generation
	if !equality.Semantic.DeepEqual(before.Status, approval.Status) {
		err := c.options.Status.Patch(ctx, &approval, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if client.IgnoreNotFound(err) != nil {
			return 0, fmt.Errorf("write status of approval %s: %w", name, err)
		}
		logr.FromContextOrDiscard(ctx).V(1).Info("wrote status of approval", "approval", name, "evicted", approval.Status.Evicted)
	}
	c.countUse(before, &approval)
	return next(&approval, now), nil
}

// next returns the delay until the next step without an event, zero for none.
func next(approval *v1alpha1.EvictionApproval, now time.Time) time.Duration {
	if at := approval.Status.UsedAt; at != nil {
		if now.Sub(at.Time) < countFor {
			return countPause
		}
		return 0
	}
	return min(max(expiryOf(approval).Sub(now), 0), lookPause)
}

// sourceOf returns the object that carries the approved taint. An approval for an
// EvictionPolicy has none.
func sourceOf(approval *v1alpha1.EvictionApproval) tracker.Source {
	if name := approval.Spec.DeviceTaintRule; name != "" {
		return tracker.Source{Kind: tracker.SourceRule, Name: name}
	}
	if name := approval.Spec.ResourceSlicePatch; name != "" {
		return tracker.Source{Kind: tracker.SourcePatch, Name: name}
	}
	return tracker.Source{Kind: tracker.SourceNode, Name: approval.Spec.Node}
}

// updateUse sets in the status whether an approval was used, and the number of evicted
// pods.
func (c *ApprovalController) updateUse(approval *v1alpha1.EvictionApproval, now time.Time) {
	m := c.stateOf(approval)
	if approval.Status.UsedAt == nil {
		at, ok := c.findUse(approval, now)
		if !ok {
			return
		}
		approval.Status.UsedAt = new(metav1.NewTime(at))
	}
	if approval.Spec.EvictionPolicy != "" {
		approval.Status.Evicted = approval.Status.Released
		return
	}
	if c.options.Left != nil {
		approval.Status.Evicted = max(approval.Status.Evicted, c.count(approval, m))
	}
}

// countUse counts an approval in the metric when it is first seen used, also if a breaker
// wrote the use.
func (c *ApprovalController) countUse(before, now *v1alpha1.EvictionApproval) {
	m := c.stateOf(now)
	open := m.open || before.Status.UsedAt == nil
	if m.open = now.Status.UsedAt == nil; open && !m.open {
		c.options.Metrics.used.WithLabelValues(kindOf(now)).Inc()
	}
}

// findUse returns the time at which an approval was used; false if it was not. Every
// replica tracks the times of taints, so a change of the leader does not matter.
func (c *ApprovalController) findUse(approval *v1alpha1.EvictionApproval, now time.Time) (time.Time, bool) {
	if c.options.Standing == nil || approval.Spec.EvictionPolicy != "" {
		return time.Time{}, false // Breakers write the use of such an approval.
	}
	taint, ok := c.options.Standing(sourceOf(approval), approval.Spec.Taint.Key)
	if !ok || taint.Effect != approval.Spec.Taint.Effect {
		return time.Time{}, false
	}
	at := taint.Written(now)
	return at, covers(approval, at)
}

// stateOf returns the state of an approval.
func (c *ApprovalController) stateOf(approval *v1alpha1.EvictionApproval) *approvalState {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, ok := c.states[approval.UID]
	if !ok {
		m = &approvalState{name: approval.Name, spec: approval.Spec}
		c.states[approval.UID] = m
	}
	return m
}

// count returns how many pods left because of a used approval. A replica that started
// after the use adds the pods that it counts to the number in the status.
func (c *ApprovalController) count(approval *v1alpha1.EvictionApproval, m *approvalState) int32 {
	// UsedAt has whole seconds.
	since := approval.Status.UsedAt.Truncate(time.Second)
	left := int32(min(c.options.Left(sourceOf(approval), approval.Spec.Taint.Key, since), math.MaxInt32/2)) //nolint:gosec // It is bounded.
	if !m.counted {
		m.counted, m.carried = true, max(approval.Status.Evicted-left, 0)
	}
	return m.carried + left
}
