package explain

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
	"github.com/tollgate-dev/tollgate/tracker"
)

// Fate is the state of a pod on a node or a device.
type Fate struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// State is Staying, Leaving, Due, Held or Terminating.
	State State `json:"state"`
	// At is when the pod has to leave, and Because the taint; absent if it stays.
	At      *metav1.Time `json:"at,omitempty"`
	Because string       `json:"because,omitempty"`
	// Policy is the EvictionPolicy of a pod that is Held; empty for none.
	Policy string `json:"policy,omitempty"`

	// exposed is true if a NoExecute taint applies to the pod.
	exposed bool
}

// fates returns the state of pods that are not finished, ordered by when they leave.
func (w *World) fates(keys []tracker.Key, now time.Time) []Fate {
	var list []Fate
	moment := w.Evictions.At(now)
	for _, key := range keys {
		situation, ok := w.Tracker.Lookup(key)
		if !ok || situation.Pod.Finished {
			continue
		}
		f := Fate{Namespace: key.Namespace, Name: key.Name, State: Staying, exposed: len(situation.Taints)+len(situation.Devices) > 0}
		if e, leaves := moment.Eviction(&situation); situation.Pod.Terminating {
			f.State = Terminating
		} else if leaves {
			f.State, f.Because, f.At = Leaving, w.taintOf(&e.Because[0]), cli.TimeOrNone(e.At)
			switch {
			case !e.Hold.None():
				f.State, f.Policy = Held, e.Policy
				if e.State == evictions.Protected {
					f.At = cli.TimeOrNone(e.Hold.Until)
				}
			case e.State == evictions.Due:
				f.State = Due
			}
		}
		list = append(list, f)
	}
	order := []State{Terminating, Due, Leaving, Held, Staying}
	slices.SortStableFunc(list, func(a, b Fate) int {
		at := 0
		if a.At != nil && b.At != nil {
			at = a.At.Compare(b.At.Time)
		}
		return cmp.Or(cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State)), at,
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// tally counts pods by state.
func tally(fates []Fate, now time.Time) string {
	if len(fates) == 0 {
		return "no pod uses it"
	}
	counts := map[State]int{}
	tolerating := 0
	var last time.Time
	for i := range fates {
		f := &fates[i]
		if f.State == Staying && f.exposed {
			tolerating++
			continue
		}
		counts[f.State]++
		if f.State == Leaving && f.At.After(last) {
			last = f.At.Time
		}
	}
	var words []string
	add := func(n int, one, many, rest string) {
		if n > 0 {
			words = append(words, cli.Counted(n, "pod")+" "+cli.Plural(n, one, many)+rest)
		}
	}
	add(counts[Terminating], "", "", "on the way out")
	add(counts[Due], "has to", "have to", " leave now")
	add(counts[Leaving], "has to", "have to", " leave later, the last "+in(last, now))
	add(counts[Held], "", "", "held")
	add(tolerating, "tolerates", "tolerate", " for ever what would make "+cli.Plural(tolerating, "it", "them")+" leave")
	add(counts[Staying], "stays", "stay", "")
	return cli.And(words)
}
