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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
)

// defaultExpiry is how long an approval without expiresAfter can be used.
const defaultExpiry = time.Hour

// approvals lists EvictionApprovals; Approvals implements it.
type approvals interface {
	// List returns all approvals, used or not. The caller must not change them.
	List(ctx context.Context) ([]v1alpha1.EvictionApproval, error)
}

// Approvals reads EvictionApprovals from a cache.
type Approvals struct{ reader client.Reader }

// NewApprovals returns approvals that reader reads.
func NewApprovals(reader client.Reader) *Approvals { return &Approvals{reader: reader} }

// List returns all approvals.
func (a *Approvals) List(ctx context.Context) ([]v1alpha1.EvictionApproval, error) {
	var list v1alpha1.EvictionApprovalList
	if err := a.reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list EvictionApprovals: %w", err)
	}
	return list.Items, nil
}

// listed are the approvals, and the taints that they approved.
type listed struct {
	items    []v1alpha1.EvictionApproval
	approved []Approved
}

// approvals reads the approvals, once for a write. With an error the list is empty.
func (j *judging) approvals(ctx context.Context) (*listed, error) {
	if j.list != nil {
		return j.list, nil
	}
	items, err := j.config.Approvals.List(ctx)
	if err != nil {
		return &listed{}, err
	}
	j.list = &listed{items: items}
	for i := range items {
		if a := &items[i]; a.Spec.Taint.Effect == corev1.TaintEffectNoExecute {
			j.list.approved = append(j.list.approved, Approved{
				Carrier: carrierOf(a), Key: a.Spec.Taint.Key, Pods: int(a.Spec.MaxPods),
				From: a.CreationTimestamp.Time, Until: endOf(a),
			})
		}
	}
	// The order is that of their ends, so that every replica counts alike, and pods take
	// the approval that fewer other pods could take.
	slices.SortStableFunc(j.list.approved, func(a, b Approved) int {
		return cmp.Or(a.Until.Compare(b.Until), a.From.Compare(b.From), cmp.Compare(a.Pods, b.Pods))
	})
	return j.list, nil
}

// carrierOf returns the object of an approval, zero if it has none.
func carrierOf(a *v1alpha1.EvictionApproval) tracker.Source {
	switch {
	case a.Spec.Node != "":
		return tracker.Source{Kind: tracker.SourceNode, Name: a.Spec.Node}
	case a.Spec.DeviceTaintRule != "":
		return tracker.Source{Kind: tracker.SourceRule, Name: a.Spec.DeviceTaintRule}
	case a.Spec.ResourceSlicePatch != "":
		return tracker.Source{Kind: tracker.SourcePatch, Name: a.Spec.ResourceSlicePatch}
	default:
		return tracker.Source{}
	}
}

// endOf returns when an approval can no longer be used.
func endOf(a *v1alpha1.EvictionApproval) time.Time {
	expiry := a.Spec.ExpiresAfter.Duration
	if expiry <= 0 {
		expiry = defaultExpiry
	}
	return a.CreationTimestamp.Add(expiry)
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
		keys := map[string]bool{}
		for _, taint := range hit[i].Taints(governs, now) {
			pods[taint.Key] += one(!keys[taint.Key])
			keys[taint.Key] = true
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
func (j *judging) approvedBy(list []v1alpha1.EvictionApproval, needs []need, hit []Struck) []string {
	now := j.config.Clock.Now()
	var names []string
	for _, n := range needs {
		var enough []*v1alpha1.EvictionApproval
		for i := range list {
			if j.covers(&list[i], n, now) {
				enough = append(enough, &list[i])
			}
		}
		// The smallest that is enough is taken, so that a larger one is left for more pods.
		slices.SortFunc(enough, func(a, b *v1alpha1.EvictionApproval) int {
			return cmp.Or(cmp.Compare(a.Spec.MaxPods, b.Spec.MaxPods), cmp.Compare(a.Name, b.Name))
		})
		at := slices.IndexFunc(enough, func(a *v1alpha1.EvictionApproval) bool { return j.config.Ledger.Reserve(j.own, a.UID, hit) })
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
	if carrierOf(a) != j.write.Carrier || a.Spec.Taint.Key != n.key || a.Spec.Taint.Effect != corev1.TaintEffectNoExecute ||
		int64(a.Spec.MaxPods) < int64(n.pods) || a.Status.UsedAt != nil || a.DeletionTimestamp != nil || !now.Before(endOf(a)) {
		return false
	}
	stored, ok := j.config.View.Standing(j.write.Carrier, n.key)
	return !ok || stored.Written(now).Before(a.CreationTimestamp.Time)
}
