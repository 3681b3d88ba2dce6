package evictor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tollgate-dev/tollgate/tracker"
)

func quietConfirmer() *confirmer {
	clk := clocktesting.NewFakeClock(noon)
	c := newConfirmer(Options{
		Tracker: tracker.New(), Client: fake.NewClientset(), Clock: clk, Local: clk,
		MaxAge: DefaultMaxAge, AttemptTimeout: DefaultAttemptTimeout,
	})
	c.tracker.SetNode(tracker.NodeOf(readNode()), noon)
	return c
}

// nodeN and nodeM are what objects are called here.
var nodeN, nodeM = objectName{kind: tracker.SourceNode, name: "n"}, objectName{kind: tracker.SourceNode, name: "m"}

// saw has a confirmer take in that node.
func saw(c *confirmer, asked instant) {
	c.saw(nodeN, nodeAnswer(c.tracker, readNode()), "u", asked)
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
		{"INV-3 what was read as long ago as is allowed is fresh", DefaultMaxAge, true},
		{"H05 what was read longer ago is not, even before it was swept", DefaultMaxAge + 1, false},
		{"H05 what was read in the future, by a clock that was set back, is not", -time.Second, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := quietConfirmer()
			require.False(t, c.fresh(nodeN, c.maxAge))
			saw(c, instantOf(noon.Add(-test.age)))
			require.Equal(t, test.want, c.fresh(nodeN, c.maxAge))
			require.False(t, c.fresh(nodeM, c.maxAge))
			c.sweep()
			require.Equal(t, test.want, len(c.read) == 1)
		})
	}

	t.Run("H05 what was read before a suspend is not, although the monotonic clock stood still", func(t *testing.T) {
		t.Parallel()
		c := quietConfirmer()
		saw(c, instant{monotonic: noon, wall: noon.Add(-30 * time.Minute)})
		require.False(t, c.fresh(nodeN, c.maxAge))
		c.sweep()
		require.Empty(t, c.read)
	})

	t.Run("INV-3 what was read of a node says nothing about one created anew under its name", func(t *testing.T) {
		t.Parallel()
		c := quietConfirmer()
		saw(c, instantOf(noon))
		require.True(t, c.fresh(nodeN, c.maxAge))
		c.tracker.SetNode(tracker.Node{Name: "n", UID: "another", ResourceVersion: "2"}, noon)
		require.False(t, c.fresh(nodeN, c.maxAge))
	})

	t.Run("G03 a node that is not there any more was not read just now, whatever a lagging watch brings back", func(t *testing.T) {
		t.Parallel()
		c := quietConfirmer()
		saw(c, instantOf(noon))
		c.gone(nodeN, "u")
		c.tracker.SetNode(tracker.NodeOf(readNode()), noon)
		require.False(t, c.fresh(nodeN, c.maxAge))
	})
}
