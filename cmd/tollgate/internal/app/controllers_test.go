package app

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSinceWhenNobodyLed(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	require.Equal(t, now.Add(-10*time.Minute), leaderlessAt(time.Time{}, now),
		"where nobody was heard of, nodes of years ago are not new")
	require.Equal(t, now.Add(-time.Hour-2*time.Second), leaderlessAt(now.Add(-time.Hour-500*time.Millisecond), now))
}
