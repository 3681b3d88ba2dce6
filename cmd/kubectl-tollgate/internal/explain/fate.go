package explain

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
	"github.com/tollgate-dev/tollgate/tracker"
)

// Fate is what becomes of a pod.
type Fate struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// State is Staying, Leaving, Due, Held or Terminating.
	State State `json:"state"`
	// At is when the pod has to leave, and Because of what; absent if it stays.
	At      *metav1.Time `json:"at,omitempty"`
	Because string       `json:"because,omitempty"`
	// Policy is the EvictionPolicy that governs a pod which is Held; empty for none.
	Policy string `json:"policy,omitempty"`

	// exposed is true if a NoExecute taint holds for the pod.
	exposed bool
}

// fate says what becomes of a pod.
func (w *World) fate(judge *evictions.Judge, key tracker.Key) (Fate, bool) {
	situation, ok := w.Tracker.Lookup(key)
	if !ok || situation.Pod.Finished {
		return Fate{}, false
	}
	f := Fate{Namespace: key.Namespace, Name: key.Name, State: Staying, exposed: len(situation.Taints)+len(situation.Devices) > 0}
	if situation.Pod.Terminating {
		f.State = Terminating
		return f, true
	}
	e, leaves := judge.Of(&situation)
	if !leaves {
		return f, true
	}
	f.Because, f.At = w.taintOf(&e.Because[0]), stamp(e.At)
	switch {
	case !e.Hold.None():
		f.State, f.Policy = Held, e.Policy
		if e.State == evictions.Protected {
			f.At = stampOrNone(e.Hold.Until)
		}
	case e.State == evictions.Due:
		f.State = Due
	default:
		f.State = Leaving
	}
	return f, true
}

// fates returns what becomes of pods: who leaves first comes first.
func (w *World) fates(keys []tracker.Key, now time.Time) []Fate {
	var list []Fate
	judge := w.Evictions.Judge(now)
	for _, key := range keys {
		if f, ok := w.fate(judge, key); ok {
			list = append(list, f)
		}
	}
	order := []State{Terminating, Due, Leaving, Held, Staying}
	slices.SortStableFunc(list, func(a, b Fate) int {
		if a.At != nil && b.At != nil && a.State == b.State {
			return cmp.Or(a.At.Compare(b.At.Time), compareNames(a, b))
		}
		return cmp.Or(cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State)), compareNames(a, b))
	})
	return list
}

func compareNames(a, b Fate) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// tally says in a few words what becomes of pods.
func tally(fates []Fate, now time.Time) string {
	counts := map[State]int{}
	tolerating := 0
	var last time.Time
	for i := range fates {
		f := &fates[i]
		counts[f.State]++
		if f.State == Staying && f.exposed {
			tolerating++
		}
		if f.State == Leaving && f.At.After(last) {
			last = f.At.Time
		}
	}
	if len(fates) == 0 {
		return "no pod uses it"
	}
	var words []string
	add := func(n int, text string) {
		if n > 0 {
			words = append(words, counted(n, "pod")+" "+text)
		}
	}
	add(counts[Terminating], "on the way out")
	add(counts[Due], haveTo(counts[Due])+" leave now")
	if counts[Leaving] > 0 {
		add(counts[Leaving], haveTo(counts[Leaving])+" leave later, the last "+in(last, now))
	}
	add(counts[Held], "held")
	add(tolerating, tolerate(tolerating)+" for ever what would make "+itOrThem(tolerating)+" leave")
	add(counts[Staying]-tolerating, stay(counts[Staying]-tolerating))
	return joined(words)
}

func haveTo(n int) string {
	if n == 1 {
		return "has to"
	}
	return "have to"
}

func tolerate(n int) string {
	if n == 1 {
		return "tolerates"
	}
	return "tolerate"
}

func stay(n int) string {
	if n == 1 {
		return "stays"
	}
	return "stay"
}
