package checks

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/tracker"
)

func TestG18BudgetsAreAskedByFewAtOnce(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	key := func(n int) tracker.Key { return tracker.Key{Namespace: "ns", Name: strconv.Itoa(n)} }
	// full returns a budget that as many ask as may, from key 0, with more that wait.
	full := func(t *testing.T, waiting int) *Budgets {
		t.Helper()
		d := NewBudgets(BudgetOptions{Pending: func(tracker.Key) bool { return true }})
		for i := range askedAtOnce + waiting {
			require.Equal(t, i < askedAtOnce, d.enter(now, "b", key(i)))
		}
		return d
	}

	t.Run("the next is told when one leaves, and nobody takes its place", func(t *testing.T) {
		t.Parallel()
		d := full(t, 2)
		require.False(t, d.enter(now, "b", key(askedAtOnce)), "asking again changes nothing")
		require.Equal(t, []tracker.Key{key(askedAtOnce)}, d.leave(now, "b"))
		require.False(t, d.enter(now, "b", key(99)))
		require.False(t, d.enter(now, "b", key(askedAtOnce+1)))
		require.True(t, d.enter(now, "b", key(askedAtOnce)))
	})

	t.Run("a place is not kept for ever", func(t *testing.T) {
		t.Parallel()
		d := full(t, 2)
		require.Len(t, d.leave(now, "b"), 1)
		late := now.Add(comesWithin + time.Nanosecond)
		require.Equal(t, []tracker.Key{key(askedAtOnce + 1)}, d.leave(late, "b")[:1])
		require.True(t, d.enter(late, "b", key(askedAtOnce)), "who comes late may find room all the same")
		require.False(t, d.enter(late, "b", key(99)))
	})

	t.Run("whoever need not leave any more is passed over", func(t *testing.T) {
		t.Parallel()
		d := full(t, 10)
		d.options.Pending = func(k tracker.Key) bool { return k == key(askedAtOnce+9) }
		require.Equal(t, []tracker.Key{key(askedAtOnce + 9)}, d.leave(now, "b"))
	})

	t.Run("budgets have nothing to do with each other", func(t *testing.T) {
		t.Parallel()
		d := full(t, 1)
		require.True(t, d.enter(now, "other", key(askedAtOnce)))
		require.Empty(t, d.leave(now, "other"))
		require.Len(t, d.asked, 1, "nothing is left of the other")
	})
}

// TestG18EveryPodAsksItsBudget has pods come, leave and stay away at random.
func TestG18EveryPodAsksItsBudget(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, seed))
	for range 100 {
		now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		wants, inside := map[tracker.Key]bool{}, 0
		d := NewBudgets(BudgetOptions{Pending: func(k tracker.Key) bool { return wants[k] }})
		enter := func(k tracker.Key) {
			if wants[k] && d.enter(now, "b", k) {
				delete(wants, k)
				inside++
			}
		}
		for i := range 50 {
			wants[tracker.Key{Name: strconv.Itoa(i)}] = true
		}
		for k := range wants {
			enter(k)
		}
		for range 200 {
			require.LessOrEqual(t, inside, askedAtOnce)
			now = now.Add(time.Duration(r.Int64N(int64(comesWithin))))
			if inside == 0 {
				for k := range wants { // each looks again by itself sooner or later
					enter(k)
				}
				continue
			}
			inside--
			for _, k := range d.leave(now, "b") {
				switch r.IntN(5) {
				case 0:
					delete(wants, k)
				case 1: // it comes too late
				default:
					enter(k)
				}
			}
		}
		require.Empty(t, wants)
		require.Zero(t, inside)
		now = now.Add(comesWithin + 1)
		require.True(t, d.enter(now, "other", tracker.Key{}))
		d.leave(now, "other")
		require.Empty(t, d.asked, "nothing is left")
	}
}
