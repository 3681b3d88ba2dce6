package sliceview_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// step is one event of a scenario.
type step struct {
	// object is what the event is about; the events of one object keep their order.
	object string
	happen func(w *world)
}

func setSlice(obj metav1.Object) step {
	return step{object: "slice " + obj.GetName(), happen: func(w *world) { w.slices.set(w.tb, obj) }}
}

func setRule(obj metav1.Object) step {
	return step{object: "rule " + obj.GetName(), happen: func(w *world) { w.rules.set(w.tb, obj) }}
}

func deleteSlice(name string) step {
	return step{object: "slice " + name, happen: func(w *world) { w.slices.remove(w.tb, name, false) }}
}

func missSlice(name string) step {
	return step{object: "slice " + name, happen: func(w *world) { w.slices.remove(w.tb, name, true) }}
}

func deleteRule(name string) step {
	return step{object: "rule " + name, happen: func(w *world) { w.rules.remove(w.tb, name, false) }}
}

func missRule(name string) step {
	return step{object: "rule " + name, happen: func(w *world) { w.rules.remove(w.tb, name, true) }}
}

// orders yields every order of the steps in which those of one object keep theirs.
func orders(steps []step, yield func([]step)) {
	var extend func(done, rest []step)
	extend = func(done, rest []step) {
		if len(rest) == 0 {
			yield(done)
			return
		}
		begun := map[string]bool{}
		for i, s := range rest {
			if begun[s.object] {
				continue
			}
			begun[s.object] = true
			others := append(append([]step{}, rest[:i]...), rest[i+1:]...)
			extend(append(append([]step{}, done...), s), others)
		}
	}
	extend(nil, steps)
}

