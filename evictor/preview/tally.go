package preview

import (
	"slices"
	"time"

	"github.com/tollgate-dev/tollgate/tracker"
)

// Query says which pods that other writes have hit are counted.
type Query struct {
	// Window is how long ago a write may have been.
	Window time.Duration
	// Governs reports whether a taint is one of those that are counted.
	Governs func(*Hit) bool
	// Own is the write in question: only writes that were admitted earlier count. When
	// it is nil, all do.
	Own *Admission
	// Except are the pods that the write in question hits itself.
	Except []Struck
	// Approved says what was let through although it was too much, and does not count.
	Approved []Approved
}

// Approved is a taint of a node, of a rule or of a patch that may hit pods.
type Approved struct {
	// Carrier has no UID: an approval names its object.
	Carrier tracker.Source
	Key     string
	// The taint has to be written between From and Until.
	From, Until time.Time
	// Pods is how many pods it may hit. More of them count, because no approval can have
	// let them through.
	Pods int
}

// covers reports whether a taint that is known at now is one that was approved.
func (a *Approved) covers(taint *tracker.Taint, now time.Time) bool {
	if taint.Key != a.Key || !taint.From(a.Carrier.Kind, a.Carrier.Name) {
		return false
	}
	written := taint.Written(now)
	return !written.Before(a.From) && written.Before(a.Until)
}

// tally counts pods, each once.
type tally struct {
	query *Query
	now   time.Time
	// pods holds for each pod the approvals, by their positions, that let through what
	// hit it; none where one taint was not approved.
	pods map[tracker.Key][]int
}

// lately takes in a pod and its hits, of which those count that are governed and in the
// window.
func (t *tally) lately(pod tracker.Key, hits []Hit) {
	since := t.now.Add(-t.query.Window)
	var taints []*tracker.Taint
	for i := range hits {
		// Those whose Since is zero did not come to the pod: it came to them.
		if hit := &hits[i]; !hit.Since.IsZero() && !hit.Taint.Written(t.now).Before(since) && t.query.Governs(hit) {
			taints = append(taints, hit.Taint)
		}
	}
	t.add(pod, taints)
}

// add takes in a pod that taints have hit.
func (t *tally) add(pod tracker.Key, taints []*tracker.Taint) {
	if known, again := t.pods[pod]; len(taints) == 0 || again && len(known) == 0 {
		return
	}
	var approvals []int
	for _, taint := range taints {
		approved := false
		for i := range t.query.Approved {
			if t.query.Approved[i].covers(taint, t.now) {
				approvals, approved = append(approvals, i), true
			}
		}
		if !approved {
			approvals = nil
			break
		}
	}
	t.pods[pod] = approvals
}

// count returns how many pods count: those that were hit by what nobody approved, and
// those that are more than was approved.
func (t *tally) count() int {
	var approved []tracker.Key
	for pod, by := range t.pods {
		if len(by) > 0 {
			approved = append(approved, pod)
		}
	}
	count := len(t.pods)
	// In one order, so that the count does not depend on that of a map where a pod
	// comes under several approvals.
	slices.SortFunc(approved, compareKeys)
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
