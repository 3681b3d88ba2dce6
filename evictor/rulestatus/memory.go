package rulestatus

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
)

// never is the duration since an event that has not happened.
const never = time.Duration(1<<63 - 1)

// memory is the state of a rule that the tracker does not have. After a restart, all of it
// except the state of failures is read from the status. Times are those of this machine;
// the zero time is never.
type memory struct {
	uid        types.UID
	generation int64
	// former is true for a memory of an earlier term of leadership.
	former bool
	// told is true after a status of the generation was written or found to be current, and
	// unfinished if Tollgate last wrote that the eviction is in progress. Writes of other
	// controllers are corrected after the usual pause, so that two writers do not race.
	told, unfinished bool
	// seen is when the generation was first seen, or last seen with rules that are not
	// written; unwritten is true in the latter case.
	seen      time.Time
	unwritten bool
	// written and previewed are when the status and the preview were last written.
	written, previewed time.Time
	// evaluated is when the generation was last evaluated with success.
	evaluated time.Time
	// carried is how many pods were evicted before this process.
	carried int
	// notBefore is the time before which no write is attempted, because the last one
	// failed; failure is its outcome.
	notBefore time.Time
	failure   string
}

// moment is the current time, by the clocks of the API server and of this machine.
type moment struct {
	server, local time.Time
}

// recall returns the memory of a rule that this leader has not seen before, from the
// status that an earlier leader wrote. The count in the status includes own, the count of
// this process, if it led before.
func recall(rule *tracker.Rule, before *memory, own int, now moment) *memory {
	m := &memory{uid: rule.UID, generation: rule.Generation, seen: now.local}
	if rule.Generation == 1 {
		m.seen = now.ago(rule.Created)
	}
	if stored := storedCondition(rule, evictionInProgress); stored != nil {
		_, m.carried = withoutEvicted(stored.Message)
		m.written = now.ago(stored.LastTransitionTime.Time)
		if stored.ObservedGeneration == rule.Generation {
			// The generation was seen at that time or before.
			m.told, m.seen, m.unfinished = true, m.written, stored.Status == metav1.ConditionTrue
		}
	}
	if before != nil {
		m.carried = max(before.carried, m.carried-own)
	}
	if stored := storedCondition(rule, ConditionEvictionPreview); stored != nil {
		m.previewed = now.ago(stored.LastTransitionTime.Time)
		if m.previewed.After(m.written) {
			m.written = m.previewed
		}
	}
	return m
}

// ago converts a time that the API server stores to the clock of this machine. Stored
// times are truncated to seconds, so the instant may be up to a second later; the result
// is never in the future.
func (m moment) ago(stored time.Time) time.Time {
	return m.local.Add(-max(m.server.Sub(stored.Add(time.Second)), 0))
}

// since returns the duration since a time.
func (m moment) since(then time.Time) time.Duration {
	if then.IsZero() {
		return never
	}
	return m.local.Sub(then)
}

// pause returns the delay until the next evaluation of a rule; zero or less for none.
func (m *memory) pause(now moment) time.Duration {
	wait := evaluatePause - now.since(m.evaluated)
	if m.told && !m.unfinished {
		wait = max(wait, writePause-now.since(m.written))
	}
	return wait
}
