package sliceview_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// A start that takes longer, or more memory, is given up and not reported.
	timeBox   = 5 * time.Second
	memoryBox = 1 << 30
)

// BenchmarkInitialSync measures how long it takes from the first event of the
// informers until a handler that waits has been told of every slice, 64 devices
// each, where every rule taints every device.
func BenchmarkInitialSync(b *testing.B) {
	for _, size := range []struct{ rules, slices int }{{100, 100}, {1000, 1000}} {
		for _, first := range []string{"rules", "slices"} {
			for _, arm := range arms {
				b.Run(fmt.Sprintf("rules=%d/slices=%d/%s-first/%s", size.rules, size.slices, first, arm.name), func(b *testing.B) {
					events := startEvents(size.rules, size.slices, first)
					b.ReportAllocs()
					for b.Loop() {
						b.StopTimer()
						s := newSyncing(b, arm, size.slices)
						b.StartTimer()
						problem := s.read(events)
						b.StopTimer()
						s.stop()
						if problem != "" && arm.name == arms[0].name {
							b.Fatal(problem) // PT2
						}
						if problem != "" {
							// Kubernetes' tracker does not finish the larger sizes in any time that one
							// would wait for, and a time that was cut short is no figure. go test keeps to
							// itself why a benchmark is skipped.
							fmt.Printf("# %s: %s\n", b.Name(), problem)
							b.Skip(problem)
						}
						b.StartTimer()
					}
				})
			}
		}
	}
}

// startEvent is an object of a first list.
type startEvent struct {
	object  metav1.Object
	isSlice bool
}

func startEvents(rules, slicesCount int, first string) []startEvent {
	events := make([]startEvent, 0, rules+slicesCount)
	for i := range rules {
		events = append(events, startEvent{object: rule("rule-"+strconv.Itoa(i), every())})
	}
	for i := range slicesCount {
		events = append(events, startEvent{object: gpuSlice(i, poolOf(i)), isSlice: true})
	}
	if first == "slices" {
		events = slices.Concat(events[rules:], events[:rules])
	}
	return events
}

// syncing is one of the two at its start.
type syncing struct {
	*world
	told *counter
	stop func()
}

func newSyncing(b *testing.B, arm arm, slices int) *syncing {
	b.Helper()
	w := &world{tb: b, slices: newSliceSource(), rules: newRuleSource()}
	told := &counter{reached: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(b.Context())
	subscribe, ended := arm.begin(ctx, w)
	if arm.name == "tollgate" {
		// The peer tells its handlers of slices again and again until it has synced; it is
		// enough that it is done.
		told.expected = slices
	}
	subscribe(told.handler())
	return &syncing{world: w, told: told, stop: func() {
		cancel()
		require.NoError(b, <-ended)
	}}
}

// read feeds the events, and says what was wrong if they had to be cut short.
func (s *syncing) read(events []startEvent) string {
	s.tb.Helper()
	begun := time.Now()
	for i, event := range events {
		into := s.rules
		if event.isSlice {
			into = s.slices
		}
		into.set(s.tb, event.object)
		if took := time.Since(begun); took > timeBox {
			return fmt.Sprintf("given up after %v, with %d of %d objects read", took.Round(time.Second), i+1, len(events))
		}
		if i%10 == 0 && heap() > memoryBox && settledHeap() > memoryBox {
			return fmt.Sprintf("given up at 1 GiB of heap after %v, with %d of %d objects read", time.Since(begun).Round(time.Millisecond), i+1, len(events))
		}
	}
	close(s.slices.synced)
	close(s.rules.synced)
	if s.told.expected > 0 {
		<-s.told.reached
	}
	return ""
}

func heap() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
