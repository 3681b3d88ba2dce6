package evictor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

func quietConfirmer() *confirmer {
	clk := clocktesting.NewFakeClock(noon)
	c := newConfirmer(&Options{
		Source: Source{Tracker: tracker.New()}, Requests: Requests{Client: fake.NewClientset(), MaxAge: DefaultMaxAge},
		Lease: Lease{AttemptTimeout: attemptTimeout}, Clocks: Clocks{Clock: clk, Local: clk},
	})
	c.options.Tracker.SetNode(tracker.NodeOf(readNode()), noon)
	return c
}

// nodeN and nodeM are what objects are called here.
var nodeN, nodeM = tracker.Source{Kind: tracker.SourceNode, Name: "n"}, tracker.Source{Kind: tracker.SourceNode, Name: "m"}

// saw has a confirmer take in that node.
func saw(c *confirmer, asked instant) {
	c.saw(nodeN, nodeAnswer(c.options.Tracker, readNode()), "u", "", asked)
}

func readNode() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "1"}}
}

func TestConfirmerFresh(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		age  time.Duration
		// fresh is good for a new attempt, kept for the requests of one that is under way.
		fresh, kept bool
	}{
		{"INV-3 what was read just now is fresh", 0, true, true},
		{"INV-3 what was read as long ago as is allowed is fresh", DefaultMaxAge, true, true},
		{"H05 what was read longer ago is not", DefaultMaxAge + 1, false, true},
		{"H05 what was read longer ago than an attempt takes is good for nothing", attemptTimeout + 1, false, false},
		{"H05 what was read in the future, by a clock that was set back, is not fresh", -time.Second, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := quietConfirmer()
			require.False(t, c.fresh(nodeN, c.options.MaxAge, freshness{}))
			saw(c, instantOf(noon.Add(-test.age)))
			require.Equal(t, test.fresh, c.fresh(nodeN, c.options.MaxAge, freshness{}))
			require.Equal(t, test.kept, c.Recent(nodeN))
			require.False(t, c.fresh(nodeM, c.options.MaxAge, freshness{}))
			c.Sweep()
			require.Equal(t, test.kept, c.Recent(nodeN))
		})
	}

	t.Run("H05 what was read before a suspend is not, although the monotonic clock stood still", func(t *testing.T) {
		t.Parallel()
		c := quietConfirmer()
		saw(c, instant{monotonic: noon, wall: noon.Add(-30 * time.Minute)})
		require.False(t, c.fresh(nodeN, c.options.MaxAge, freshness{}))
		c.Sweep()
		require.Empty(t, c.read)
	})

	t.Run("INV-3 what was read of a node says nothing about one created anew under its name", func(t *testing.T) {
		t.Parallel()
		c := quietConfirmer()
		saw(c, instantOf(noon))
		require.True(t, c.fresh(nodeN, c.options.MaxAge, freshness{}))
		c.options.Tracker.SetNode(tracker.Node{Name: "n", UID: "another", ResourceVersion: "2"}, noon)
		require.False(t, c.fresh(nodeN, c.options.MaxAge, freshness{}))
	})

	t.Run("G03 a node that is not there any more was not read just now, whatever a lagging watch brings back", func(t *testing.T) {
		t.Parallel()
		c := quietConfirmer()
		saw(c, instantOf(noon))
		c.gone(nodeN, "u")
		c.options.Tracker.SetNode(tracker.NodeOf(readNode()), noon)
		require.False(t, c.fresh(nodeN, c.options.MaxAge, freshness{}))
	})
}

