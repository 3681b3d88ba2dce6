package breaker

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
)

// sameAppearance is how long after its use an approval covers a taint that appears to be added then:
// replicas observe the same taint at different times.
const sameAppearance = 5 * time.Second

// defaultExpiry is how long an approval without expiresAfter can be used.
const defaultExpiry = time.Hour

// ExpiryOf returns when an approval can no longer be used.
func ExpiryOf(a *v1alpha1.EvictionApproval) time.Time {
	after := a.Spec.ExpiresAfter.Duration
	if after <= 0 {
		after = defaultExpiry
	}
	return a.CreationTimestamp.Add(after)
}

// CarrierOf returns the object that carries the approved taint, without its UID. It is zero for an approval of
// an EvictionPolicy.
func CarrierOf(a *v1alpha1.EvictionApproval) tracker.Source {
	switch spec := &a.Spec; {
	case spec.Node != "":
		return tracker.Source{Kind: tracker.SourceNode, Name: spec.Node}
	case spec.DeviceTaintRule != "":
		return tracker.Source{Kind: tracker.SourceRule, Name: spec.DeviceTaintRule}
	case spec.ResourceSlicePatch != "":
		return tracker.Source{Kind: tracker.SourcePatch, Name: spec.ResourceSlicePatch}
	}
	return tracker.Source{}
}

func isListed(approvals []*v1alpha1.EvictionApproval, uid types.UID) bool {
	return slices.ContainsFunc(approvals, func(a *v1alpha1.EvictionApproval) bool { return a.UID == uid })
}

// validApprovals returns the approvals that have not expired and are of a policy, or of a taint.
func (k *Keeper) validApprovals(taint *tracker.Taint) []*v1alpha1.EvictionApproval {
	k.mu.Lock()
	approvals := k.approvals
	k.mu.Unlock()
	server := k.options.Clock.Now()
	return slices.DeleteFunc(slices.Clone(approvals), func(a *v1alpha1.EvictionApproval) bool {
		return !server.Before(ExpiryOf(a)) || a.Spec.EvictionPolicy == "" && !k.covers(a, taint, server)
	})
}

// covers reports whether an approval is of a taint. An approval that was used does not cover a taint that was
// added later. The taint of a patch is added with the first of its rules.
func (k *Keeper) covers(a *v1alpha1.EvictionApproval, taint *tracker.Taint, server time.Time) bool {
	carrier := CarrierOf(a)
	if !taint.From(carrier.Kind, carrier.Name) || a.Spec.Taint != (v1alpha1.ApprovedTaint{Key: taint.Key, Effect: taint.Effect}) {
		return false
	}
	standing, _, ok := k.options.Standing(carrier, taint.Key)
	return ok && (a.Status.UsedAt == nil || !standing.Written(server).After(a.Status.UsedAt.Add(sameAppearance)))
}

// refreshApprovals lists the approvals if a breaker is tripped. If there is a new one, it has the evictor decide
// again about the held pods.
func (k *Keeper) refreshApprovals(ctx context.Context) {
	tripped := k.tripped()
	var list v1alpha1.EvictionApprovalList
	if len(tripped) > 0 {
		if err := k.options.Approvals.List(ctx, &list); err != nil {
			logr.FromContextOrDiscard(ctx).V(1).Info("cannot list EvictionApprovals yet", "reason", err.Error())
			return
		}
	}
	server := k.options.Clock.Now()
	var approvals []*v1alpha1.EvictionApproval
	for i := range list.Items {
		if a := &list.Items[i]; a.DeletionTimestamp == nil && server.Before(ExpiryOf(a)) {
			approvals = append(approvals, a)
		}
	}
	slices.SortFunc(approvals, func(a, b *v1alpha1.EvictionApproval) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	k.mu.Lock()
	before := k.approvals
	k.approvals = approvals
	k.mu.Unlock()
	if slices.ContainsFunc(approvals, func(a *v1alpha1.EvictionApproval) bool { return !isListed(before, a.UID) }) {
		for _, policy := range tripped {
			k.evictor.WakeHeld(policy)
		}
	}
}
