package evictor

import (
	"cmp"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

// Mode says how Tollgate and Kubernetes' own eviction controllers share the work. The values are
// those of the configuration.
type Mode string

// The modes.
const (
	// ModeReplace evicts in place of Kubernetes' own controllers, which are switched off.
	ModeReplace Mode = "Replace"
	// ModeWindow evicts within the time that pods got by injected tolerations; Kubernetes' own
	// controllers delete the pods after that.
	ModeWindow Mode = "Window"
	// ModeObserve evicts no pods.
	ModeObserve Mode = "Observe"
)

// ModeFinding says why the mode does not fit the cluster. The values are reasons of conditions
// and events, and metric labels.
type ModeFinding string

// The findings.
const (
	Fits ModeFinding = ""
	// BuiltInActive means that Kubernetes' own controllers evict too, in mode Replace.
	BuiltInActive ModeFinding = "BuiltInActive"
	// NobodyEnforces means that pods stay after the end of their window, in mode Window.
	NobodyEnforces ModeFinding = "NobodyEnforces"
	// NobodyEvicts means that pods stay after their deadline, in mode Observe.
	NobodyEvicts ModeFinding = "NobodyEvicts"
)

// ModeFindings are all findings except Fits, which a metric has as labels.
var ModeFindings = []ModeFinding{BuiltInActive, NobodyEnforces, NobodyEvicts}

// String returns the finding for logs.
func (f ModeFinding) String() string {
	return cmp.Or(string(f), "Fits")
}

// Message explains the finding, and what to do about it.
func (f ModeFinding) Message() string {
	switch f {
	case BuiltInActive:
		return "the taint eviction controllers of kube-controller-manager evict pods as well, at once and whatever EvictionPolicies say: " +
			"start it with --controllers=*,-taint-eviction-controller,-device-taint-eviction-controller, or set eviction.mode to Window or Observe"
	case NobodyEnforces:
		return "pods live on although their window is over, so the taint eviction controllers of kube-controller-manager seem to be off: " +
			"switch them on, or set eviction.mode to Replace"
	case NobodyEvicts:
		return "pods live on that had to leave minutes ago, so nobody seems to carry out NoExecute: " +
			"switch the taint eviction controllers of kube-controller-manager on, or set eviction.mode to Replace"
	case Fits:
	}
	return "eviction.mode fits what the cluster does"
}

const (
	// foreignEvictions within foreignWindow are a finding.
	foreignEvictions = 3
	foreignWindow    = 10 * time.Minute
	// handover is the time after this replica became leader in which conditions may be those of
	// the previous leader. It makes no request after its lease, but clocks differ a little.
	handover = 30 * time.Second
	// ownEvictions is the number of evictions by Tollgate, without a foreign one, that ends a
	// finding after foreignWindow. Without any eviction it ends after foreignForgotten.
	ownEvictions     = 10
	foreignForgotten = time.Hour
	// overdueLasts is the time for which pods have to be overdue before that is a finding, and
	// for which none may be overdue before the finding ends.
	overdueLasts = time.Minute
)

// modePatience is how long pods may stay after the end of their window in mode Window, and after
// their deadline in mode Observe. It has no entry for mode Replace, in which Tollgate evicts.
var modePatience = map[Mode]time.Duration{ModeWindow: time.Minute, ModeObserve: 5 * time.Minute}

// modeCheck finds out whether the mode of Tollgate fits the cluster (J10).
//
// In mode Replace, the eviction controllers of Kubernetes must be off. One that runs deletes pods at
// once, whatever EvictionPolicies say. modeCheck detects it by DisruptionTarget conditions with the
// reasons of these controllers, which Tollgate sets too, on due pods that this replica has neither
// marked nor deleted. The previous leader may have marked them, so a condition counts only if it is
// newer than this replica's leadership by more than handover. Three such pods within ten minutes
// are a finding. It ends after ten minutes in which Tollgate evicts ten pods and no other client
// evicts one, or after an hour without foreign evictions, because nothing can be observed while no
// pod is due.
//
// In mode Window, these controllers must run, because they delete pods at the end of the window. In
// mode Observe, some evictor must run. Pods that stay long after their time for a minute are a
// finding, which ends after a minute without such pods.
//
// It is goroutine-safe. now is by the clock of the API server.
type modeCheck struct {
	observed

	mode Mode

	// mu guards what follows, and observed.
	mu sync.Mutex
	// last is the finding that Changed last returned.
	last ModeFinding
}

// observed is what a modeCheck has observed since this replica became leader.
type observed struct {
	// leads is when this replica became leader; zero if it never was.
	leads time.Time
	// foreign are the times of the last foreignEvictions, ascending. own counts the evictions by
	// Tollgate since the last of them.
	foreign []time.Time
	own     int
	active  bool
	// stays is true if pods were overdue at the last count, and since is when stays last changed.
	stays   bool
	since   time.Time
	overdue bool
}

// Leads is called when this replica becomes leader. It removes earlier observations.
func (w *modeCheck) Leads(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.observed = observed{leads: now}
}

// SawDeletion records a due pod that is terminating, if an eviction controller of Kubernetes has marked
// it since this replica became leader. ours is true if this replica has marked it or requested the
// deletion.
func (w *modeCheck) SawDeletion(now time.Time, pod *tracker.Pod, ours bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	mark := pod.Disruption
	if w.mode != ModeReplace || ours || w.leads.IsZero() || mark == nil || mark.Status != corev1.ConditionTrue ||
		!slices.Contains(builtIn, mark.Reason) || !mark.LastTransitionTime.After(w.leads.Add(handover)) {
		return
	}
	w.own = 0
	w.foreign = append(w.foreign, now)
	if len(w.foreign) > foreignEvictions {
		w.foreign = w.foreign[1:]
	}
	if len(w.foreign) == foreignEvictions && now.Sub(w.foreign[0]) <= foreignWindow {
		w.active = true
	}
}

// builtIn are the reasons that Kubernetes' controllers set, and Tollgate too.
var builtIn = []string{"DeletionByTaintManager", "DeletionByDeviceTaintManager"}

// SawEviction records an eviction by this replica.
func (w *modeCheck) SawEviction() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.own++
}

// SawOverdue records the number of pods that are overdue by more than the patience of the mode. It
// has to be called regularly, also with zero.
func (w *modeCheck) SawOverdue(now time.Time, pods int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mode == ModeReplace {
		return
	}
	if stays := pods > 0; w.since.IsZero() || stays != w.stays || now.Before(w.since) {
		w.stays, w.since = stays, now
	}
	if now.Sub(w.since) >= overdueLasts {
		w.overdue = w.stays
	}
}

// Changed returns the current finding, and whether it differs from the one that it returned last.
func (w *modeCheck) Changed(now time.Time) (found ModeFinding, changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.active {
		quiet := now.Sub(w.foreign[len(w.foreign)-1])
		w.active = quiet < foreignForgotten && (quiet < foreignWindow || w.own < ownEvictions)
	}
	switch {
	case w.active:
		found = BuiltInActive
	case w.overdue && w.mode == ModeWindow:
		found = NobodyEnforces
	case w.overdue:
		found = NobodyEvicts
	}
	changed = found != w.last
	w.last = found
	return found, changed
}
