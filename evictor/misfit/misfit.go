package misfit

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	// enough is how many pods within recently somebody else has to have evicted.
	enough   = 3
	recently = 10 * time.Minute
	// handover is for how long after the begin of a term marks may be an earlier
	// leader's: it makes no request after its lease, and clocks differ a little.
	handover = 30 * time.Second
	// undisturbed is how many pods Tollgate has to evict before nobody else evicts.
	undisturbed = 10
	// unseen is after how long without any sign there is nothing to say any more.
	unseen = time.Hour
	// lasts is for how long pods have to stay, or none, until that is a finding, or none.
	lasts = time.Minute
)

// Patience returns for how long pods may live beyond their time: beyond the end of
// their window in mode Window, beyond the time at which they have to leave in mode
// Observe. In mode Replace nobody else has to do anything, and it is zero.
func Patience(mode Mode) time.Duration {
	switch mode {
	case Window:
		return time.Minute
	case Observe:
		return 5 * time.Minute
	case Replace:
	}
	return 0
}

// Watch watches what the cluster does. Create it with NewWatch. It is goroutine-safe.
// Now is by the clock of the API server.
type Watch struct {
	mode Mode

	mu   sync.Mutex
	told Finding
	// leads is when this term began; zero before the first.
	leads time.Time
	// foreign is when others evicted pods, the last time last, enough at most; own counts
	// those that Tollgate has evicted since.
	foreign []time.Time
	own     int
	active  bool
	// stays and since say whether pods were overdue when they were last counted, and
	// since when that has been so.
	stays   bool
	since   time.Time
	overdue bool
}

// NewWatch returns a watch that has seen nothing. An empty mode is Replace.
func NewWatch(mode Mode) *Watch {
	if mode == "" {
		mode = Replace
	}
	return &Watch{mode: mode}
}

// Leads tells that a term as the leader begins. What was seen before is forgotten.
func (w *Watch) Leads(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leads, w.foreign, w.own, w.active = now, nil, 0, false
	w.stays, w.since, w.overdue = false, time.Time{}, false
}

// SawDeletion tells of a pod that had to leave by now and is being deleted. It is ours
// when this process has marked it or asked for the deletion.
func (w *Watch) SawDeletion(now time.Time, pod *tracker.Pod, ours bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mode != Replace || ours || !w.isForeign(pod.Disruption) {
		return
	}
	w.own = 0
	w.foreign = append(w.foreign, now)
	if len(w.foreign) > enough {
		w.foreign = slices.Delete(w.foreign, 0, 1)
	}
	if len(w.foreign) == enough && now.Sub(w.foreign[0]) <= recently {
		w.active = true
	}
}

// isForeign reports whether a condition is one that an evictor of Kubernetes has set
// in this term.
func (w *Watch) isForeign(mark *corev1.PodCondition) bool {
	if w.leads.IsZero() || mark == nil || mark.Status != corev1.ConditionTrue {
		return false
	}
	return slices.Contains(builtIn, mark.Reason) && mark.LastTransitionTime.After(w.leads.Add(handover))
}

// builtIn are the reasons that Kubernetes' controllers give, and Tollgate too.
var builtIn = []string{"DeletionByTaintManager", "DeletionByDeviceTaintManager"}

// SawEviction tells of a pod that this process has evicted.
func (w *Watch) SawEviction(time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.own++
}

// SawOverdue tells how many pods live that are overdue by more than the patience of the
// mode. It has to be called every now and then, also when there is none.
func (w *Watch) SawOverdue(now time.Time, pods int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mode == Replace {
		return
	}
	if stays := pods > 0; w.since.IsZero() || stays != w.stays || now.Before(w.since) {
		w.stays, w.since = stays, now
	}
	w.settle(now)
}

// settle makes what has lasted long enough a finding, or ends one.
func (w *Watch) settle(now time.Time) {
	if !w.since.IsZero() && now.Sub(w.since) >= lasts {
		w.overdue = w.stays
	}
}

// Fit returns what does not fit, Fits if nothing is known not to.
func (w *Watch) Fit(now time.Time) Finding {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fit(now)
}

func (w *Watch) fit(now time.Time) Finding {
	w.recover(now)
	switch {
	case w.active:
		return BuiltInActive
	case w.overdue && w.mode == Window:
		return NobodyEnforces
	case w.overdue:
		return NobodyEvicts
	default:
		return Fits
	}
}

// recover ends the finding that somebody else evicts.
func (w *Watch) recover(now time.Time) {
	if !w.active {
		return
	}
	quiet := now.Sub(w.foreign[len(w.foreign)-1])
	if quiet >= unseen || (quiet >= recently && w.own >= undisturbed) {
		w.active = false
	}
}

// Changed returns what does not fit, and true when that is not what it returned last.
func (w *Watch) Changed(now time.Time) (Finding, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := w.fit(now)
	changed := found != w.told
	w.told = found
	return found, changed
}
