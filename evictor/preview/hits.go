package preview

import (
	"slices"
	"time"

	"github.com/tollgate-dev/tollgate/tracker"
)

// Hit is one taint because of which a pod has to leave. In contrast to a reason of the
// evictor, there is a hit for each device that carries the taint.
type Hit struct {
	Taint *tracker.Taint
	// Driver is the driver of the device, empty for a taint of a node.
	Driver string
	// At is when the pod has to leave because of it.
	At time.Time
	// Came is true if the pod came to a node that had the taint, so that no write hit the pod.
	Came bool
}

// hits returns the taints because of which a pod has to leave, or had to when it began to
// terminate, except taints that an EvictionPolicy protects it from. A paused policy changes
// nothing, since the pause ends.
func (t *treatments) hits(situation *tracker.Situation) []Hit {
	pod := &situation.Pod
	if pod.NodeName == "" || pod.Mirror || pod.Finished && !pod.Terminating {
		return nil
	}
	var found []Hit
	reasons := t.rules.Reasons(situation)
	for i := range reasons {
		reason := &reasons[i]
		if t.of(pod, reason).Protected {
			continue
		}
		// The situation shares its taints with those of other pods.
		hit := Hit{Driver: reason.Device.Driver, At: reason.At}
		if reason.Taint.Source.Kind.OnDevice() {
			at := slices.IndexFunc(situation.Devices, func(d tracker.TaintedDevice) bool { return d.ID == reason.Device && d.Claim == reason.Claim })
			hit.Taint = &situation.Devices[at].Taints[reason.Position]
		} else {
			hit.Taint = &situation.Taints[reason.Position]
			hit.Came = pod.Bound.After(hit.Taint.Appeared())
		}
		found = append(found, hit)
	}
	return found
}

// Struck is a pod that a write hits, with the hits before and after the write.
type Struck struct {
	Key           tracker.Key
	before, after []Hit
}

// Strikes returns the pods that are hit by any taint after changes.
func (v *View) Strikes(changes []tracker.Change) []Struck {
	struck := make([]Struck, 0, len(changes))
	treatments := v.treatments()
	for i := range changes {
		change := &changes[i]
		after := treatments.hits(&change.After)
		if len(after) > 0 && !change.After.Pod.Terminating {
			struck = append(struck, Struck{Key: change.After.Pod.Key, before: treatments.hits(&change.Before), after: after})
		}
	}
	return struck
}

// By reports whether the governed taints alone make the pod due by the write, or due
// sooner.
func (s *Struck) By(governs func(*Hit) bool, now time.Time) bool {
	at, ok := earliest(s.after, governs)
	return ok && hastened(s.before, governs, at, now)
}

// Taints returns the governed taints that hit the pod after the write and did not
// before, or later.
func (s *Struck) Taints(governs func(*Hit) bool, now time.Time) []*tracker.Taint {
	var taints []*tracker.Taint
	for i := range s.after {
		hit := &s.after[i]
		same := func(h *Hit) bool {
			return h.Driver == hit.Driver && h.Taint.Author().Kind == hit.Taint.Author().Kind && h.Taint.Key == hit.Taint.Key &&
				h.Taint.Value == hit.Taint.Value
		}
		if governs(hit) && hastened(s.before, same, hit.At, now) {
			taints = append(taints, hit.Taint)
		}
	}
	return taints
}

// hastened reports whether a deadline comes before that of the wanted hits before the
// write, or there are none.
func hastened(before []Hit, wanted func(*Hit) bool, at, now time.Time) bool {
	was, ok := earliest(before, wanted)
	return !ok || sooner(at, was, now)
}

// earliest returns the first deadline of the wanted hits; false for none.
func earliest(hits []Hit, wanted func(*Hit) bool) (at time.Time, found bool) {
	for i := range hits {
		if hit := &hits[i]; wanted(hit) && (!found || hit.At.Before(at)) {
			at, found = hit.At, true
		}
	}
	return at, found
}
