package sliceview_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestEvents(t *testing.T) {
	t.Parallel()

	t.Run("TR-04 a rule with another selector concerns what the old and the new one select", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t).synced()
			r := w.subscribe()
			for _, s := range []string{"a", "b", "c"} {
				w.slices.set(t, slice(s, in("d", "pool-"+s), dev("gpu")))
			}
			w.rules.set(t, rule("r", only("-", "pool-a", "-")))
			r.told()
			w.rules.set(t, rule("r", only("-", "pool-b", "gpu")))
			require.ElementsMatch(t, []string{"update a [gpu]", "update b [gpu r]"}, r.told())
			w.rules.set(t, rule("r", nil))
			require.Equal(t, []string{"update b [gpu]"}, r.told())
			w.lists(map[string][]string{"a": {"gpu"}, "b": {"gpu"}, "c": {"gpu"}})
		})
	})

	for _, tombstone := range []bool{false, true} {
		name := "TR-04 a rule that is deleted gives the original back"
		if tombstone {
			name = "TR-04 K06 a rule whose deletion was missed gives the original back"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t).synced()
				r := w.subscribe()
				original := slice("s", dev("gpu", taint("own")))
				w.slices.set(t, original)
				w.slices.set(t, slice("other", in("e", "p"), dev("gpu")))
				w.rules.set(t, rule("r", only("d", "-", "-")))
				r.told()
				w.rules.remove(t, "r", tombstone)
				require.Equal(t, []string{"update s [gpu own]"}, r.told())
				require.Same(t, original, r.held["s"])
			})
		})

		name = "TR-05 a slice that is deleted goes as it was last seen"
		if tombstone {
			name = "TR-05 K06 a slice whose deletion was missed goes as it was last seen"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t).synced()
				r := w.subscribe()
				w.slices.set(t, slice("s", dev("gpu", taint("own"))))
				w.rules.set(t, rule("r", every()))
				r.told()
				w.slices.remove(t, "s", tombstone)
				require.Equal(t, []string{"delete s [gpu own r]"}, r.told())
				w.lists(map[string][]string{})
				w.rules.remove(t, "r", tombstone)
				require.Empty(t, r.told())
			})
		})
	}

	t.Run("TR-05 devices that come and go gain and lose what rules say of them", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t).synced()
			r := w.subscribe()
			w.rules.set(t, rule("r", only("d", "-", "gpu-1")))
			w.slices.set(t, slice("s", dev("gpu-0")))
			require.Equal(t, []string{"add s [gpu-0]"}, r.told())
			w.slices.set(t, slice("s", dev("gpu-1"), dev("gpu-0")))
			require.Equal(t, []string{"update s [gpu-1 r gpu-0]"}, r.told())
			w.slices.set(t, slice("s", dev("gpu-0"), dev("gpu-2")))
			require.Equal(t, []string{"update s [gpu-0 gpu-2]"}, r.told())
		})
	})

	t.Run("TR-06 a slice that is written is always told of, also when nothing is new", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t).synced()
			r := w.subscribe()
			s := slice("s", dev("gpu"))
			w.slices.set(t, s)
			require.Equal(t, []string{"add s [gpu]"}, r.told())
			w.slices.set(t, slice("s", dev("gpu")))
			require.Equal(t, []string{"update s [gpu]"}, r.told())
			w.slices.set(t, slice("s", dev("gpu")))
			w.rules.set(t, rule("elsewhere", only("e", "-", "-")))
			require.Equal(t, []string{"update s [gpu]"}, r.told())
			resync := r.held["s"]
			w.slices.set(t, resync)
			require.Equal(t, []string{"update s [gpu]"}, r.told())
			require.Same(t, resync, r.held["s"])
		})
	})

	t.Run("TR-06 a rule is told of only where it changes a taint", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t).synced()
			r := w.subscribe()
			w.slices.set(t, slice("s", dev("gpu-0"), dev("gpu-1")))
			w.slices.set(t, slice("t", in("e", "p"), dev("gpu-0")))
			r.told()
			w.rules.set(t, rule("r", only("-", "-", "gpu-2")))
			require.Empty(t, r.told())
			w.rules.set(t, rule("r", only("d", "-", "gpu-1")))
			require.Equal(t, []string{"update s [gpu-0 gpu-1 r]"}, r.told())

			// A status, a label, the same words again.
			again := rule("r", only("d", "-", "gpu-1"))
			again.Status.Conditions = []metav1.Condition{{Type: "EvictionInProgress"}}
			w.rules.set(t, again)
			require.Empty(t, r.told())
			// Another selector for the same device.
			w.rules.set(t, rule("r", only("d", "p", "gpu-1")))
			require.Empty(t, r.told())

			later := taint("r")
			later.TimeAdded = new(metav1.NewTime(start.Add(time.Second)))
			w.rules.set(t, ruleWith("r", only("d", "p", "gpu-1"), later))
			require.Equal(t, []string{"update s [gpu-0 gpu-1 r]"}, r.told())
			later.Value = "v"
			w.rules.set(t, ruleWith("r", only("d", "p", "gpu-1"), later))
			require.Equal(t, []string{"update s [gpu-0 gpu-1 r]"}, r.told())
			later.Effect = "None"
			w.rules.set(t, ruleWith("r", only("d", "p", "gpu-1"), later))
			require.Equal(t, []string{"update s [gpu-0 gpu-1 r]"}, r.told())
			r.agrees(w)
		})
	})

	t.Run("TR-06 two rules that taint alike may change places unseen", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t).synced()
			r := w.subscribe()
			w.slices.set(t, slice("s", dev("gpu-0", taint("own")), dev("gpu-1")))
			require.Equal(t, []string{"add s [gpu-0 own gpu-1]"}, r.told())
			w.rules.set(t, ruleWith("a", every(), taint("k")))
			require.Equal(t, []string{"update s [gpu-0 own k gpu-1 k]"}, r.told())
			// Together they are one change, from one rule to another.
			w.view.SetRule(ruleWith("b", every(), taint("k")))
			w.view.DeleteRule("a")
			for _, event := range r.told() {
				require.Contains(t, []string{"update s [gpu-0 own k k gpu-1 k k]", "update s [gpu-0 own k gpu-1 k]"}, event)
			}
			r.agrees(w)
			w.lists(map[string][]string{"s": {"gpu-0 own k", "gpu-1 k"}})
		})
	})

	t.Run("a slice that was replaced under its name goes and comes", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t).synced()
			r := w.subscribe()
			w.slices.set(t, slice("s", dev("gpu-0")))
			r.told()
			w.slices.set(t, slice("s", uid("another"), dev("gpu-1")))
			require.Equal(t, []string{"delete s [gpu-0]", "add s [gpu-1]"}, r.told())
			r.agrees(w)
		})
	})

	t.Run("a slice that moves to another pool is found there and no more where it was", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t).synced()
			r := w.subscribe()
			w.slices.set(t, slice("s", in("d", "p"), dev("gpu")))
			w.slices.set(t, slice("s", in("e", "q"), dev("gpu")))
			r.told()
			w.rules.set(t, rule("r", only("d", "-", "-")))
			require.Empty(t, r.told())
			w.rules.set(t, rule("r", only("e", "q", "gpu")))
			require.Equal(t, []string{"update s [gpu r]"}, r.told())
		})
	})
}

