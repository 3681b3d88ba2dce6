package ratelimit

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return noon.Add(d) }

func key(name string) tracker.Key {
	return tracker.Key{Namespace: "ns", Name: name, UID: types.UID(name)}
}

func rate(policy string, perSecond, burst int) Limit {
	return Limit{Policy: types.UID(policy), PerSecond: perSecond, Burst: burst}
}

// goes reports whether a pod may go, which then leaves at once. Else it waits.
func goes(q *Queue, now time.Time, name string, limits ...Limit) bool {
	ok := q.Ask(now, key(name), limits)
	if ok {
		q.Leave(now, key(name), true)
	}
	return ok
}

func random(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, seed))
}

// pods returns names, in order.
func pods(prefix string, n int) []string {
	names := make([]string, 0, n)
	for i := range n {
		names = append(names, prefix+strconv.Itoa(i))
	}
	return names
}

// requirePace fails if more pods left in any time than burst + rate*t. From the i-th to
// the j-th that is j-i+1 <= burst + rate*(t(j)-t(i)), so what matters is the least
// i - rate*t(i) up to then.
func requirePace(t *testing.T, limit Limit, left []time.Time) {
	t.Helper()
	least := math.Inf(1)
	for i, at := range left {
		ahead := float64(i) - at.Sub(left[0]).Seconds()*float64(limit.PerSecond)
		least = min(least, ahead)
		if ahead-least+1 > float64(limit.Burst)+1e-6 {
			require.Failf(t, "too fast", "%+v: %d pods too many by %s", limit, i, at)
		}
	}
}

// drain runs the lines until nobody waits, and returns when each pod went. Those who are
// called ask at once, with the limits that asks has for them.
func drain(t *testing.T, q *Queue, now time.Time, asks func(tracker.Key) []Limit) map[string]time.Time {
	t.Helper()
	went := map[string]time.Time{}
	for range 1_000_000 {
		called, in := q.Next(now)
		for _, k := range called {
			require.True(t, q.Ask(now, k, asks(k)), "%s was called and cannot go", k.Name)
			q.Leave(now, k, true)
			went[k.Name] = now
		}
		if in == 0 {
			return went
		}
		if len(called) == 0 {
			now = now.Add(in)
		}
	}
	require.Fail(t, "pods wait for ever")
	return nil
}
