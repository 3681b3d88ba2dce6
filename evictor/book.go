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

// entry is an eviction that is decided and not done.
type entry struct {
	// at is the deadline, and source the kind of object that sets it.
	at     time.Time
	source tracker.SourceKind
	// entered is when the eviction was entered, by the local clock: the pod had come by
	// then.
	entered time.Time
	// rules are the DeviceTaintRules among the reasons, and the patches that they are
	// written out for.
	rules []tracker.Source
	// failure is why the last attempt failed; failures counts attempts in a row.
	failure  act.Failure
	failures int
	// unmarkable counts refusals of the condition, the last of which was at refused, by the
	// local clock. At markTries it is left out.
	unmarkable int
	refused    time.Time
	// sent is true when a deletion was asked for and may have been done, although
	// no answer said so. asked are the rules that were among the reasons then: what is
	// known of its claims may change before it is known that the pod has left.
	sent  bool
	asked []tracker.Source
	// blocked is true once a budget did not let the pod go.
	blocked bool
	// held are the reasons that the last attempt found to be held, until heldUntil by the local clock.
	held      heldReasons
	heldUntil time.Time
	// called is true after the queue of the rates called the pod, until its next attempt.
	called bool
	// method is how the pod was last made to leave, empty before the first attempt;
	// marked is true once its condition was set here.
	method act.Method
	marked bool
	// logged is the failure that the log told of, and announced the one that an event did.
	logged, announced act.Failure
}

// markTries is how often the DisruptionTarget condition may be refused before
// the pod is deleted without it (I05).
const markTries = 3

// markPause is the least time between two refusals that say how the API server is rather
// than what it thinks of the condition. It is longer than a reading of the object that
// carries the taint is good for: that the condition was tried again shows that the API
// server answered a read since.
const markPause = 2 * DefaultMaxAge

// recoveryPause is the least time between two recoveries. It bounds what an API
// server that fails every other request costs.
const recoveryPause = 5 * time.Second

// book holds the evictions that are decided and not done. It is what metrics,
// events and the status of rules are made from; decisions do not depend on it.
type book struct {
	// changed is told the rules and patches for which other pods have to leave than
	// before, or were evicted. It is called without the lock.
	changed func(authors []tracker.Source)
	// exists reports whether a rule, or one of a patch, is known. What is evicted because of one that was
	// deleted meanwhile is not counted, so that nothing is left over (DE-75).
	exists func(author tracker.Source) bool
	// local tells the time of this machine.
	local func() time.Time

	mu      sync.Mutex
	entries map[tracker.Key]*entry
	// unanswered are those of the entries whose pods may be on their way out because of
	// what was asked for here, which is not known yet.
	unanswered map[tracker.Key]struct{}
	// held is what holds entries.
	held      heldPods
	recovered time.Time
	// evicted counts the pods that were evicted, by the UID of each rule and patch among
	// the reasons (DE-68). It outlives the lease, unlike entries.
	evicted map[types.UID]count
}

func newBook(changed func(authors []tracker.Source), exists func(author tracker.Source) bool, local func() time.Time) *book {
	return &book{
		changed: changed, exists: exists, local: local,
		entries: map[tracker.Key]*entry{}, unanswered: map[tracker.Key]struct{}{},
		held: newHeldPods(), evicted: map[types.UID]count{},
	}
}

// update calls change with the lock held, and then, without it, changed with the rules and
// patches that change returns.
func (b *book) update(change func() []tracker.Source) {
	authors := func() []tracker.Source {
		b.mu.Lock()
		defer b.mu.Unlock()
		return change()
	}()
	if len(authors) > 0 {
		b.changed(authors)
	}
}

// with calls do with the eviction of a pod and the lock held, if the eviction is pending.
func (b *book) with(key tracker.Key, do func(*entry)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e, ok := b.entries[key]; ok {
		do(e)
	}
}

// empty takes out all that is pending, without an outcome: the next leader ends it.
// Nobody looks at these pods meanwhile, so what is entered about them would be
// wrong by the time that this replica leads again.
func (b *book) empty() {
	b.update(func() []tracker.Source {
		var rules []tracker.Source
		for _, e := range b.entries {
			rules = append(rules, e.rules...)
		}
		clear(b.entries)
		clear(b.unanswered)
		b.held.clear()
		return distinct(rules)
	})
}

