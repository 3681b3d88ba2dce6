package rulestatus

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
)

// never is how long ago something was that has not been.
const never = time.Duration(1<<63 - 1)

// memory is what is known of a rule beyond what the tracker has. All but what
// is about failures is read back from the status after a restart. Times are those of this
// machine; the zero time is never.
type memory struct {
	uid        types.UID
	generation int64
	// told is true once the status has told of the generation, and unfinished if it tells
	// that its eviction is in progress.
	told, unfinished bool
	// seen is when the generation was first seen, or last while not all of it was written,
	// as unwritten says.
	seen      time.Time
	unwritten bool
	// written and previewed are when the status and the preview were last written.
	written, previewed time.Time
	// evaluated is when the generation was last evaluated with success.
	evaluated time.Time
	// carried is how many pods were evicted before this process.
	carried int
	// notBefore is until when no write is tried because the last one failed, and
	// failure why it did.
	notBefore time.Time
	failure   outcome
}

// moment is now, by the API server and by this machine.
type moment struct {
	server, local time.Time
}

// recall returns the memory of a rule that this leader has not seen before. Its
// status tells what an earlier leader knew. What this process counted itself, own,
// is part of that if it led before.
func recall(rule *tracker.Rule, before *memory, own int, now moment) *memory {
	m := &memory{uid: rule.UID, generation: rule.Generation, seen: now.local}
	eviction, preview := ownConditions(rule.Conditions)
	if eviction != nil {
		_, m.carried = withoutEvicted(eviction.Message)
		m.written = now.ago(eviction.LastTransitionTime.Time)
	}
	if before != nil {
		m.carried = max(before.carried, m.carried-own)
	}
	if preview != nil {
		m.previewed = now.ago(preview.LastTransitionTime.Time)
		if m.previewed.After(m.written) {
			m.written = m.previewed
		}
	}
	switch {
	case eviction != nil && eviction.ObservedGeneration == rule.Generation:
		// The generation was seen then or before.
		m.told, m.seen = true, now.ago(eviction.LastTransitionTime.Time)
		m.unfinished = eviction.Status == metav1.ConditionTrue
	case rule.Generation == 1:
		m.seen = now.ago(rule.Created)
	}
	return m
}

// ago returns the time of this machine for a time that the API server keeps. The
// latter is in whole seconds, the rest cut off: it stands for an instant up to a
// second later, and never for the future.
func (m moment) ago(stored time.Time) time.Time {
	return m.local.Add(-max(m.server.Sub(stored.Add(time.Second)), 0))
}

// since returns how long ago a time was.
func (m moment) since(then time.Time) time.Duration {
	if then.IsZero() {
		return never
	}
	return m.local.Sub(then)
}

// advance takes note of a new generation. Nothing holds it up: somebody has just
// written the rule and waits for what comes of it.
func (m *memory) advance(generation int64, now moment) {
	if m.generation == generation {
		return
	}
	m.generation, m.told, m.seen, m.evaluated, m.notBefore = generation, false, now.local, time.Time{}, time.Time{}
}

// hold returns for how long there is no point in evaluating a rule; not above zero
// if there is.
func (m *memory) hold(now moment) time.Duration {
	if wait := m.notBefore.Sub(now.local); wait > 0 || !m.told {
		return wait
	}
	wait := evaluatePause - now.since(m.evaluated)
	if m.unfinished {
		return wait
	}
	return max(writePause-now.since(m.written), wait)
}
