package evictor

import (
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// Mode says what Tollgate does about taints that Kubernetes' own controllers see as
// well. The values are those of the configuration; the zero Mode is ModeReplace.
type Mode string

// The modes.
const (
	// ModeReplace evicts in the place of Kubernetes' own controllers, which are off.
	ModeReplace Mode = "Replace"
	// ModeWindow evicts within the time that pods were given when they were created;
	// Kubernetes' own controllers are the deadline.
	ModeWindow Mode = "Window"
	// ModeObserve evicts nobody.
	ModeObserve Mode = "Observe"
)

// gate says what holds the evictions that are due, as far as that can be told without
// an attempt. It makes no requests.
type gate struct {
	tracker    *tracker.Tracker
	mode       Mode
	policies   func() *eviction.Set
	namespaces func(name string) (labels.Labels, bool)
	disruption *NodeDisruption
	loops      *loopWatch
	// observe tells disruption how many nodes there are and how many are down.
	observe func(now time.Time, nodes, down int)
}

// grounds are the reasons that make a pod leave now, the earliest first.
type grounds struct {
	because []decide.Reason
	// treatments says how each is carried out; nil for as Kubernetes does it.
	treatments []eviction.Treatment
	// holds is why the other reasons that are due do not count, the earliest first.
	holds []hold
	// due are all of them.
	due []decide.Reason
}

func (g *grounds) treatment(at int) eviction.Treatment {
	if g.treatments == nil {
		return eviction.Treatment{}
	}
	return g.treatments[at]
}

// without takes out a reason that turned out to be held.
func (g *grounds) without(held hold) {
	at := slices.IndexFunc(g.because, func(r decide.Reason) bool { return r.Origin() == held.from })
	if at < 0 {
		return
	}
	// The reasons are shared with the decision.
	g.because = slices.Delete(slices.Clone(g.because), at, at+1)
	if g.treatments != nil {
		g.treatments = slices.Delete(g.treatments, at, at+1)
	}
	g.holds = append(g.holds, held)
	slices.SortStableFunc(g.holds, func(a, b hold) int { return g.place(a) - g.place(b) })
}

// place returns where what is held stands among the reasons.
func (g *grounds) place(held hold) int {
	return slices.IndexFunc(g.due, func(r decide.Reason) bool { return r.Origin() == held.from })
}

// pass returns which of the reasons that are due make pod leave.
func (g *gate) pass(now time.Time, pod *tracker.Pod, due []decide.Reason) grounds {
	set := g.policies()
	if set.Len() == 0 && g.mode != ModeWindow && g.open(now, pod, due) {
		return grounds{because: due, due: due}
	}
	passed := grounds{due: due, because: make([]decide.Reason, 0, len(due)), treatments: make([]eviction.Treatment, 0, len(due))}
	subject := decide.SubjectOf(pod, g.namespaces)
	for i := range due {
		treatment, err := decide.Treat(set, &due[i], &subject)
		held, isHeld := g.holds(now, pod, &due[i], treatment, err)
		if isHeld {
			passed.holds = append(passed.holds, held)
			continue
		}
		passed.because = append(passed.because, due[i])
		passed.treatments = append(passed.treatments, treatment)
	}
	return passed
}

// open reports whether nothing holds any reason where no policy does.
func (g *gate) open(now time.Time, pod *tracker.Pod, due []decide.Reason) bool {
	for i := range due {
		if _, held := g.holds(now, pod, &due[i], eviction.Treatment{}, nil); held {
			return false
		}
	}
	return true
}

// holds returns what holds a reason. What only a policy can end comes first.
func (g *gate) holds(now time.Time, pod *tracker.Pod, reason *decide.Reason, treatment eviction.Treatment, unknown error) (hold, bool) {
	policy := treatment.Policy
	if why, name := HeldByPolicy(treatment, unknown); why != "" {
		held := newHold(reason, why, policy)
		held.policy = name
		return held, true
	}
	switch {
	case g.nodesDown(now, &reason.Taint):
		return newHold(reason, HoldNodesDown, nil), true
	case g.mode == ModeWindow && !g.tracker.Twin(reason.Taint.Source, reason.Taint, reason.Device):
		return newHold(reason, HoldTwinMissing, policy), true
	}
	if policy == nil {
		return hold{}, false // Kubernetes slows no loop down.
	}
	if loop, looping := g.loops.Hold(now, pod, &reason.Taint); looping {
		held := newHold(reason, HoldLooping, nil)
		held.again = min(max(loop.Until.Sub(now), 0)+time.Millisecond, heldPause)
		return held, true
	}
	return hold{}, false
}

// nodesDown reports whether a taint says that a node is down while all are.
func (g *gate) nodesDown(now time.Time, taint *tracker.Taint) bool {
	if !IsSystemTaint(taint) {
		return false
	}
	nodes, down := g.tracker.NodesDown()
	g.observe(now, nodes, down)
	return g.disruption.Holds(taint)
}

// windowed leaves of the reasons of a pod those for which it was given a window: in
// mode Window all others are the business of Kubernetes' own controllers. Where it
// cannot be told yet the reason is left, and held when it is due.
func (g *gate) windowed(pod *tracker.Pod, because []decide.Reason) []decide.Reason {
	set, subject := g.policies(), decide.SubjectOf(pod, g.namespaces)
	return slices.DeleteFunc(because, func(reason decide.Reason) bool {
		treatment, err := decide.Treat(set, &reason, &subject)
		return err == nil && (treatment.Policy == nil || treatment.Policy.WindowSeconds == nil)
	})
}

// HeldByPolicy returns why an EvictionPolicy does not let an eviction be carried out,
// whatever else happens, and the name of that policy. Both are empty when none does.
// Unknown is the error of Treat.
func HeldByPolicy(treatment eviction.Treatment, unknown error) (why HoldReason, policy string) {
	switch {
	case unknown != nil:
		if asks, ok := errors.AsType[*eviction.NamespaceUnknownError](unknown); ok {
			policy = asks.Policy
		}
		return HoldNamespaceUnknown, policy
	case treatment.Policy == nil:
		return "", ""
	case treatment.Policy.Paused:
		return HoldPaused, treatment.Policy.Name
	case treatment.Protected:
		return HoldProtected, treatment.Policy.Name
	default:
		return "", ""
	}
}
