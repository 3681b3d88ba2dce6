package ratelimit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWhoStepsAsideKeepsItsPlace(t *testing.T) {
	t.Parallel()
	limit := rate("p", 1, 1)
	t.Run("with tokens, which are returned", func(t *testing.T) {
		t.Parallel()
		q := NewQueue()
		require.True(t, q.Ask(noon, key("a"), []Limit{limit}))
		require.False(t, goes(q, noon, "b", limit))
		q.StepAside(noon, key("a"))
		require.True(t, goes(q, noon, "b", limit), "no pod waits for it")
		require.False(t, goes(q, noon, "c", limit))
		require.False(t, goes(q, noon, "a", limit))
		called, _ := q.Next(after(time.Second))
		require.Len(t, called, 1)
		require.Equal(t, key("a"), called[0])
	})
	t.Run("when it was called", func(t *testing.T) {
		t.Parallel()
		q := NewQueue()
		require.True(t, goes(q, noon, "x", limit))
		require.False(t, goes(q, noon, "a", limit))
		require.False(t, goes(q, noon, "b", limit))
		called, _ := q.Next(after(time.Second))
		require.Equal(t, key("a"), called[0])
		q.StepAside(noon, key("a"))
		called, _ = q.Next(after(time.Second))
		require.Equal(t, key("b"), called[0], "its token is available")
		require.True(t, goes(q, after(time.Second), "b", limit))
		require.False(t, goes(q, after(time.Second), "c", limit))
		require.False(t, goes(q, after(time.Second), "a", limit))
		called, _ = q.Next(after(2 * time.Second))
		require.Equal(t, key("a"), called[0])
	})
	t.Run("until it leaves", func(t *testing.T) {
		t.Parallel()
		q := NewQueue()
		require.True(t, goes(q, noon, "x", limit))
		require.False(t, goes(q, noon, "a", limit))
		q.StepAside(noon, key("a"))
		q.Leave(noon, key("a"), false)
		require.Zero(t, q.Len())
		require.False(t, goes(q, noon, "b", limit))
		require.False(t, goes(q, noon, "a", limit))
		called, _ := q.Next(after(time.Second))
		require.Equal(t, key("b"), called[0], "it is the last now")
	})
}

func TestOnlyPodsThatAreToBeCalledWait(t *testing.T) {
	t.Parallel()
	q, a := NewQueue(), rate("a", 1, 1)
	require.False(t, q.Waits(key("first")), "it has not asked")
	require.True(t, goes(q, noon, "first", a))
	require.False(t, q.Waits(key("first")), "it goes")
	require.False(t, goes(q, noon, "second", a))
	require.True(t, q.Waits(key("second")))
	called, _ := q.Next(after(time.Second))
	require.Equal(t, key("second"), called[0])
	require.False(t, q.Waits(key("second")), "it is called")
	q.StepAside(after(time.Second), key("second"))
	require.False(t, q.Waits(key("second")), "it stepped aside")
}
