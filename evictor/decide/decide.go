package decide

import (
	"time"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// Verdict says whether a pod has to leave. The zero Verdict keeps it.
type Verdict uint8

// The verdicts.
const (
	Keep Verdict = iota
	EvictAt
)

// Reason is a taint because of which a pod has to leave.
type Reason struct {
	Taint tracker.Taint
	// Device is the device that carries the taint, and Claim the claim through which
	// the pod uses it. Both are zero for a taint of the node.
	Device device.ID
	Claim  tracker.ClaimName
	// Tolerated is true if the pod tolerates the taint for some time.
	Tolerated bool
	// At is the deadline of the pod because of this taint.
	At time.Time
	// Position is the index of the taint among the taints of its node or device.
	Position int
}

// Decision is a verdict and its reasons.
type Decision struct {
	Verdict Verdict
	// At is the deadline if the verdict is EvictAt: the earliest of Because.
	At time.Time
	// Wait is the time until At; zero if the pod has to leave now.
	Wait time.Duration
	// Because has every taint with a deadline, the earliest first. A DeviceTaintRule is listed
	// once, with the device that has the earliest deadline.
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

// Reasons returns the reasons as texts for logs.
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

// Rules are the settings of decisions. The zero Rules are the defaults of Kubernetes.
type Rules struct {
	// ComparisonOperators enables the operators Lt and Gt of tolerations, as the feature gate
	// TaintTolerationComparisonOperators does in Kubernetes.
	ComparisonOperators bool
	// MaxHold is the maximum time for which a taint with a time in the future has no effect,
	// counted from when the taint was first seen. The first-seen time is kept in memory only, so
	// a new leader starts to count again. Zero means no maximum.
	MaxHold time.Duration
	// Window ignores the tolerations that were injected into pods and claims in mode Window: they
	// delay Kubernetes' own controllers, and not Tollgate.
	Window bool
}

// Decide decides when a pod has to leave because of its NoExecute taints. Only Wait depends on now:
// a later decision, also after a restart, has the same deadline (NE-07, DE-54), if the taints have
// times and MaxHold does not apply.
//
// Each taint, of the node and of each device that the pod uses through its claims, is judged
// independently. The pod has to leave at the earliest deadline (NE-03, NE-05, DE-21, DE-26, DE-27).
//
// Pods that are finished, terminating, or without a node stay (DE-03, DE-11, DE-12). So do mirror
// pods: the kubelet runs a static pod without its mirror pod, and would create a new one at once.
func (r Rules) Decide(now time.Time, situation tracker.Situation) Decision {
	pod := &situation.Pod
	if pod.NodeName == "" || pod.Finished || pod.Terminating || pod.Mirror {
		return Decision{}
	}
	return NewDecision(now, ordered(r.Reasons(&situation)))
}

// Reasons returns a reason for each taint with a deadline, in no order, as if the pod was running. A taint of several
// devices has a reason for each.
func (r Rules) Reasons(situation *tracker.Situation) []Reason {
	because := r.onNode(nil, &situation.Pod, situation.Taints)
	for i := range situation.Devices {
		because = r.onDevice(because, &situation.Devices[i])
	}
	return because
}

// NewDecision returns the decision with reasons, which must be ordered by deadline.
func NewDecision(now time.Time, because []Reason) Decision {
	if len(because) == 0 {
		return Decision{}
	}
	at := because[0].At
	return Decision{Verdict: EvictAt, At: at, Wait: max(at.Sub(now), 0), Because: because}
}

// began returns when the time of a taint starts, for pods that were bound before.
func (r Rules) began(taint *tracker.Taint) time.Time {
	if latest := taint.Seen.Add(r.MaxHold); r.MaxHold > 0 && latest.Before(taint.TimeAdded) {
		return latest
	}
	return taint.TimeAdded
}

// withDeadline appends a reason, unless the taint is tolerated without an end. A pod that tolerates the
// taint for some seconds has to leave that long after the time of the reason. Nil seconds have no end,
// and zero or negative seconds are the same as no toleration, for nodes and devices (NE-27, DE-25,
// DE-31, H07).
func withDeadline(because []Reason, reason Reason, seconds *int64, tolerated bool) []Reason {
	if tolerated {
		if seconds == nil {
			return because
		}
		if reason.At, reason.Tolerated = device.Deadline(reason.At, *seconds); !reason.Tolerated {
			return because
		}
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