// plan enters an eviction, or the new deadline of one, and returns the entry as it is then.
func (b *book) plan(key tracker.Key, decision decide.Decision) (planned entry) {
	rules := rulesAmong(decision.Because)
	b.update(func() []tracker.Source {
		e, ok := b.entries[key]
		if !ok {
			e = &entry{method: act.Delete, entered: b.local()}
			b.entries[key] = e
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

// try enters that an attempt begins.
func (b *book) try(key tracker.Key, how act.Method) {
	b.with(key, func(e *entry) {
		e.method = how
		b.unanswered[key] = struct{}{}
	})
}

// postpone records which reasons an attempt found to be held, of a pod that waits for its turn because of
// another reason.
func (b *book) postpone(key tracker.Key, held heldReasons) {
	again := checks.Recheck
	for _, hold := range held {
		again = min(again, hold.Again)
	}
	b.with(key, func(e *entry) { e.held, e.heldUntil = held, b.local().Add(again) })
}

// called records that the queue of the rates calls pods.
func (b *book) called(keys []tracker.Key) {
	for _, key := range keys {
		b.with(key, func(e *entry) { e.called = true })
	}
}

// postponed returns the reasons that postpone recorded, if they were found to be held not long ago and the
// pod has been called since. If it asked the rates for these reasons first, it would lose the place for which
// it is called, and pods could take that place from each other without end.
func (b *book) postponed(key tracker.Key) heldReasons {
	held := heldReasons{}
	b.with(key, func(e *entry) {
		if e.called && b.local().Before(e.heldUntil) {
			maps.Copy(held, e.held)
		}
		e.called, e.held = false, nil
	})
	return held
}

// fail enters a failed attempt and returns the entry as it is then.
func (b *book) fail(key tracker.Key, failure act.Failure, done act.Attempt) entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.entries[key]
	if !ok {
		return entry{failure: failure, failures: 1}
	}
	e.failure = failure
	e.failures++
	if !e.sent && done.Sent && failure.Ambiguous() {
		e.sent, e.asked = true, e.rules
	}
	if !e.sent {
		delete(b.unanswered, key)
	}
	e.blocked = e.blocked || failure.Blocked()
	e.marked = e.marked || (done.Answer != nil && !done.Changed)
	if now := b.local(); done.Unmarkable && (!failure.Transient() || e.unmarkable == 0 || now.Sub(e.refused) >= markPause) {
		e.unmarkable++
		e.refused = now
	}
	return *e
}

// close takes an eviction out that ended that way, Unfinished if it was withdrawn;
// false means that there is none. If its deletion was asked for and only the
// answer was lost, a pod that is gone or on its way out is evicted by us (I04).
//
// Before the rules are told, learn has the tracker know what became of the pod; nil
// if it does. It comes after the count: who asks in between finds the pod twice, as
// one that has to leave and as one that has left, rather than not at all. Where the
// watch was faster than the answer, the pod is among the unanswered until it is counted.
func (b *book) close(key tracker.Key, outcome act.Outcome, learn func(tracker.Key)) (ended entry, was act.Outcome, ok bool) {
	b.with(key, func(e *entry) {
		delete(b.entries, key)
		delete(b.unanswered, key)
		b.held.set(key, nil)
		switch {
		case outcome == act.Evicted:
			b.count(e.rules)
		case e.sent && outcome != act.Unfinished:
			outcome = act.Evicted
			b.count(e.asked)
		}
		ended, ok = *e, true
	})
	if learn != nil {
		learn(key)
	}
	if rules := distinct(slices.Concat(ended.rules, ended.asked)); len(rules) > 0 {
		b.changed(rules)
	}
	return ended, outcome, ok
}

// pending reports whether the eviction of a pod has been decided and is not over.
func (b *book) pending(key tracker.Key) (pending bool) {
	b.with(key, func(*entry) { pending = true })
	return pending
}

// counts are the numbers of a book.
type counts struct {
	// pending are the pods that have to leave, and held those that are held, by the kind of object
	// that carries the taint.
	pending map[tracker.SourceKind]int
	held    map[tracker.SourceKind]map[checks.Reason]int
	// overdue is for how long the pod has had to leave that should have left first, of those that
	// nothing holds; zero for none.
	overdue time.Duration
}

// recover is called when a request went well. It returns the evictions that wait
// because of a failure of the API server as a whole: there is no reason to let
// them wait any longer.
func (b *book) recover(now time.Time) []tracker.Key {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.recovered) < recoveryPause {
		return nil
	}
	b.recovered = now
	var keys []tracker.Key
	for key, e := range b.entries {
		if e.failure.Transient() {
			e.failure = act.NoFailure
			keys = append(keys, key)
		}
	}
	return keys
}
