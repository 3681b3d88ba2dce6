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
	// lookPause is between two looks at what an open approval is for: what is known of
	// nodes may come to be known after the event that has it looked at.
	lookPause = 5 * time.Second
	// countPause is between two counts of the pods that have gone.
	countPause = 10 * time.Second
	// countFor is how long after its use the pods of an approval are counted.
	countFor = 24 * time.Hour
)

// step looks at one approval.
func (c *ApprovalController) step(ctx context.Context, name string) (time.Duration, error) {
	var approval v1alpha1.EvictionApproval
	if err := c.options.Cache.Get(ctx, types.NamespacedName{Name: name}, &approval); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	now := c.options.Clock.Now()
	before := approval.DeepCopy()
	c.take(&approval, now)
	meta.SetStatusCondition(&approval.Status.Conditions, ready(&approval, now))
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

// next returns when an approval is to be looked at unasked.
func next(approval *v1alpha1.EvictionApproval, now time.Time) time.Duration {
	if at := approval.Status.UsedAt; at != nil {
		if now.Sub(at.Time) < countFor {
			return countPause
		}
		return 0
	}
	return min(max(endOf(approval).Sub(now), 0), lookPause)
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

// take writes into an approval whether it has been used, and what came of it.
func (c *ApprovalController) take(approval *v1alpha1.EvictionApproval, now time.Time) {
	m := c.remember(approval)
	if approval.Status.UsedAt == nil {
		at, ok := c.use(approval, now)
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

// countUse counts an approval when it is seen to be used, whoever wrote that: the breakers of
// EvictionPolicies do as well.
func (c *ApprovalController) countUse(before, now *v1alpha1.EvictionApproval) {
	m := c.remember(now)
	open := m.open || before.Status.UsedAt == nil
	if m.open = now.Status.UsedAt == nil; open && !m.open {
		c.options.Metrics.used.WithLabelValues(kindOf(now)).Inc()
	}
}

// use returns when an approval was used; false if it was not. Every replica sees for
// itself when taints change, so it does not matter who led at that time.
func (c *ApprovalController) use(approval *v1alpha1.EvictionApproval, now time.Time) (time.Time, bool) {
	if c.options.Standing == nil || approval.Spec.EvictionPolicy != "" {
		return time.Time{}, false // The breaker writes its own use.
	}
	taint, ok := c.options.Standing(sourceOf(approval), approval.Spec.Taint.Key)
	if !ok || taint.Effect != approval.Spec.Taint.Effect {
		return time.Time{}, false
	}
	at := taint.Written(now)
	return at, used(approval, at)
}

// remember returns what is remembered of an approval.
func (c *ApprovalController) remember(approval *v1alpha1.EvictionApproval) *memory {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, ok := c.memories[approval.UID]
	if !ok {
		m = &memory{name: approval.Name, spec: approval.Spec}
		c.memories[approval.UID] = m
	}
	return m
}

// count returns how many pods have gone because of an approval that was used. A
// replica that was not there from the beginning adds to what the status says.
func (c *ApprovalController) count(approval *v1alpha1.EvictionApproval, m *memory) int32 {
	// The use is written in whole seconds.
	since := approval.Status.UsedAt.Truncate(time.Second)
	left := int32(min(c.options.Left(sourceOf(approval), approval.Spec.Taint.Key, since), math.MaxInt32/2)) //nolint:gosec // It is bounded.
	if !m.counted {
		m.counted, m.carried = true, max(approval.Status.Evicted-left, 0)
	}
	return m.carried + left
}