func TestSubscribers(t *testing.T) {
	t.Parallel()

	t.Run("TR-09 nothing is told before both informers have been read, then all is initial", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			r := w.subscribe()
			w.slices.set(t, slice("b", dev("gpu")))
			w.slices.set(t, slice("a", dev("gpu")))
			w.slices.set(t, slice("gone", dev("gpu")))
			close(w.slices.synced)
			require.Empty(t, r.told())
			require.False(t, w.view.HasSynced())
			w.rules.set(t, rule("r", every()))
			w.slices.remove(t, "gone", false)
			require.Empty(t, r.told())
			require.False(t, r.synced())
			close(w.rules.synced)
			require.Equal(t, []string{"initial a [gpu r]", "initial b [gpu r]"}, r.told())
			require.True(t, w.view.HasSynced())
			require.True(t, r.synced())
			w.slices.set(t, slice("c", dev("gpu")))
			require.Equal(t, []string{"add c [gpu r]"}, r.told())
		})
	})

	t.Run("TR-09 who comes late is given all slices as initial ones", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t).synced()
			w.slices.set(t, slice("b", dev("gpu")))
			w.slices.set(t, slice("a", dev("gpu")))
			w.rules.set(t, rule("r", every()))
			synctest.Wait()
			r := w.subscribe()
			require.Equal(t, []string{"initial a [gpu r]", "initial b [gpu r]"}, r.told())
			require.True(t, r.synced())
		})
	})

	t.Run("TR-09 where there is nothing, handlers are synced at once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			early := w.subscribe()
			synctest.Wait()
			require.False(t, early.synced())
			w.synced()
			synctest.Wait()
			late := w.subscribe()
			synctest.Wait()
			require.True(t, early.synced())
			require.True(t, late.synced())
		})
	})

	t.Run("a handler that is removed is told nothing more", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t).synced()
			r := &recorder{}
			registration, err := w.view.AddEventHandler(r)
			require.NoError(t, err)
			other := w.subscribe()
			require.NoError(t, w.view.RemoveEventHandler(registration))
			require.NoError(t, w.view.RemoveEventHandler(registration))
			w.slices.set(t, slice("s", dev("gpu")))
			require.Equal(t, []string{"add s [gpu]"}, other.told())
			require.Empty(t, r.told())
			require.Error(t, w.view.RemoveEventHandler(w.registrationElsewhere()))
		})
	})
}

// registrationElsewhere is one that the view knows nothing of.
func (w *world) registrationElsewhere() registration { return registration{w.slices} }