// TestConfirmerOfEveryKind says of slices and rules what the tests above say of
// nodes.
func TestConfirmerOfEveryKind(t *testing.T) {
	t.Parallel()
	taint := resourcev1.DeviceTaint{Key: "gpu", Effect: resourcev1.DeviceTaintEffectNoExecute}
	for kind, test := range map[tracker.SourceKind]struct {
		// set makes an object known to the tracker under a UID, answered is one as the
		// API server returned it.
		set      func(c *confirmer, uid types.UID)
		answered func(c *confirmer, uid types.UID) answer
	}{
		tracker.SourceSlice: {
			func(c *confirmer, uid types.UID) {
				c.options.Tracker.SetSlice(tracker.Slice{Name: "o", UID: uid, ResourceVersion: "1", Driver: "d", Pool: "p"}, noon)
			},
			func(c *confirmer, uid types.UID) answer {
				slice := tracker.Slice{Name: "o", UID: uid, ResourceVersion: "2", Driver: "d", Pool: "p", Devices: []tracker.Device{{Name: "gpu-0", Taints: []resourcev1.DeviceTaint{taint}}}}
				return answer{uid: uid, refresh: func(before string, now time.Time) []tracker.Key {
					return c.options.Tracker.RefreshSlice(slice, before, now)
				}}
			},
		},
		tracker.SourceRule: {
			func(c *confirmer, uid types.UID) {
				c.options.Tracker.SetRule(tracker.Rule{Name: "o", UID: uid, ResourceVersion: "1", Taint: taint}, noon)
			},
			func(c *confirmer, uid types.UID) answer {
				rule := tracker.Rule{Name: "o", UID: uid, ResourceVersion: "2", Taint: taint, Selects: true}
				return answer{uid: uid, refresh: func(before string, now time.Time) []tracker.Key {
					return c.options.Tracker.RefreshRule(rule, before, now)
				}}
			},
		},
	} {
		object := tracker.Source{Kind: kind, Name: "o"}

		t.Run("INV-3 H05 what was read of a "+string(kind)+" holds for that one, for a while", func(t *testing.T) {
			t.Parallel()
			c := quietConfirmer()
			test.set(c, "u")
			require.False(t, c.fresh(object, c.options.MaxAge, freshness{}))
			c.saw(object, test.answered(c, "u"), "u", "", instantOf(noon))
			require.True(t, c.fresh(object, c.options.MaxAge, freshness{}))
			require.Len(t, c.options.Tracker.DeviceTaints(device.ID{Driver: "d", Pool: "p", Name: "gpu-0"}), 1, "what was read is taken in")
			c.saw(object, test.answered(c, "u"), "u", "", instantOf(noon.Add(-DefaultMaxAge-1)))
			require.False(t, c.fresh(object, c.options.MaxAge, freshness{}))
			c.saw(object, test.answered(c, "u"), "u", "", instantOf(noon.Add(-attemptTimeout-1)))
			c.Sweep()
			require.Empty(t, c.read)
		})

		t.Run("G14 an answer about another "+string(kind)+" of that name takes the known one away and brings none", func(t *testing.T) {
			t.Parallel()
			c := quietConfirmer()
			test.set(c, "u")
			c.saw(object, test.answered(c, "another"), "u", "", instantOf(noon))
			require.Empty(t, c.options.Tracker.UIDOf(object))
			test.set(c, "another")
			require.True(t, c.fresh(object, c.options.MaxAge, freshness{}))
		})

		t.Run("G14 a "+string(kind)+" that is not found is forgotten unless it was created anew", func(t *testing.T) {
			t.Parallel()
			c := quietConfirmer()
			test.set(c, "another")
			c.gone(object, "u")
			require.EqualValues(t, "another", c.options.Tracker.UIDOf(object))
			c.gone(object, "another")
			require.Empty(t, c.options.Tracker.UIDOf(object))
		})

		t.Run("G14 a node of the same name is another object than a "+string(kind), func(t *testing.T) {
			t.Parallel()
			c := quietConfirmer()
			test.set(c, "u")
			c.saw(tracker.Source{Kind: tracker.SourceNode, Name: "o"}, nodeAnswer(c.options.Tracker, readNode()), "u", "", instantOf(noon))
			require.False(t, c.fresh(object, c.options.MaxAge, freshness{}))
		})
	}
}

// Len returns the number of stored answers.
func (c *confirmer) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.read)
}
