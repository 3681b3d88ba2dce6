package evictor

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/tracker"
)

// pendingEviction is an eviction that is decided and has not ended.
type pendingEviction struct {
	// at is the deadline, and source the kind of object that sets it.
	at     time.Time
	source tracker.SourceKind
	// entered is the time at which the eviction was recorded, by the local clock. The pod
	// existed then.
	entered time.Time
	// rules are the DeviceTaintRules among the reasons, and the ResourceSlicePatches that
	// they were written for.
	rules []tracker.Source
	// failure is the failure of the last attempt; failures counts failed attempts in a row.
	failure  act.Failure
	failures int
	// unmarkable counts how often the DisruptionTarget condition was refused; refused is the
	// time of the last refusal, by the local clock. From markTries on, the condition is omitted.
	unmarkable int
	refused    time.Time
	// sent is true after a deletion without an answer, which may have been carried out. asked
	// are the rules among the reasons at that time: the claims of the pod may change before
	// the deletion is seen.
	sent  bool
	asked []tracker.Source
	// blocked is true after a PodDisruptionBudget refused the eviction.
	blocked bool
	// held are the reasons that were held in the last attempt, valid until heldUntil by the
	// local clock.
	held      heldReasons
	heldUntil time.Time
	// called is true after the rate limiter called the pod, until its next attempt.
	called bool
	// method is the method of the last attempt, empty before the first. marked is true after
	// this replica set the DisruptionTarget condition.
	method act.Method
	marked bool
	// logged is the last failure in the log, and announced the last in an event.
	logged, announced act.Failure
}

// markTries is the number of refusals of the DisruptionTarget condition after which the pod is
// deleted without it (I05).
const markTries = 3

// markPause is the minimum time between two counted refusals by a failing API server. It is
// longer than DefaultMaxAge, so the API server has answered a read of the object that carries
// the taint between them.
const markPause = 2 * DefaultMaxAge

// recoveryPause is the minimum time between two recoveries. It bounds the requests to an API
// server that fails every second request.
const recoveryPause = 5 * time.Second

// state has the pending evictions, and the pods that were not processed yet. Metrics, events, the
// status of rules, and the release of breakers are made from it. Decisions do not depend on it.
type state struct {
	// changed is called, without the lock, with the rules and patches whose pending or evicted
	// pods have changed.
	changed func(authors []tracker.Source)
	// exists reports whether a rule, or a rule of a patch, is tracked. Evictions because of a
	// deleted one are not counted, so that no count is left over (DE-75).
	exists func(author tracker.Source) bool
	// local returns the time of this machine.
	local func() time.Time

	mu      sync.Mutex
	pending map[tracker.Key]*pendingEviction
	// unanswered are the pending evictions whose requests may have been carried out, without
	// an answer so far.
	unanswered sets.Set[tracker.Key]
	// held are the held pods among them.
	held      heldPods
	recovered time.Time
	// evicted counts the evicted pods by the UID of each rule and patch among their reasons
	// (DE-68). Unlike pending, it is kept when the lease is lost.
	evicted map[types.UID]count
	// unprocessed are the pods about which this replica has not decided since it leads; nil while it
	// does not lead. Until there are none, the number of held pods is not known.
	unprocessed sets.Set[tracker.Key]
}

func newState(changed func(authors []tracker.Source), exists func(author tracker.Source) bool, local func() time.Time) *state {
	return &state{
		changed: changed, exists: exists, local: local,
		pending: map[tracker.Key]*pendingEviction{}, unanswered: sets.Set[tracker.Key]{},
		held: newHeldPods(), evicted: map[types.UID]count{},
	}
}

// update calls change with the lock held, and then, without it, changed with the rules and
// patches that change returns.
func (s *state) update(change func() []tracker.Source) {
	authors := func() []tracker.Source {
		s.mu.Lock()
		defer s.mu.Unlock()
		return change()
	}()
	if len(authors) > 0 {
		s.changed(authors)
	}
}

// with calls do with the eviction of a pod and the lock held, if the eviction is pending.
func (s *state) with(key tracker.Key, do func(*pendingEviction)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.pending[key]; ok {
		do(e)
	}
}

// empty removes all pending evictions, without an outcome: the next leader continues them, and
// what is recorded here would be out of date when this replica leads again.
func (s *state) empty() {
	s.update(func() []tracker.Source {
		var rules []tracker.Source
		for _, e := range s.pending {
			rules = append(rules, e.rules...)
		}
		clear(s.pending)
		clear(s.unanswered)
		s.held, s.unprocessed = newHeldPods(), nil
		return distinct(rules)
	})
}

// begin records the pods that have to be processed, all that a taint concerns.
func (s *state) begin(pods sets.Set[tracker.Key]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unprocessed = pods
}

// processed records that a pod was processed.
func (s *state) processed(key tracker.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unprocessed.Delete(key)
}

// settled reports whether all of them were processed.
func (s *state) settled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unprocessed != nil && len(s.unprocessed) == 0
}

