package checks

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// Recheck is after how long at most a pod that is held or waits is checked again. It bounds what
// a missed event costs.
const Recheck = 30 * time.Second

// Eviction is the eviction of a pod that has to leave by now, because of one reason.
type Eviction struct {
	*decide.Reason

	Pod *tracker.Pod
	// Treatment is what policies say about the eviction, and Unknown the error of decide.Treat.
	Treatment eviction.Treatment
	Unknown   error
	// AsksBudget is true if the Eviction API evicts the pod, which asks its PodDisruptionBudget.
	AsksBudget bool
}

// Now is one moment by two clocks. Deadlines are times of the API server; rates and breakers
// measure by the monotonic clock of the machine.
type Now struct{ Server, Local time.Time }

// Check decides whether an eviction may go on now. A check is safe for concurrent use and does not
// block.
type Check func(now Now, of *Eviction) Answer

// Answer is the answer of a check. The zero Answer lets the pod go on.
type Answer struct {
	// Hold is set if the pod is held.
	Hold *Hold
	// Wait is positive if it is not the turn of the pod: after how long to ask again at the latest.
	Wait time.Duration
	// Undo takes back what the check has given to the pod; nil if nothing.
	Undo func(now Now, end End)
}

// Hold is why a pod is held.
type Hold struct {
	Reason Reason
	// Policy and PolicyName are those of the EvictionPolicy that holds the pod, empty for none.
	Policy     types.UID
	PolicyName string
	// Again is after how long to check the pod again at the latest.
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
	// Stayed means that the pod is still there, for certain.
	Stayed End = iota
	// Left means that the pod has left, or may have.
	Left
	// PutOff means that no request was made. The pod keeps its place in the order.
	PutOff
)

// List is checks in the order in which they are asked.
type List []Check

// Ask asks the checks in order, until one does not let the pod go on. That answer is returned,
// and what the checks before it have given is taken back. If all let it go on, the Pass has to be
// ended when the attempt is over.
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

// Pass is what the checks of a list have given to a pod.
type Pass []func(now Now, end End)

// End tells the checks how the attempt ended, the last one first. It is called once.
func (p Pass) End(now Now, end End) {
	for _, undo := range slices.Backward(p) {
		undo(now, end)
	}
}
