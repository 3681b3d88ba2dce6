package checks

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// Recheck is the maximum time after which a held or waiting pod is checked again. It bounds the delay
// after a missed event.
const Recheck = 30 * time.Second

// Eviction is the eviction of a pod because of one reason that is due.
type Eviction struct {
	*decide.Reason

	Pod *tracker.Pod
	// Treatment is the treatment of the eviction by policies, and Unknown the error of
	// decide.Treat.
	Treatment eviction.Treatment
	Unknown   error
	// AsksBudget is true if the Eviction API evicts the pod, and so asks its
	// PodDisruptionBudget.
	AsksBudget bool
}

// Now is a moment by two clocks: that of the API server for deadlines, and that of the machine for
// rate limits and breakers.
type Now struct{ Server, Local time.Time }

// Check decides whether an eviction may proceed now. A check is goroutine-safe and does not block.
type Check func(now Now, of *Eviction) Answer

// Answer is the answer of a check. The zero Answer means that the eviction may proceed.
type Answer struct {
	// Hold is set if the pod is held.
	Hold *Hold
	// Wait is positive if the pod has to wait: the maximum time until it asks again.
	Wait time.Duration
	// Undo is called once, at the end of the attempt or if another check does not let the eviction
	// proceed, to release what the check has reserved for the pod; nil if nothing.
	Undo func(now Now, end End)
}

// Hold is the reason why a pod is held.
type Hold struct {
	Reason Reason
	// Policy and PolicyName are the UID and the name of the EvictionPolicy that holds the pod,
	// empty for none.
	Policy     types.UID
	PolicyName string
	// Breakers are the UIDs of the policies whose breakers need room for the pod, if a breaker
	// holds it, or held it before its policy was paused.
	Breakers []types.UID
	// Again is the maximum time until the pod is checked again.
	Again time.Duration
}

// NewHold returns a hold by a policy, nil for none.
func NewHold(reason Reason, by *eviction.Policy) *Hold {
	h := &Hold{Reason: reason, Again: Recheck}
	if by != nil {
		h.Policy, h.PolicyName = by.UID, by.Name
	}
	return h
}

// End is how an attempt to evict a pod ended.
type End uint8

// The ends.
const (
	// Stayed means that the pod was not evicted, for certain.
	Stayed End = iota
	// Left means that the pod was evicted, or may have been.
	Left
	// PutOff means that no request was made. The pod keeps its place in queues.
	PutOff
)

// List is a list of checks, in the order in which they are asked.
type List []Check

// Ask asks the checks in order, until one does not let the eviction proceed. It then returns that
// answer, and undoes the checks before it. If all let the eviction proceed, the caller must call End
// of the Pass after the attempt.
func (l List) Ask(now Now, of *Eviction) (Pass, Answer) {
	var pass Pass
	goes, end := false, PutOff // Also if a check panics.
	defer func() {
		if !goes {
			pass.End(now, end)
		}
	}()
	for _, check := range l {
		answer := check(now, of)
		if answer.Hold != nil {
			end = Stayed
		}
		if answer.Hold != nil || answer.Wait > 0 {
			return nil, answer
		}
		if answer.Undo != nil {
			pass = append(pass, answer.Undo)
		}
	}
	goes = true
	return pass, Answer{}
}

// Pass has the Undo functions of a list of checks.
type Pass []func(now Now, end End)

// End reports to the checks, the last one first, how the attempt ended. It must be called once.
func (p Pass) End(now Now, end End) {
	for _, undo := range slices.Backward(p) {
		undo(now, end)
	}
}