// The scenarios are those of Kubernetes' own tests of its tracker, and then some.
func TestOrders(t *testing.T) {
	t.Parallel()
	own := taint("own")
	for _, scenario := range []struct {
		name   string
		steps  []step
		expect map[string][]string
	}{
		{
			name: "TR-08 add-slices-no-patches",
			steps: []step{
				setSlice(slice("s1", dev("a"))), setSlice(slice("s2", dev("b", own))), setSlice(slice("s3", in("e", "q"), dev("a"))),
			},
			expect: map[string][]string{"s1": {"a"}, "s2": {"b own"}, "s3": {"a"}},
		},
		{
			name: "TR-08 update-slices-no-patches",
			steps: []step{
				setSlice(slice("s1", dev("a"))), setSlice(slice("s2", dev("b"))),
				setSlice(slice("s1", dev("a"), dev("c", own))), setSlice(slice("s2")),
			},
			expect: map[string][]string{"s1": {"a", "c own"}, "s2": nil},
		},
		{
			name: "TR-05 K06 delete-slices",
			steps: []step{
				setSlice(slice("s1", dev("a"))), deleteSlice("s1"), setRule(rule("r", every())),
				setSlice(slice("s2", dev("b"))), missSlice("s2"), setSlice(slice("s2", uid("again"), dev("c"))),
			},
			expect: map[string][]string{"s2": {"c r"}},
		},
		{
			name: "TR-01 TR-02 patch-all-slices",
			steps: []step{
				setSlice(slice("s1", dev("a"))), setSlice(slice("s2", in("e", "q"), dev("b"), dev("c"))),
				setRule(rule("r", every())), setSlice(slice("s3", in("f", "p"))),
			},
			expect: map[string][]string{"s1": {"a r"}, "s2": {"b r", "c r"}, "s3": nil},
		},
		{
			name: "TR-04 update-patch",
			steps: []step{
				setSlice(slice("s1", in("d", "p1"), dev("a"))), setSlice(slice("s2", in("d", "p2"), dev("a"))),
				setRule(rule("r", only("d", "p1", "-"))), setRule(rule("r", only("d", "p2", "-"))),
			},
			expect: map[string][]string{"s1": {"a"}, "s2": {"a r"}},
		},
		{
			name: "TR-04 remove-patch-known-deleted-rule",
			steps: []step{
				setSlice(slice("s1", dev("a", own))), setRule(rule("r", every())), deleteRule("r"), setRule(rule("q", only("-", "p", "-"))),
			},
			expect: map[string][]string{"s1": {"a own q"}},
		},
		{
			name: "TR-04 K06 remove-patch-unknown-deleted-rule",
			steps: []step{
				setSlice(slice("s1", dev("a", own))), setRule(rule("r", only("d", "-", "a"))), missRule("r"), setSlice(slice("s2", dev("a"))),
			},
			expect: map[string][]string{"s1": {"a own"}, "s2": {"a"}},
		},
		{
			name: "TR-01 K03 merge-taints",
			steps: []step{
				setSlice(slice("s1", dev("a", own), dev("b"))), setRule(ruleWith("r2", every(), own)),
				setRule(rule("r3", only("d", "p", "a"))), setRule(rule("r1", only("-", "-", "a"))),
			},
			expect: map[string][]string{"s1": {"a own r1 own r3", "b own"}},
		},
		{
			name: "TR-01 filter-all-criteria",
			steps: []step{
				setSlice(slice("s1", dev("a"), dev("b"))), setSlice(slice("s2", in("d", "q"), dev("a"))),
				setSlice(slice("s3", in("e", "p"), dev("a"))), setRule(rule("r", only("d", "p", "a"))),
			},
			expect: map[string][]string{"s1": {"a r", "b"}, "s2": {"a"}, "s3": {"a"}},
		},
		{
			name: "TR-05 TR-10 K01 update-patched-slice",
			steps: []step{
				setSlice(slice("s1", dev("a"), dev("b"))), setRule(rule("r", only("d", "p", "b"))),
				setSlice(slice("s1", dev("b"), dev("a"), dev("c"))), setRule(rule("q", only("d", "-", "c"))), setSlice(slice("s1", dev("b"))),
			},
			expect: map[string][]string{"s1": {"b r"}},
		},
		{
			name: "TR-02 nil-selector-matches-none",
			steps: []step{
				setSlice(slice("s1", dev("a"))), setRule(rule("r", nil)), setRule(rule("q", every())), setRule(rule("q", nil)),
			},
			expect: map[string][]string{"s1": {"a"}},
		},
		{
			name: "K09 generations and drivers",
			steps: []step{
				setSlice(slice("s1", generation(1), dev("a"))), setSlice(slice("s2", generation(2), dev("a"), dev("b"))),
				setSlice(slice("s3", in("e", "p"), dev("b"))), setRule(rule("r", only("d", "p", "b"))), setSlice(slice("s2", generation(1), dev("b"))),
			},
			expect: map[string][]string{"s1": {"a"}, "s2": {"b r"}, "s3": {"b"}},
		},
	} {
		t.Run(scenario.name, func(t *testing.T) {
			t.Parallel()
			orders(scenario.steps, func(order []step) {
				for _, settled := range []bool{true, false} {
					synctest.Test(t, func(t *testing.T) { happen(t, order, settled, scenario.expect) })
				}
			})
		})
	}
}

// happen plays one order of events before a handler that is there from the start,
// one that comes in the middle and Kubernetes' own tracker. Settled means that all
// handlers have seen an event before the next one comes.
func happen(t *testing.T, order []step, settled bool, expect map[string][]string) {
	t.Helper()
	w := newWorld(t)
	theirs := newPeer(w)
	recorders := []*recorder{w.subscribe()}
	for i, step := range order {
		step.happen(w)
		switch i {
		case 0:
			w.synced()
		case len(order) / 2:
			recorders = append(recorders, w.subscribe())
		}
		if settled {
			for _, r := range recorders {
				r.agrees(w)
			}
			theirs.agrees()
		}
	}
	for _, r := range recorders {
		r.agrees(w)
		require.True(t, r.synced())
	}
	w.lists(expect)
	w.right()
	theirs.agrees()
}
