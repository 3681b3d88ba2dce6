package preview

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/breaker"
	"github.com/tollgate-dev/tollgate/tracker"
)

// ListApprovals returns a function that lists EvictionApprovals from a cache.
func ListApprovals(reader client.Reader) func(ctx context.Context) ([]v1alpha1.EvictionApproval, error) {
	return func(ctx context.Context) ([]v1alpha1.EvictionApproval, error) {
		var list v1alpha1.EvictionApprovalList
		if err := reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list EvictionApprovals: %w", err)
		}
		return list.Items, nil
	}
}

// readApprovals reads the approvals, and the taints that they approved, once for a write.
func (j *judging) readApprovals(ctx context.Context) error {
	if j.read {
		return nil
	}
	items, err := j.Approvals(ctx)
	if err != nil {
		return err
	}
	j.approvals, j.read = items, true
	for i := range items {
		if a := &items[i]; a.Spec.Taint.Effect == corev1.TaintEffectNoExecute {
			j.approved = append(j.approved, Approved{
				Carrier: breaker.CarrierOf(a), Key: a.Spec.Taint.Key, Pods: int(a.Spec.MaxPods),
				From: a.CreationTimestamp.Time, Until: breaker.ExpiryOf(a),
			})
		}
	}
	// The order is that of their ends, so that every replica counts alike, and pods take
	// the approval that fewer other pods could take.
	slices.SortStableFunc(j.approved, func(a, b Approved) int {
		return cmp.Or(a.Until.Compare(b.Until), a.From.Compare(b.From), cmp.Compare(a.Pods, b.Pods))
	})
	return nil
}

// need is an approval that a write requires: of a taint with a key, for a number of pods.
type need struct {
	key  string
	pods int
}

// needed returns the approvals required for the pods that governed taints hit: one for
// each key, by key.
func needed(hit []Struck, governs func(*Hit) bool, now time.Time) []need {
	pods := map[string]int{}
	for i := range hit {
		keys := sets.Set[string]{}
		for _, taint := range hit[i].Taints(governs, now) {
			keys.Insert(taint.Key)
		}
		for key := range keys {
			pods[key]++
		}
	}
	var needs []need
	for _, key := range slices.Sorted(maps.Keys(pods)) {
		needs = append(needs, need{key, pods[key]})
	}
	return needs
}

// remedy says how to approve the write, in the words of the API. A ResourceSlice cannot be
// approved: a driver writes it, and repeats the write.
func (w *Write) remedy(needs []need) string {
	object, ok := map[tracker.SourceKind]string{
		tracker.SourceNode: "node", tracker.SourceRule: "deviceTaintRule", tracker.SourcePatch: "resourceSlicePatch",
	}[w.Carrier.Kind]
	if !ok || len(needs) == 0 {
		return ""
	}
	var specs []string
	for _, n := range needs {
		specs = append(specs, fmt.Sprintf("{%s: %s, taint: {key: %s, effect: NoExecute}, maxPods: %d}", object, w.Carrier.Name, n.key, n.pods))
	}
	text := "to approve it, create an EvictionApproval with spec " + strings.Join(specs, " and another with spec ")
	if !w.own {
		text += ", then write this again"
	}
	return text
}

// approvedBy returns the names of usable approvals for all needs, none if one is missing.
// Hit are the pods.
func (j *judging) approvedBy(needs []need, hit []Struck) []string {
	now := j.Clock.Now()
	var names []string
	for _, n := range needs {
		var enough []*v1alpha1.EvictionApproval
		for i := range j.approvals {
			if a := &j.approvals[i]; j.covers(a, n, now) {
				enough = append(enough, a)
			}
		}
		// The smallest that is enough is taken, so that a larger one is left for more pods.
		slices.SortFunc(enough, func(a, b *v1alpha1.EvictionApproval) int {
			return cmp.Or(cmp.Compare(a.Spec.MaxPods, b.Spec.MaxPods), cmp.Compare(a.Name, b.Name))
		})
		at := slices.IndexFunc(enough, func(a *v1alpha1.EvictionApproval) bool { return j.Ledger.Reserve(j.verdict.own, a.UID, hit) })
		if at < 0 {
			return nil
		}
		names = append(names, enough[at].Name)
	}
	return names
}

// covers reports whether an approval can be used for a need at now. It is used once the
// approved taint exists, even if its status does not say so yet.
func (j *judging) covers(a *v1alpha1.EvictionApproval, n need, now time.Time) bool {
	if breaker.CarrierOf(a) != j.write.Carrier || a.Spec.Taint.Key != n.key || a.Spec.Taint.Effect != corev1.TaintEffectNoExecute ||
		int(a.Spec.MaxPods) < n.pods || a.Status.UsedAt != nil || a.DeletionTimestamp != nil || !now.Before(breaker.ExpiryOf(a)) {
		return false
	}
	_, stored, ok := j.View.Tracker.Standing(j.write.Carrier, n.key)
	return !ok || stored.Written(now).Before(a.CreationTimestamp.Time)
}
