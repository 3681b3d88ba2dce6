package sliceview_test

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

// A rule event may be handled when the cache of slices is ahead of the slice
// events. Kubernetes' own tracker reads that cache and falls over (U14).
func TestK01CacheAheadOfEvents(t *testing.T) {
	t.Parallel()
	for _, change := range []struct {
		name    string
		next    *resourcev1.ResourceSlice
		crashes bool
	}{
		{"TR-10 K01 a slice grows while a rule event is in flight", slice("s", dev("a"), dev("b"), dev("c")), true},
		{"K01 a slice shrinks while a rule event is in flight", slice("s", dev("a")), false},
		{"K01 the devices of a slice change places while a rule event is in flight", slice("s", dev("b"), dev("a")), false},
	} {
		t.Run(change.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t).synced()
				peer := newPeer(w)
				r := w.subscribe()
				w.slices.set(t, slice("s", dev("a"), dev("b")))
				w.rules.set(t, rule("r", every()))
				ours, theirs := w.rules.handlers[0], w.rules.handlers[1]

				tell := w.slices.store(t, change.next)
				added := rule("q", only("d", "p", "a"))
				require.NoError(t, w.rules.GetIndexer().Add(added))
				ours.OnAdd(added, false)
				if change.crashes {
					require.Panics(t, func() { theirs.OnAdd(added, false) })
				} else {
					theirs.OnAdd(added, false)
				}
				r.agrees(w)
				w.lists(map[string][]string{"s": {"a q r", "b r"}})
				tell()
				r.agrees(w)
				w.right()
				peer.agrees()
			})
		})
	}
}

func TestK07Handlers(t *testing.T) {
	t.Parallel()

	t.Run("K07 a handler that does not return keeps nobody waiting, and then is told the latest", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t).synced()
			blocked := make(chan struct{})
			slow := &recorder{held: map[string]*resourcev1.ResourceSlice{}}
			wait := sync.OnceFunc(func() { <-blocked })
			_, err := w.view.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
				AddFunc:    func(obj any) { wait(); slow.OnAdd(obj, false) },
				UpdateFunc: slow.OnUpdate,
				DeleteFunc: slow.OnDelete,
			})
			require.NoError(t, err)
			quick := w.subscribe()
			w.slices.set(t, slice("s0", dev("gpu")))
			require.Len(t, quick.told(), 1)
			for round := range 100 {
				for i := range 3 {
					w.slices.set(t, slice("s"+strconv.Itoa(i), dev("gpu-"+strconv.Itoa(round))))
				}
				w.rules.set(t, rule("r"+strconv.Itoa(round%5), every()))
				require.NotEmpty(t, quick.told())
			}
			w.slices.remove(t, "s1", false)
			quick.agrees(w)
			require.Empty(t, slow.told())
			close(blocked)
			require.Equal(t, []string{
				"add s0 [gpu]", "update s0 [gpu-99 r0 r1 r2 r3 r4]", "add s2 [gpu-99 r0 r1 r2 r3 r4]",
			}, slow.told())
			slow.agrees(w)
		})
	})

	t.Run("K07 a handler that panics is logged, and it and all others go on", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var lines []string
			w := &world{tb: t, slices: newSliceSource(), rules: newRuleSource(), view: sliceview.New()}
			require.NoError(t, w.view.Attach(w.slices, w.rules))
			w.run(logr.NewContext(t.Context(), funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})))
			var seen []string
			broken := func(kind string) { seen = append(seen, kind); panic("broken by " + kind) }
			registration, err := w.view.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
				AddFunc:    func(any) { broken("add") },
				UpdateFunc: func(any, any) { broken("update") },
				DeleteFunc: func(any) { broken("delete") },
			})
			require.NoError(t, err)
			sound := w.subscribe()
			w.slices.set(t, slice("s", dev("gpu")))
			w.synced()
			require.True(t, registration.HasSynced())
			w.rules.set(t, rule("r", every()))
			synctest.Wait()
			w.slices.set(t, slice("s", uid("another"), dev("gpu")))
			sound.agrees(w)
			require.Equal(t, []string{"add", "update", "delete", "add"}, seen)
			require.Len(t, lines, 4)
			for _, line := range lines {
				require.True(t, strings.Contains(line, "broken by") && strings.Contains(line, "faults_test.go"), line)
			}
		})
	})

	t.Run("K07 a handler may use the view that calls it", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t).synced()
			late := &recorder{held: map[string]*resourcev1.ResourceSlice{}}
			_, err := w.view.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) {
				if len(w.view.List()) == 1 {
					_, err := w.view.AddEventHandler(late)
					require.NoError(t, err)
				}
			}})
			require.NoError(t, err)
			w.slices.set(t, slice("s", dev("gpu")))
			late.agrees(w)
			require.Equal(t, []string{"initial s [gpu]"}, late.told())
		})
	})
}

// Names are compared whole and never joined, so that no two devices are taken for
// one another.
func FuzzK05Names(f *testing.F) {
	long := strings.Repeat("x", 253)
	f.Add("d", "p", "n", "d", "p", "n")
	f.Add("d/p", "n", "x", "d", "p/n", "x")
	f.Add("d", "p/x", "n", "d", "p", "x/n")
	f.Add("*", "*", "*", "d", "p", "n")
	f.Add(long, long, long, long, long, long+"x")
	f.Add("größe", "池", "ünï", "größe", "池", "u\u0308nï")
	f.Add("", "", "", "d", "", "n")
	f.Fuzz(func(t *testing.T, driver, pool, device, otherDriver, otherPool, otherDevice string) {
		w := &world{tb: t, slices: newSliceSource(), rules: newRuleSource(), view: sliceview.New()}
		require.NoError(t, w.view.Attach(w.slices, w.rules))
		rules := 0
		for range 2 {
			for asks := range 8 {
				selector := &resourcev1.DeviceTaintSelector{}
				if asks&1 != 0 {
					selector.Driver = new(driver)
				}
				if asks&2 != 0 {
					selector.Pool = new(pool)
				}
				if asks&4 != 0 {
					selector.Device = new(device)
				}
				w.rules.set(t, rule("r"+strconv.Itoa(rules), selector))
				rules++
			}
			// More slices than are searched one by one.
			for i := range 6 {
				w.slices.set(t, slice("s"+strconv.Itoa(i), in(driver, pool), dev(device)))
				w.slices.set(t, slice("t"+strconv.Itoa(i), in(otherDriver, otherPool), dev(otherDevice), dev(device)))
			}
			w.right()
			driver, pool, device = otherDriver, otherPool, otherDevice
		}
	})
}
