package evictor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tollgate-dev/tollgate/tracker"
)

func newConfirmer() *confirmer {
	clk := clocktesting.NewFakePassiveClock(noon)
	c := &confirmer{
		tracker: tracker.New(), clock: clk, local: clk,
		maxAge: DefaultMaxNodeAge, patience: DefaultAttemptTimeout, read: map[string]reading{},
	}
	c.tracker.SetNode(tracker.NodeOf(readNode()), noon)
	return c
}

func readNode() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "1"}}
}

func TestConfirmerFresh(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		age  time.Duration
		want bool
	}{
		{"INV-3 what was read just now is fresh", 0, true},
		{"INV-3 what was read as long ago as is allowed is fresh", DefaultMaxNodeAge, true},
		{"H05 what was read longer ago is not, even before it was swept", DefaultMaxNodeAge + 1, false},
		{"H05 what was read in the future, by a clock that was set back, is not", -time.Second, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newConfirmer()
			require.False(t, c.fresh("n", c.maxAge))
			c.saw(readNode(), "u", instantOf(noon.Add(-test.age)))
			require.Equal(t, test.want, c.fresh("n", c.maxAge))
			require.False(t, c.fresh("m", c.maxAge))
			c.sweep()
			require.Equal(t, test.want, len(c.read) == 1)
		})
	}

	t.Run("H05 what was read before a suspend is not, although the monotonic clock stood still", func(t *testing.T) {
		t.Parallel()
		c := newConfirmer()
		c.saw(readNode(), "u", instant{monotonic: noon, wall: noon.Add(-30 * time.Minute)})
		require.False(t, c.fresh("n", c.maxAge))
		c.sweep()
		require.Empty(t, c.read)
	})

	t.Run("INV-3 what was read of a node says nothing about one created anew under its name", func(t *testing.T) {
		t.Parallel()
		c := newConfirmer()
		c.saw(readNode(), "u", instantOf(noon))
		require.True(t, c.fresh("n", c.maxAge))
		c.tracker.SetNode(tracker.Node{Name: "n", UID: "another", ResourceVersion: "2"}, noon)
		require.False(t, c.fresh("n", c.maxAge))
	})

	t.Run("G03 a node that is not there any more was not read just now, whatever a lagging watch brings back", func(t *testing.T) {
		t.Parallel()
		c := newConfirmer()
		c.saw(readNode(), "u", instantOf(noon))
		c.gone("n", "u")
		c.tracker.SetNode(tracker.NodeOf(readNode()), noon)
		require.False(t, c.fresh("n", c.maxAge))
	})
}
