package ratelimit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWhoStepsAsideKeepsItsPlace(t *testing.T) {
	t.Parallel()
	limit := line("p", 1, 1)
	t.Run("with a ticket, which is given back", func(t *testing.T) {
		t.Parallel()
		l := NewLines()
		ticket, ok := l.Ask(noon, key("a"), []Limit{limit})
		require.True(t, ok)
		require.False(t, goes(l, noon, "b", limit))
		ticket.StepAside(noon)
		require.True(t, goes(l, noon, "b", limit), "nobody waits for it")
		require.False(t, goes(l, noon, "c", limit))
		require.False(t, goes(l, noon, "a", limit))
		called, _, _ := l.Next(after(time.Second))
		require.Len(t, called, 1)
		require.Equal(t, key("a"), called[0])
	})
	t.Run("when it was called", func(t *testing.T) {
		t.Parallel()
		l := NewLines()
		require.True(t, goes(l, noon, "x", limit))
		require.False(t, goes(l, noon, "a", limit))
		require.False(t, goes(l, noon, "b", limit))
		called, _, _ := l.Next(after(time.Second))
		require.Equal(t, key("a"), called[0])
		l.StepAside(key("a"))
		called, _, _ = l.Next(after(time.Second))
		require.Equal(t, key("b"), called[0], "its token is nobody's")
		require.True(t, goes(l, after(time.Second), "b", limit))
		require.False(t, goes(l, after(time.Second), "c", limit))
		require.False(t, goes(l, after(time.Second), "a", limit))
		called, _, _ = l.Next(after(2 * time.Second))
		require.Equal(t, key("a"), called[0])
	})
	t.Run("until it leaves", func(t *testing.T) {
		t.Parallel()
		l := NewLines()
		require.True(t, goes(l, noon, "x", limit))
		require.False(t, goes(l, noon, "a", limit))
		l.StepAside(key("a"))
		l.Leave(noon, key("a"))
		require.Empty(t, l.aside)
		require.Zero(t, l.Len())
	})
}
