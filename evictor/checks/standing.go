package checks

import (
	"errors"
	"time"

	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// Cluster is the state that the standing checks read.
type Cluster struct {
	Tracker   *tracker.Tracker
	NodesDown *NodeDisruption
	Loops     *Loops
	// Window is true in mode Window.
	Window bool
	// Observe updates NodesDown.
	Observe func(now time.Time)
}

// Standing returns the checks that only read state, in order: holds that only a policy can end come
// first.
func Standing(c Cluster) List {
	return List{byPolicy, c.nodesDown, c.twin, c.loops}
}

// ByPolicy returns why an EvictionPolicy forbids an eviction, and the name of the policy; both are
// empty if none does. unknown is the error of decide.Treat.
func ByPolicy(treatment eviction.Treatment, unknown error) (why Reason, policy string) {
	switch {
	case unknown != nil:
		if asks, ok := errors.AsType[*eviction.NamespaceUnknownError](unknown); ok {
			policy = asks.Policy
		}
		return NamespaceUnknown, policy
	case treatment.Policy == nil:
	case treatment.Policy.Paused:
		return Paused, treatment.Policy.Name
	case treatment.Protected:
		return Protected, treatment.Policy.Name
	}
	return "", ""
}

// byPolicy holds pods that a policy pauses or protects, and pods whose policy cannot be determined.
func byPolicy(_ Now, of *Eviction) Answer {
	why, name := ByPolicy(of.Treatment, of.Unknown)
	if why == "" {
		return Answer{}
	}
	hold := NewHold(why, of.Treatment.Policy)
	hold.PolicyName = name
	return Answer{Hold: hold}
}

// nodesDown holds pods because of nodes that are down while all nodes are down.
func (c Cluster) nodesDown(now Now, of *Eviction) Answer {
	if IsSystemTaint(&of.Taint) {
		c.Observe(now.Server)
		if c.NodesDown.Holds(&of.Taint) {
			return Answer{Hold: NewHold(NodesDown, nil)}
		}
	}
	return Answer{}
}

// twin holds pods in mode Window while the taint has no paired NoSchedule taint, because their
// replacements would return.
func (c Cluster) twin(_ Now, of *Eviction) Answer {
	if !c.Window || c.Tracker.Twin(of.Taint.Source, of.Taint, of.Device) {
		return Answer{}
	}
	return Answer{Hold: NewHold(TwinMissing, of.Treatment.Policy)}
}

// loops delays pods in eviction loops, if a policy governs their eviction. Kubernetes delays none.
func (c Cluster) loops(now Now, of *Eviction) Answer {
	if of.Treatment.Policy != nil {
		if until, looping := c.Loops.Hold(now.Server, of.Pod, &of.Taint); looping {
			hold := NewHold(Looping, nil)
			hold.Again = min(until.Sub(now.Server)+time.Millisecond, Recheck)
			return Answer{Hold: hold}
		}
	}
	return Answer{}
}
