package preview

import (
	"time"

	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/tracker"
)

// Hit is one taint because of which a pod has to leave. Unlike a reason of the
// evictor, it stands for each device that carries the taint.
type Hit struct {
	Taint *tracker.Taint
	// Driver is that of the device, empty for a taint of a node.
	Driver string
	// At is when the pod has to leave because of it.
	At time.Time
	// Since is when it was written; zero when the pod came to the taint and not the
	// exampleTaint to the pod.
	Since time.Time
}

// hits returns the taints because of which a pod has to leave, or had to when it began
// to. Those that an EvictionPolicy protects it from are not among them; that one is
// paused changes nothing, since it is only for now.
func hits(rules decide.Rules, treatments *treatments, situation *tracker.Situation) []Hit {
	pod := situation.Pod
	if pod.Terminating {
		pod.Terminating, pod.Finished = false, false
	}
	var found []Hit
	for i := range situation.Taints {
		hit := Hit{Taint: &situation.Taints[i]}
		alone := tracker.Situation{Pod: pod, Taints: situation.Taints[i : i+1]}
		if hit.decide(rules, alone) && !hit.protected(treatments, &pod) {
			if !pod.Bound.After(hit.Taint.Appeared()) {
				hit.Since = hit.Taint.Appeared()
			}
			found = append(found, hit)
		}
	}
	for i := range situation.Devices {
		used := situation.Devices[i]
		taints := used.Taints
		for j := range taints {
			hit := Hit{Taint: &taints[j], Driver: used.ID.Driver, Since: taints[j].Appeared()}
			used.Taints = taints[j : j+1]
			alone := tracker.Situation{Pod: pod, Devices: []tracker.TaintedDevice{used}}
			if hit.decide(rules, alone) && !hit.protected(treatments, &pod) {
				found = append(found, hit)
			}
		}
	}
	return found
}

// decide reports whether the pod has to leave because of the taint alone.
func (h *Hit) decide(rules decide.Rules, alone tracker.Situation) bool {
	decision := rules.Decide(time.Time{}, alone)
	h.At = decision.At
	return decision.Verdict == decide.EvictAt
}

// protected reports whether the governing EvictionPolicy protects the pod.
func (h *Hit) protected(treatments *treatments, pod *tracker.Pod) bool {
	return treatments.of(pod, h.Taint, h.Driver).Protected
}

// Struck is a pod that a write hits, and by what before and after it.
type Struck struct {
	Key           tracker.Key
	before, after []Hit
}

// Strikes returns the pods that changes hit with any taint.
func (v *View) Strikes(changes []tracker.Change) []Struck {
	struck := make([]Struck, 0, len(changes))
	treatments := v.options.treating().now()
	for i := range changes {
		after := hits(v.options.Rules, treatments, &changes[i].After)
		if len(after) == 0 || changes[i].After.Pod.Terminating {
			continue
		}
		struck = append(struck, Struck{
			Key: changes[i].After.Pod.Key, before: hits(v.options.Rules, treatments, &changes[i].Before), after: after,
		})
	}
	return struck
}

// By reports whether the write makes the pod due, or due sooner, by the taints that
// are governed, whatever other taints do to it.
func (s *Struck) By(governs func(*Hit) bool, now time.Time) bool {
	at, ok := earliest(s.after, governs)
	if !ok {
		return false
	}
	was, ok := earliest(s.before, governs)
	return !ok || sooner(at, was, now)
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
		was, stood := earliest(s.before, same)
		if governs(hit) && (!stood || sooner(hit.At, was, now)) {
			taints = append(taints, hit.Taint)
		}
	}
	return taints
}

func earliest(hits []Hit, wanted func(*Hit) bool) (at time.Time, found bool) {
	for i := range hits {
		if hit := &hits[i]; wanted(hit) && (!found || hit.At.Before(at)) {
			at, found = hit.At, true
		}
	}
	return at, found
}
