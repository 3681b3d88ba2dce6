package decide

import (
	"time"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// Verdict says what is to become of a pod. The zero Verdict keeps it.
type Verdict uint8

// The verdicts.
const (
	Keep Verdict = iota
	EvictAt
)

// Reason is one taint because of which a pod has to leave.
type Reason struct {
	Taint tracker.Taint
	// Device is the device that carries the taint, and Claim the claim through which
	// the pod uses it. Both are zero for a taint of the node.
	Device device.ID
	Claim  tracker.ClaimName
	// Tolerated is true when the taint is tolerated for a while.
	Tolerated bool
	// At is when the pod has to leave because of this taint.
	At time.Time
	// Position is the index of the taint among the taints of its node or device.
	Position int
}

// Decision is a verdict and what led to it.
type Decision struct {
	Verdict Verdict
	// At is the deadline when the verdict is EvictAt: the earliest of Because.
	At time.Time
	// Wait is how long it is until then; zero when the pod has to leave now.
	Wait time.Duration
	// Because holds every taint with a deadline, the earliest first. A rule is named
	// once, with the device that makes it the most urgent.
	Because []Reason
}

// Due returns the reasons that are due at now, the earliest first.
func (d *Decision) Due(now time.Time) []Reason {
	for i := range d.Because {
		if d.Because[i].At.After(now) {
			return d.Because[:i:i]
		}
	}
	return d.Because
}

// Reasons returns the reasons as they are written in logs.
func (d *Decision) Reasons() []string {
	texts := make([]string, 0, len(d.Because))
	for i := range d.Because {
		reason := &d.Because[i]
		text := reason.Taint.String() + " since " + reason.Taint.TimeAdded.UTC().Format(time.RFC3339)
		if source := reason.Taint.Source; source.Kind.OnDevice() {
			text += " by " + string(source.Kind) + " " + source.Name + " on " + reason.Device.String() + " in claim " + reason.Claim.Name
		}
		if patch := reason.Taint.Patch; patch.Name != "" {
			text += " for " + string(tracker.SourcePatch) + " " + patch.Name
		}
		texts = append(texts, text)
	}
	return texts
}

// Rules are the choices a cluster has about what a decision means. The zero
// Rules are those of Kubernetes by default.
type Rules struct {
	// ComparisonOperators lets the operators Lt and Gt match, as Kubernetes does
	// with its feature gate TaintTolerationComparisonOperators.
	ComparisonOperators bool
	// MaxHold bounds for how long a taint with a time in the future may wait for
	// it, counted from when the taint was seen. That is remembered in memory alone,
	// so a new leader counts anew. Zero stands for no bound.
	MaxHold time.Duration
	// Window leaves out tolerations that pods and claims were given in mode Window:
	// they keep Kubernetes' own controllers off, and not Tollgate.
	Window bool
}

// Decide reports what is to become of a pod under the NoExecute taints that hold
// for it. Only Wait depends on now: whoever decides it again, at another time or
// after a restart, gets the same deadline (NE-07, DE-54), as long as the taints
// carry their times and none is held by MaxHold.
//
// Every taint is judged by itself, of the node and of each device that the pod
// uses through any of its claims, and the pod has to leave at the earliest of all
// deadlines (NE-03, NE-05, DE-21, DE-26, DE-27).
//
// Pods that are over, on their way out, or without a node stay as they are
// (DE-03, DE-11, DE-12), and so do mirror pods: the kubelet runs a static pod
// whether or not the API holds an image of it, and makes a new image at once.
func (r Rules) Decide(now time.Time, situation tracker.Situation) Decision {
	pod := &situation.Pod
	if pod.NodeName == "" || pod.Finished || pod.Terminating || pod.Mirror {
		return Decision{}
	}
	because := r.onNode(nil, pod, situation.Taints)
	for i := range situation.Devices {
		because = r.onDevice(because, &situation.Devices[i])
	}
	return NewDecision(now, ordered(because))
}

// NewDecision returns the decision that reasons lead to, which are in order of their deadlines.
func NewDecision(now time.Time, because []Reason) Decision {
	if len(because) == 0 {
		return Decision{}
	}
	at := because[0].At
	return Decision{Verdict: EvictAt, At: at, Wait: max(at.Sub(now), 0), Because: because}
}

// began returns when a taint began to count for whoever was there before it.
func (r Rules) began(taint *tracker.Taint) time.Time {
	if r.MaxHold > 0 {
		return earlier(taint.TimeAdded, taint.Seen.Add(r.MaxHold))
	}
	return taint.TimeAdded
}

// withDeadline appends a reason, unless the taint is tolerated for ever. A tolerated taint makes the pod leave
// so many seconds after the time of the reason. No seconds given is for ever, and none or less is no time at
// all. Nodes and devices are alike in this (NE-27, DE-25, DE-31, H07).
func withDeadline(because []Reason, reason Reason, seconds *int64, tolerated bool) []Reason {
	if tolerated {
		if seconds == nil {
			return because
		}
		end, ending := device.Deadline(reason.At, *seconds)
		if !ending {
			return because
		}
		reason.At, reason.Tolerated = end, true
	}
	return append(because, reason)
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
