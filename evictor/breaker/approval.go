package breaker

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/tracker"
)

// sameAppearance is how long after its use an approval covers a taint that appears to be added then:
// replicas observe the same taint at different times.
const sameAppearance = 5 * time.Second

// Cause is the taint because of which a pod is evicted.
type Cause struct {
	Carrier tracker.Source
	// Patch is the ResourceSlicePatch from which the carrier is derived; zero for none.
	Patch  tracker.PatchRef
	Key    string
	Effect corev1.TaintEffect
}

func expiry(a *v1alpha1.EvictionApproval) time.Time {
	return a.CreationTimestamp.Add(a.Spec.ExpiresAfter.Duration)
}

// names reports whether an approval names a source, and the taint of a cause.
func names(a *v1alpha1.EvictionApproval, source tracker.Source, cause Cause) bool {
	name := map[tracker.SourceKind]string{
		tracker.SourceNode: a.Spec.Node, tracker.SourceRule: a.Spec.DeviceTaintRule, tracker.SourcePatch: a.Spec.ResourceSlicePatch,
	}[source.Kind]
	return name != "" && name == source.Name && a.Spec.Taint == v1alpha1.ApprovedTaint{Key: cause.Key, Effect: cause.Effect}
}

func isListed(approvals []*v1alpha1.EvictionApproval, uid types.UID) bool {
	return slices.ContainsFunc(approvals, func(a *v1alpha1.EvictionApproval) bool { return a.UID == uid })
}

// validApprovals returns the approvals that have not expired and are of a policy, or of the taint of a cause.
func (k *Keeper) validApprovals(t *term, cause Cause) []*v1alpha1.EvictionApproval {
	t.mu.Lock()
	approvals := t.approvals
	t.mu.Unlock()
	server := k.options.Clock.Now()
	return slices.DeleteFunc(slices.Clone(approvals), func(a *v1alpha1.EvictionApproval) bool {
		return !server.Before(expiry(a)) || a.Spec.EvictionPolicy == "" && !k.covers(a, cause, server)
	})
}

// covers reports whether an approval is of the taint of a cause. An approval that was used does not cover
// a taint that was added later. The taint of a patch is added with the first of its rules.
func (k *Keeper) covers(a *v1alpha1.EvictionApproval, cause Cause, server time.Time) bool {
	return k.options.Standing != nil && slices.ContainsFunc([]tracker.Source{cause.Carrier, cause.Patch.Source()}, func(source tracker.Source) bool {
		if !names(a, source, cause) {
			return false
		}
		taint, ok := k.options.Standing(source, cause.Key)
		return ok && (a.Status.UsedAt == nil || !taint.Written(server).After(a.Status.UsedAt.Add(sameAppearance)))
	})
}

// followApprovals lists the approvals until ctx is done.
func (k *Keeper) followApprovals(ctx context.Context, t *term) {
	for k.sleep(ctx, activePause, nil) {
		// An error is a panic, which is logged.
		_ = controller.Contain(ctx, "breaker", func() error { k.refreshApprovals(ctx, t); return nil })
	}
}

// refreshApprovals lists the approvals if a breaker is tripped. If there is a new one, it has the evictor decide
// again about the held pods.
func (k *Keeper) refreshApprovals(ctx context.Context, t *term) {
	tripped := t.tripped()
	var list v1alpha1.EvictionApprovalList
	if len(tripped) > 0 && k.options.Approvals != nil {
		if err := k.options.Approvals.List(ctx, &list); err != nil {
			logr.FromContextOrDiscard(ctx).V(1).Info("cannot list EvictionApprovals yet", "reason", err.Error())
			return
		}
	}
	server := k.options.Clock.Now()
	var approvals []*v1alpha1.EvictionApproval
	for i := range list.Items {
		if a := &list.Items[i]; a.DeletionTimestamp == nil && server.Before(expiry(a)) {
			approvals = append(approvals, a)
		}
	}
	slices.SortFunc(approvals, func(a, b *v1alpha1.EvictionApproval) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	t.mu.Lock()
	before := t.approvals
	t.approvals = approvals
	t.mu.Unlock()
	if slices.ContainsFunc(approvals, func(a *v1alpha1.EvictionApproval) bool { return !isListed(before, a.UID) }) {
		for _, policy := range tripped {
			k.evictor.WakeHeld(policy)
		}
	}
}
