package preview

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
)

// defaultExpiry is for how long an approval can be used that came without one.
const defaultExpiry = time.Hour

// approvals hands out the EvictionApprovals.
type approvals interface {
	// List returns all approvals, used or not. They must not be written to.
	List(ctx context.Context) ([]v1alpha1.EvictionApproval, error)
}

// Approvals reads EvictionApprovals from a cache.
type Approvals struct{ reader client.Reader }

// NewApprovals returns what reads approvals by way of reader.
func NewApprovals(reader client.Reader) *Approvals { return &Approvals{reader: reader} }

// List returns all approvals.
func (a *Approvals) List(ctx context.Context) ([]v1alpha1.EvictionApproval, error) {
	var list v1alpha1.EvictionApprovalList
	if err := a.reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list EvictionApprovals: %w", err)
	}
	return list.Items, nil
}

// listed are the approvals, and what they say about pods that were hit already.
type listed struct {
	items    []v1alpha1.EvictionApproval
	approved []Approved
}

// approvals reads the approvals, once for a write. With an error there are none.
func (j *judging) approvals(ctx context.Context) (*listed, error) {
	if j.list != nil {
		return j.list, nil
	}
	items, err := j.config.Approvals.List(ctx)
	if err != nil {
		return &listed{}, err
	}
	list := &listed{items: items}
	for i := range items {
		a := &items[i]
		if carrier, ok := carrierOf(a); ok && a.Spec.Taint.Effect == corev1.TaintEffectNoExecute {
			list.approved = append(list.approved, Approved{
				Carrier: carrier, Key: a.Spec.Taint.Key, Pods: int(a.Spec.MaxPods),
				From: a.CreationTimestamp.Time, Until: endOf(a),
			})
		}
	}
	// In the order in which they end, so that every replica counts alike, and pods come
	// under the one that fewer others could come under.
	slices.SortStableFunc(list.approved, func(a, b Approved) int {
		return cmp.Or(a.Until.Compare(b.Until), a.From.Compare(b.From), cmp.Compare(a.Pods, b.Pods))
	})
	j.list = list
	return list, nil
}

// carrierOf returns what an approval is for; false where it names nothing.
func carrierOf(a *v1alpha1.EvictionApproval) (tracker.Source, bool) {
	switch {
	case a.Spec.Node != "":
		return tracker.Source{Kind: tracker.SourceNode, Name: a.Spec.Node}, true
	case a.Spec.DeviceTaintRule != "":
		return tracker.Source{Kind: tracker.SourceRule, Name: a.Spec.DeviceTaintRule}, true
	case a.Spec.ResourceSlicePatch != "":
		return tracker.Source{Kind: tracker.SourcePatch, Name: a.Spec.ResourceSlicePatch}, true
	default:
		return tracker.Source{}, false
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

// need is what an approval has to say: so many pods for a taint of that key.
type need struct {
	carrier tracker.Source
	key     string
	pods    int
}

// needed returns what would have to be approved for the pods that governed taints hit:
// one approval for each key, by key.
func needed(carrier tracker.Source, hit []Struck, governs func(*Hit) bool, now time.Time) []need {
	pods := map[string]int{}
	for i := range hit {
		counted := map[string]bool{}
		for _, taint := range hit[i].Taints(governs, now) {
			if !counted[taint.Key] {
				counted[taint.Key] = true
				pods[taint.Key]++
			}
		}
	}
	var needs []need
	for key, n := range pods {
		needs = append(needs, need{carrier: carrier, key: key, pods: n})
	}
	slices.SortFunc(needs, func(a, b need) int { return cmp.Compare(a.key, b.key) })
	return needs
}

// remedy says how to approve, in the words of the API. What a ResourceSlice does cannot
// be approved: drivers write it, and will again.
func (w *Write) remedy(needs []need) string {
	specs := make([]string, 0, len(needs))
	for _, n := range needs {
		object := ""
		switch n.carrier.Kind {
		case tracker.SourceNode:
			object = "node"
		case tracker.SourceRule:
			object = "deviceTaintRule"
		case tracker.SourcePatch:
			object = "resourceSlicePatch"
		case tracker.SourceSlice:
			return ""
		}
		specs = append(specs, fmt.Sprintf("{%s: %s, taint: {key: %s, effect: NoExecute}, maxPods: %d}", object, n.carrier.Name, n.key, n.pods))
	}
	if len(specs) == 0 {
		return ""
	}
	text := "to approve it, create an EvictionApproval with spec " + strings.Join(specs, " and another with spec ")
	if !w.own {
		text += ", then write this again"
	}
	return text
}

// approvedBy returns the names of open approvals for all that is needed, none where one
// is missing. Hit are the pods.
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
		// The smallest that is enough is taken, so that a larger one is left for more.
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

// covers reports whether an approval can be used for what is needed at now. It is used
// once the approved taint stands, also where its status does not say so yet.
func (j *judging) covers(a *v1alpha1.EvictionApproval, n need, now time.Time) bool {
	carrier, ok := carrierOf(a)
	if !ok || carrier != n.carrier || a.Spec.Taint.Key != n.key || a.Spec.Taint.Effect != corev1.TaintEffectNoExecute ||
		int64(a.Spec.MaxPods) < int64(n.pods) || a.Status.UsedAt != nil || a.DeletionTimestamp != nil || !now.Before(endOf(a)) {
		return false
	}
	stands, ok := j.config.View.Standing(n.carrier, n.key)
	return !ok || stands.Written(now).Before(a.CreationTimestamp.Time)
}
