package evictor

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

// modePatience is for how long pods may live beyond their time: beyond the end of
// their window in mode Window, beyond the time at which they have to leave in mode
// Observe. Mode Replace has no entry, because Tollgate alone evicts pods there.
var modePatience = map[Mode]time.Duration{ModeWindow: time.Minute, ModeObserve: 5 * time.Minute}

// modeCheck finds out whether the mode of Tollgate fits the cluster (J10).
//
// In mode Replace the controllers of Kubernetes that evict must be off. One that is on
// deletes pods at once, whatever EvictionPolicies say. It shows by the DisruptionTarget
// condition that it sets, with the same reasons as Tollgate's, on due pods that this
// process has neither marked nor deleted. An earlier leader may have marked them. So a
// condition counts only if it is younger than this term, by more than a leader needs to
// stop and clocks to differ, and three of them within ten minutes are a finding.
//
// In mode Window those controllers must be on: they carry out the end of the window. In
// mode Observe some evictor must run. Pods that stay long after their time are the finding
// there, when that lasts.
//
// A finding ends with its signs. For a controller that is on, that is ten minutes in which
// Tollgate evicts undisturbed, or an hour without any sign, because nothing can be seen
// where no pod is due.
//
// It is goroutine-safe. Now is by the clock of the API server.
type modeCheck struct {
	mode Mode

	mu   sync.Mutex
	told ModeFinding
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

// Leads tells that a term as the leader begins. What was seen before is forgotten.
func (w *modeCheck) Leads(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leads, w.foreign, w.own, w.active = now, nil, 0, false
	w.stays, w.since, w.overdue = false, time.Time{}, false
}

// SawDeletion tells of a pod that had to leave by now and is being deleted. It is ours
// when this process has marked it or asked for the deletion.
func (w *modeCheck) SawDeletion(now time.Time, pod *tracker.Pod, ours bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mode != ModeReplace || ours || !w.isForeign(pod.Disruption) {
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
func (w *modeCheck) isForeign(mark *corev1.PodCondition) bool {
	if w.leads.IsZero() || mark == nil || mark.Status != corev1.ConditionTrue {
		return false
	}
	return slices.Contains(builtIn, mark.Reason) && mark.LastTransitionTime.After(w.leads.Add(handover))
}

// builtIn are the reasons that Kubernetes' controllers give, and Tollgate too.
var builtIn = []string{"DeletionByTaintManager", "DeletionByDeviceTaintManager"}

// SawEviction tells of a pod that this process has evicted.
func (w *modeCheck) SawEviction() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.own++
}

// SawOverdue tells how many pods live that are overdue by more than the patience of the
// mode. It has to be called every now and then, also when there is none.
func (w *modeCheck) SawOverdue(now time.Time, pods int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mode == ModeReplace {
		return
	}
	if stays := pods > 0; w.since.IsZero() || stays != w.stays || now.Before(w.since) {
		w.stays, w.since = stays, now
	}
	if now.Sub(w.since) >= lasts {
		w.overdue = w.stays
	}
}

// Changed returns what does not fit, Fits if nothing is known not to, and true when that is not
// what it returned last.
func (w *modeCheck) Changed(now time.Time) (found ModeFinding, changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.active {
		quiet := now.Sub(w.foreign[len(w.foreign)-1])
		w.active = quiet < unseen && (quiet < recently || w.own < undisturbed)
	}
	switch {
	case w.active:
		found = BuiltInActive
	case w.overdue && w.mode == ModeWindow:
		found = NobodyEnforces
	case w.overdue:
		found = NobodyEvicts
	}
	changed = found != w.told
	w.told = found
	return found, changed
}
