package preview

import (
	"slices"
	"time"

	"github.com/tollgate-dev/tollgate/tracker"
)

// Query selects the pods that other writes have hit.
type Query struct {
	// Window is the greatest age of a write.
	Window time.Duration
	// Governs reports whether a taint is counted.
	Governs func(*Hit) bool
	// Own is the write in question: only writes that were admitted earlier count. If it is
	// nil, all do.
	Own *Admission
	// Except are the pods that the write in question hits itself.
	Except []Struck
	// Approved are approvals beyond the limit; the pods of approved taints do not count.
	Approved []Approved
}

// Approved is a taint of a node, of a rule or of a patch that may hit pods.
type Approved struct {
	// Carrier has no UID: an approval names its object.
	Carrier tracker.Source
	Key     string
	// The taint has to be written between From and Until.
	From, Until time.Time
	// Pods is how many pods it may hit. More pods count, because no approval can have let
	// them through.
	Pods int
}

// covers reports whether a taint, as it is at now, was approved.
func (a *Approved) covers(taint *tracker.Taint, now time.Time) bool {
	if taint.Key != a.Key || !taint.From(a.Carrier.Kind, a.Carrier.Name) {
		return false
	}
	written := taint.Written(now)
	return !written.Before(a.From) && written.Before(a.Until)
}

// tally counts pods once each.
type tally struct {
	query *Query
	now   time.Time
	// pods are the positions of the approvals for the taints that hit a pod, by pod; none
	// if one taint was not approved.
	pods map[tracker.Key][]int
}

// lately adds a pod with the hits that are governed and within the window.
func (t *tally) lately(pod tracker.Key, hits []Hit) {
	since := t.now.Add(-t.query.Window)
	var taints []*tracker.Taint
	for i := range hits {
		if hit := &hits[i]; !hit.Came && !hit.Taint.Written(t.now).Before(since) && t.query.Governs(hit) {
			taints = append(taints, hit.Taint)
		}
	}
	t.add(pod, taints)
}

// add adds a pod that taints have hit.
func (t *tally) add(pod tracker.Key, taints []*tracker.Taint) {
	if known, again := t.pods[pod]; len(taints) == 0 || again && len(known) == 0 {
		return
	}
	var approvals []int
	for _, taint := range taints {
		before := len(approvals)
		for i := range t.query.Approved {
			if t.query.Approved[i].covers(taint, t.now) {
				approvals = append(approvals, i)
			}
		}
		if len(approvals) == before {
			approvals = nil
			break
		}
	}
	t.pods[pod] = approvals
}

// count returns how many pods count: those with a taint that was not approved, and those
// beyond the number of their approvals.
func (t *tally) count() int {
	var approved []tracker.Key
	for pod, by := range t.pods {
		if len(by) > 0 {
			approved = append(approved, pod)
		}
	}
	count := len(t.pods)
	// The order is fixed, because a pod may have several approvals and the order of a map
	// would change the count.
	slices.SortFunc(approved, tracker.CompareKeys)
	room := make([]int, len(t.query.Approved))
	for i := range room {
		room[i] = t.query.Approved[i].Pods
	}
	for _, pod := range approved {
		for _, i := range t.pods[pod] {
			if room[i] > 0 {
				room[i]--
				count--
				break
			}
		}
	}
	return count
}
