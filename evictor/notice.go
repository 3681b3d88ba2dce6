package evictor

import "strings"

// EventReasonsHeld and EventReasonsHeldUp are the reasons of the events that tell of pods
// that have to leave and do not: those on what carries the taints, when a hold begins
// and when it is over, and those on pods that the API server does not let go.
func EventReasonsHeld() []string { return []string{heldReason, releasedReason} }

// EventReasonsHeldUp are described at EventReasonsHeld.
func EventReasonsHeldUp() []string { return []string{nodePhrases.heldUp, devicePhrases.heldUp} }

// HeldNotice is what an event tells of pods that are held because of one taint of the
// object that it is about.
type HeldNotice struct {
	// Taint is the taint as tracker.Taint.String has it.
	Taint  string
	Reason HoldReason
	// Policy is the name of the EvictionPolicy that holds, empty for none.
	Policy string
	// Over is true when no pod is held for that any more.
	Over bool
}

const (
	// leaveForTaint stands before the taint in events about holds.
	leaveForTaint = " to leave because of taint "
	// noneHeld stands after it in those that say that a hold is over, before its reason.
	noneHeld = " is held any more ("
	// byPolicy stands before the name of the policy in those.
	byPolicy = ", EvictionPolicy "
)

// ReadHeldNotice returns what an event with a reason and a message tells; false for one
// that tells of something else, or in other words than this version has.
func ReadHeldNotice(reason, message string) (HeldNotice, bool) {
	_, rest, found := strings.Cut(message, leaveForTaint)
	switch {
	case found && reason == heldReason:
		taint, why, explained := strings.Cut(rest, ": ")
		notice := HeldNotice{Taint: taint}
		return notice, explained && notice.explainedBy(why)
	case found && reason == releasedReason:
		taint, why, explained := strings.Cut(strings.TrimSuffix(rest, ")"), noneHeld)
		of, policy, _ := strings.Cut(why, byPolicy)
		return HeldNotice{Taint: taint, Reason: HoldReason(of), Policy: policy, Over: true}, explained
	default:
		return HeldNotice{}, false
	}
}

// explainedBy fills in the reason and the policy that Explain says something of.
func (n *HeldNotice) explainedBy(text string) bool {
	const anybody = "\x00" // No name has it.
	for _, reason := range holdReasons() {
		if text == reason.Explain("") {
			n.Reason = reason
			return true
		}
		before, after, named := strings.Cut(reason.Explain(anybody), anybody)
		if !named || !strings.HasPrefix(text, before) || !strings.HasSuffix(text, after) {
			continue
		}
		n.Reason, n.Policy = reason, strings.TrimSuffix(strings.TrimPrefix(text, before), after)
		return true
	}
	return false
}
