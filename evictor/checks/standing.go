package checks

import (
	"errors"
	"time"

	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// Cluster is what the checks that give nothing decide from.
type Cluster struct {
	Tracker   *tracker.Tracker
	NodesDown *NodeDisruption
	Loops     *Loops
	// Window is true in mode Window.
	Window bool
	// Observe updates NodesDown.
	Observe func(now time.Time)
}

// Standing returns the checks that give nothing, in order: what only a policy can end comes
// first.
func Standing(c Cluster) List {
	list := List{byPolicy, c.nodesDown}
	if c.Window {
		list = append(list, c.twin)
	}
	return append(list, c.loops)
}

// ByPolicy returns why an EvictionPolicy does not allow an eviction, whatever else happens, and the
// name of that policy. Both are empty when none forbids it. Unknown is the error of
// decide.Treat.
func ByPolicy(treatment eviction.Treatment, unknown error) (why Reason, policy string) {
	switch {
	case unknown != nil:
		if asks, ok := errors.AsType[*eviction.NamespaceUnknownError](unknown); ok {
			policy = asks.Policy
		}
		return NamespaceUnknown, policy
	case treatment.Policy == nil:
		return "", ""
	case treatment.Policy.Paused:
		return Paused, treatment.Policy.Name
	case treatment.Protected:
		return Protected, treatment.Policy.Name
	default:
		return "", ""
	}
}

// byPolicy holds what a policy pauses or protects, and what policies cannot be told of.
func byPolicy(_ Now, of *Eviction) Answer {
	why, name := ByPolicy(of.Treatment, of.Unknown)
	if why == "" {
		return Answer{}
	}
	hold := NewHold(why, of.Treatment.Policy)
	hold.PolicyName = name
	return Answer{Hold: hold}
}

// nodesDown holds pods of nodes that are down while all are.
func (c Cluster) nodesDown(now Now, of *Eviction) Answer {
	if !IsSystemTaint(&of.Taint) {
		return Answer{}
	}
	c.Observe(now.Server)
	if c.NodesDown.Holds(&of.Taint) {
		return Answer{Hold: NewHold(NodesDown, nil)}
	}
	return Answer{}
}

// twin holds pods that would come back at once, since the taint has no NoSchedule twin.
func (c Cluster) twin(_ Now, of *Eviction) Answer {
	if c.Tracker.Twin(of.Taint.Source, of.Taint, of.Device) {
		return Answer{}
	}
	return Answer{Hold: NewHold(TwinMissing, of.Treatment.Policy)}
}

// loops slows down pods that come back to be evicted, if a policy decides about them: Kubernetes
// slows down none.
func (c Cluster) loops(now Now, of *Eviction) Answer {
	if of.Treatment.Policy == nil {
		return Answer{}
	}
	until, looping := c.Loops.Hold(now.Server, of.Pod, &of.Taint)
	if !looping {
		return Answer{}
	}
	hold := NewHold(Looping, nil)
	hold.Again = min(max(until.Sub(now.Server), 0)+time.Millisecond, Recheck)
	return Answer{Hold: hold}
}
