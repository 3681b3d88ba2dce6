package tracker_test

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/tracker"
)

// TestConcurrentlyK02 writes each kind of object from a goroutine of its own while
// others ask, and compares the end with a tracker that was told the same in turn.
func TestConcurrentlyK02(t *testing.T) {
	t.Parallel()
	const rounds = 300
	w := newWorld(rand.New(rand.NewPCG(1, 2)))
	var writes [5][]func(*tracker.Tracker)
	for i := range rounds {
		version := strconv.Itoa(i + 1)
		s, r, c, p, n := w.slice(), w.rule(), w.claim(), w.pod(), w.node()
		s.ResourceVersion, r.ResourceVersion, c.ResourceVersion, p.ResourceVersion, n.ResourceVersion = version, version, version, version, version
		writes[0] = append(writes[0], func(tr *tracker.Tracker) { tr.SetSlice(s, start) })
		writes[1] = append(writes[1], func(tr *tracker.Tracker) { tr.SetRule(r, start) })
		writes[2] = append(writes[2], func(tr *tracker.Tracker) { tr.SetClaim(c) })
		writes[3] = append(writes[3], func(tr *tracker.Tracker) { tr.SetPod(p) })
		writes[4] = append(writes[4], func(tr *tracker.Tracker) { tr.SetNode(n, start) })
	}
	together, inTurn := devicesKnown(), devicesKnown()
	done := make(chan struct{})
	var writers, readers sync.WaitGroup
	for _, list := range writes {
		writers.Go(func() {
			for _, write := range list {
				write(together)
			}
		})
		for _, write := range list {
			write(inTurn)
		}
	}
	for i, ask := range []func(*world){
		func(*world) { _, _ = together.Lookup(podKey(0, 0)) },
		func(*world) { _, _ = together.Impact("r0") },
		func(w *world) { _, _ = together.Untolerated(w.claim().Devices, start) },
		func(w *world) { together.IfRule(w.rule(), start) },
		func(w *world) { together.IfSlice(w.slice(), start) },
		func(w *world) { together.IfNode(w.node(), start) },
		func(*world) { together.TaintedDevices() },
		func(*world) { together.Exposed() },
	} {
		own := newWorld(rand.New(rand.NewPCG(3, uint64(i))))
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					ask(own)
				}
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
	for i := range modelPods {
		for incarnation := range 2 {
			got, _ := together.Lookup(podKey(i, incarnation))
			want, _ := inTurn.Lookup(podKey(i, incarnation))
			require.Equal(t, textOf(want), textOf(got))
		}
	}
}