// plan records an eviction, or its new deadline, and returns a copy of it.
func (s *state) plan(key tracker.Key, decision decide.Decision) (planned pendingEviction) {
	var because []tracker.Source
	for i := range decision.Because {
		if source := decision.Because[i].Taint.Source; source.Kind == tracker.SourceRule {
			because = append(because, source, decision.Because[i].Taint.Author())
		}
	}
	rules := distinct(because)
	s.update(func() []tracker.Source {
		e, ok := s.pending[key]
		if !ok {
			e = &pendingEviction{method: act.Delete, entered: s.local()}
			s.pending[key] = e
		}
		before := e.rules
		e.at, e.source, e.rules = decision.At, decision.Because[0].Taint.Source.Kind, rules
		planned = *e
		if slices.Equal(before, rules) {
			return nil
		}
		return distinct(sets.New(before...).SymmetricDifference(sets.New(rules...)).UnsortedList())
	})
	return planned
}

// try records the start of an attempt.
func (s *state) try(key tracker.Key, how act.Method) {
	s.with(key, func(e *pendingEviction) {
		e.method = how
		s.unanswered.Insert(key)
	})
}

// postpone records which reasons of a pod an attempt found to be held, while the pod waits for a
// rate limit because of another reason.
func (s *state) postpone(key tracker.Key, held heldReasons) {
	again := checks.Recheck
	for _, hold := range held {
		again = min(again, hold.Again)
	}
	s.with(key, func(e *pendingEviction) { e.held, e.heldUntil = held, s.local().Add(again) })
}

// postponed returns the reasons that postpone recorded, if they are still valid and the pod was
// called since. If the pod asked the rate limits of these reasons first, it would lose the place
// for which it was called, and pods could take that place from each other without end.
func (s *state) postponed(key tracker.Key) heldReasons {
	held := heldReasons{}
	s.with(key, func(e *pendingEviction) {
		if e.called && s.local().Before(e.heldUntil) {
			maps.Copy(held, e.held)
		}
		e.called, e.held = false, nil
	})
	return held
}

// fail records a failed attempt, and returns a copy of the eviction.
func (s *state) fail(key tracker.Key, failure act.Failure, done act.Attempt) pendingEviction {
	failed := pendingEviction{failure: failure, failures: 1}
	s.with(key, func(e *pendingEviction) {
		e.failure = failure
		e.failures++
		if !e.sent && done.Sent && failure.Ambiguous() {
			e.sent, e.asked = true, e.rules
		}
		if !e.sent {
			delete(s.unanswered, key)
		}
		e.blocked = e.blocked || failure.Blocked()
		e.marked = e.marked || (done.Answer != nil && !done.Changed)
		if now := s.local(); done.Unmarkable && (!failure.Transient() || e.unmarkable == 0 || now.Sub(e.refused) >= markPause) {
			e.unmarkable++
			e.refused = now
		}
		failed = *e
	})
	return failed
}

// close removes an eviction that ended with the outcome, Unfinished if it was cancelled. It
// returns false if there is none. If the answer to a deletion was lost, a pod that is gone or
// terminating counts as evicted by this replica (I04).
//
// learn updates the tracker, nil if the tracker knows already. It is called after the pod is
// counted and before the rules are notified: a reader in between sees the pod as pending and as
// evicted, and never misses it. If the watch was faster than the answer, the pod is among the
// unanswered until it is counted.
func (s *state) close(key tracker.Key, outcome act.Outcome, learn func(tracker.Key)) (ended pendingEviction, was act.Outcome, ok bool) {
	s.with(key, func(e *pendingEviction) {
		delete(s.pending, key)
		delete(s.unanswered, key)
		s.held.set(key, nil)
		switch {
		case outcome == act.Evicted:
			s.count(e.rules)
		case e.sent && outcome != act.Unfinished:
			outcome = act.Evicted
			s.count(e.asked)
		}
		ended, ok = *e, true
	})
	if learn != nil {
		learn(key)
	}
	if rules := distinct(slices.Concat(ended.rules, ended.asked)); len(rules) > 0 {
		s.changed(rules)
	}
	return ended, outcome, ok
}

// isPending reports whether the eviction of a pod has been decided and is not over.
func (s *state) isPending(key tracker.Key) (pending bool) {
	s.with(key, func(*pendingEviction) { pending = true })
	return pending
}

// counts are the numbers of pending evictions.
type counts struct {
	// pending counts the pods that have to leave, and held those that are held, by the kind of
	// the object that carries the taint.
	pending map[tracker.SourceKind]int
	held    map[tracker.SourceKind]map[checks.Reason]int
	// overdue is the longest time for which a pod that is not held has been due; zero for none.
	overdue time.Duration
}

// recover is called after a successful request. It returns the pods that wait because the API
// server failed as a whole, and clears their failures, so that they are tried at once.
func (s *state) recover(now time.Time) []tracker.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.recovered) < recoveryPause {
		return nil
	}
	s.recovered = now
	var keys []tracker.Key
	for key, e := range s.pending {
		if e.failure.Transient() {
			e.failure = act.NoFailure
			keys = append(keys, key)
		}
	}
	return keys
}
