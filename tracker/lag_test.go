package tracker_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/tracker"
)

// TestWhatAWriteChangesDoesNotDependOnALag compares a tracker that has seen the last
// write of an object with one that has not, and is told how the object stands.
func TestWhatAWriteChangesDoesNotDependOnALag(t *testing.T) {
	t.Parallel()
	seed := uint64(environment(t, seedEnv, int(time.Now().UnixNano())))
	w := newWorld(rand.New(rand.NewPCG(seed, seed)))
	behind := tracker.New()
	both := []*tracker.Tracker{w.tracker, behind}
	differing := 0
	for _, tr := range both {
		tr.SetDevicesKnown(true)
	}
	for i := range 4_000 {
		what := fmt.Sprintf("seed %d, operation %d", seed, i)
		pod, claim := w.pod(), w.claim()
		version := strconv.Itoa(i + 1)
		pod.ResourceVersion, claim.ResourceVersion = version, version
		for _, tr := range both {
			tr.SetPod(pod)
			tr.SetClaim(claim)
		}
		var want, got []tracker.Change
		var catchUp func()
		switch i % 3 {
		case 0:
			old, now := w.node(), w.node()
			now.Name, now.UID, old.ResourceVersion = old.Name, old.UID, version
			w.tracker.SetNode(old, start)
			want, got = w.tracker.IfNode(now, start), behind.IfNodeWas(old, now, start)
			catchUp = func() { behind.SetNode(old, start) }
		case 1:
			old, now := w.rule(), w.rule()
			now.Name, now.UID, old.ResourceVersion = old.Name, old.UID, version
			w.tracker.SetRule(old, start)
			want, got = w.tracker.IfRule(now, start), behind.IfRuleWas(&old, now, start)
			catchUp = func() { behind.SetRule(old, start) }
		default:
			old, now := w.slice(), w.slice()
			now.Name, now.UID, now.Driver, now.Pool, old.ResourceVersion = old.Name, old.UID, old.Driver, old.Pool, version
			w.tracker.SetSlice(old, start)
			want, got = w.tracker.IfSlice(now, start), behind.IfSliceWas(old, now, start)
			catchUp = func() { behind.SetSlice(old, start) }
		}
		require.Equal(t, textOfChanges(want), textOfChanges(got), what)
		catchUp()
		require.Equal(t, w.tracker.Live(), behind.Live(), what)
		differing += len(want)
	}
	require.Positive(t, differing)
}

func textOfChanges(changes []tracker.Change) []string {
	var texts []string
	for _, change := range changes {
		texts = append(texts, fmt.Sprintf("%s: %s -> %s", change.Before.Pod.UID, textOf(change.Before), textOf(change.After)))
	}
	return texts
}

func TestARuleThatIsKnownAndCreatedAnewCountsFromNothing(t *testing.T) {
	t.Parallel()
	tr := fleet(1, 1)
	known, ok := tr.Rule("r0")
	require.True(t, ok)
	changes := tr.IfRuleWas(nil, known, start)
	require.Len(t, changes, 1, "the deletion of the rule has not been seen yet")
	require.Empty(t, changes[0].Before.Devices)
	require.Len(t, changes[0].After.Devices, 1)
}
