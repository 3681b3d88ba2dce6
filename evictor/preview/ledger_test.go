package preview

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tollgate-dev/tollgate/tracker"
)

const tenMinutes = 10 * time.Minute

func governed(hit *Hit) bool { return hit.Taint.Key == "k" }

// site is one replica of Tollgate: what it knows, and what it counts.
type site struct {
	tracker *tracker.Tracker
	ledger  *Ledger
	view    *View
	clock   *clocktesting.FakePassiveClock
}

func newSite(clk *clocktesting.FakePassiveClock) *site {
	tr := tracker.New()
	return &site{tracker: tr, ledger: NewLedger(&View{Tracker: tr}, clk), view: newView(tr), clock: clk}
}

// leave has pods go as a watch tells it.
func (s *site) leave(pods ...tracker.Pod) {
	for _, p := range pods {
		s.ledger.Leaving(p.Key)
		s.tracker.DeletePod(p.Key)
	}
}

// others counts by the taints with key k.
func (s *site) others() int { return s.ledger.Others(Query{Window: tenMinutes, Governs: governed}) }

// strikes returns what a taint of node n hits.
func (s *site) strikes(t *testing.T, old, written tracker.Node) []Struck {
	t.Helper()
	changes, err := s.view.Node(old, written, s.clock.Now())
	require.NoError(t, err)
	return s.view.Strikes(changes)
}

func TestWhatOtherWritesHit(t *testing.T) {
	t.Parallel()
	clockAt := func() *clocktesting.FakePassiveClock { return clocktesting.NewFakePassiveClock(noon) }
	on := func(s *site, name string, written time.Time, taints ...corev1.Taint) {
		s.tracker.SetNode(node(name), written.Add(-time.Hour))
		s.tracker.SetNode(node(name, taints...), written)
	}

	t.Run("pods that are due now or later because of a governed taint of the window", func(t *testing.T) {
		t.Parallel()
		s := newSite(clockAt())
		for _, p := range []tracker.Pod{
			pod("now", "n"), pod("later", "n", tolerate("k", 3000)), pod("never", "n", tolerate("k", -1)),
			boundAt(pod("came-after", "n", tolerate("k", 3000)), -30), terminating(pod("going", "n")),
		} {
			s.tracker.SetPod(p)
		}
		on(s, "n", at(-60), exampleTaint("k", -60))
		on(s, "m", at(-60), exampleTaint("other", -60))
		s.tracker.SetPod(pod("of-another-taint", "m"))
		require.Equal(t, 3, s.others(), "those due, sooner or later, and the one that is going")
		s.clock.SetTime(at(539))
		require.Equal(t, 3, s.others())
		s.clock.SetTime(at(541))
		require.Zero(t, s.others(), "the window is over")
	})

	t.Run("H02 a taint with an old time counts from when it was written", func(t *testing.T) {
		t.Parallel()
		s := newSite(clockAt())
		s.tracker.SetPod(pod("p", "n"))
		on(s, "n", at(-60), exampleTaint("k", -86_400))
		require.Equal(t, 1, s.others())
	})

	t.Run("pods that have left while they were due, once each", func(t *testing.T) {
		t.Parallel()
		s := newSite(clockAt())
		due, stays := pod("due", "n"), pod("stays", "n", tolerate("k", -1))
		s.tracker.SetPod(due)
		s.tracker.SetPod(stays)
		on(s, "n", at(-60), exampleTaint("k", -60))
		s.leave(due, stays)
		s.ledger.Leaving(tracker.Key{Namespace: "ns", Name: "unknown"})
		require.Equal(t, 1, s.others())
		s.tracker.SetNode(node("n"), noon)
		require.Equal(t, 1, s.others(), "that the taint is gone brings no pod back")
		s.clock.SetTime(at(541))
		require.Zero(t, s.others())
	})

	t.Run("a pod that is going and then gone counts once, for the taints of when it began to go", func(t *testing.T) {
		t.Parallel()
		s := newSite(clockAt())
		s.tracker.SetDevicesKnown(true)
		p, claim := userOf("p", "x0")
		s.tracker.SetPod(p)
		s.tracker.SetClaim(claim)
		s.tracker.SetRule(rule("r", &resourcev1.DeviceTaintSelector{}, deviceTaint("k", -60)), at(-60))
		s.ledger.Leaving(p.Key)
		require.Equal(t, 1, s.others())
		s.tracker.SetPod(terminating(p))
		claim.Allocated, claim.Devices = false, nil
		s.tracker.SetClaim(claim)
		s.leave(p)
		require.Equal(t, 1, s.others())
	})

	t.Run("pods of writes that were admitted and not seen yet", func(t *testing.T) {
		t.Parallel()
		s := newSite(clockAt())
		s.tracker.SetPod(pod("p", "n"))
		s.tracker.SetNode(node("n"), noon)
		hit := s.strikes(t, node("n"), node("n", exampleTaint("k", 0)))
		require.Len(t, hit, 1)
		first := s.ledger.Admit(hit)
		require.Equal(t, 1, s.others())
		require.Zero(t, s.ledger.Others(Query{Window: tenMinutes, Governs: governed, Own: first}), "a write is not in its own way")
		require.Zero(t, s.ledger.Others(Query{Window: tenMinutes, Governs: governed, Except: hit}), "nor are the pods that it hits itself")
		second := s.ledger.Admit(nil)
		require.Equal(t, 1, s.ledger.Others(Query{Window: tenMinutes, Governs: governed, Own: second}))
		require.Zero(t, s.ledger.Others(Query{Window: tenMinutes, Governs: func(hit *Hit) bool { return hit.Taint.Key == "other" }}))
		s.tracker.SetNode(node("n", exampleTaint("k", 0)), noon)
		require.Equal(t, 1, s.others(), "seen as well, it counts once")
		s.ledger.Withdraw(first)
		s.ledger.Withdraw(nil)
		require.Equal(t, 1, s.others())
		s.tracker.SetNode(node("n"), noon)
		require.Zero(t, s.others())
	})

	t.Run("a write that was never seen counts no longer", func(t *testing.T) {
		t.Parallel()
		s := newSite(clockAt())
		s.tracker.SetPod(pod("p", "n"))
		s.ledger.Admit(s.strikes(t, node("n"), node("n", exampleTaint("k", 0))))
		s.clock.SetTime(noon.Add(unseenFor))
		require.Equal(t, 1, s.others())
		s.clock.SetTime(noon.Add(unseenFor + time.Second))
		require.Zero(t, s.others())
		s.ledger.Admit(nil)
		require.Len(t, s.ledger.admitted, 1, "and is forgotten")
	})
}

// TestReplicasCountTheSame feeds two replicas with the same events and admits the
// writes on either: neither talks to the other.
func TestReplicasCountTheSame(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakePassiveClock(noon)
	sites := []*site{newSite(clk), newSite(clk)}
	for i := range 40 {
		name := "n" + strconv.Itoa(i)
		tainted := node(name, exampleTaint("k", i))
		victim, survivor := pod("victim-"+name, name), pod("survivor-"+name, name, tolerate("k", 300))
		for _, s := range sites {
			s.tracker.SetNode(node(name), clk.Now())
			s.tracker.SetPod(victim)
			s.tracker.SetPod(survivor)
		}
		clk.SetTime(at(i))
		admitting := sites[i%2]
		hit := admitting.strikes(t, node(name), tainted)
		require.Len(t, hit, 2)
		own := admitting.ledger.Admit(hit)
		require.Equal(t, 2*i, admitting.ledger.Others(Query{Window: tenMinutes, Governs: governed, Own: own, Except: hit}), "what the other replica admitted was seen")
		for _, s := range sites {
			s.tracker.SetNode(tainted, clk.Now())
			s.leave(victim)
			require.Equal(t, 2*(i+1), s.others())
		}
	}
	clk.SetTime(at(30).Add(tenMinutes))
	for _, s := range sites {
		require.Equal(t, 20, s.others(), "the writes of the last ten minutes")
	}
}

func TestLeft(t *testing.T) {
	t.Parallel()
	s := newSite(clocktesting.NewFakePassiveClock(noon))
	for _, name := range []string{"a", "b"} {
		s.tracker.SetPod(pod("on-"+name, name))
		s.tracker.SetNode(node(name, exampleTaint("k", -60), exampleTaint("l", -60)), noon)
	}
	s.ledger.Leaving(pod("on-a", "a").Key)
	s.leave(pod("on-a", "a"), pod("on-b", "b"))
	onA := tracker.Source{Kind: tracker.SourceNode, Name: "a"}
	require.Equal(t, 1, s.ledger.Left(onA, "k", noon))
	require.Equal(t, 1, s.ledger.Left(onA, "l", noon))
	require.Zero(t, s.ledger.Left(onA, "m", noon))
	require.Zero(t, s.ledger.Left(onA, "k", at(1)))
	require.Zero(t, s.ledger.Left(tracker.Source{Kind: tracker.SourceRule, Name: "a"}, "k", noon))
}

func TestF14TheLedgerForgetsWhatIsOldAndWhatIsTooMuch(t *testing.T) {
	t.Parallel()
	s := newSite(clocktesting.NewFakePassiveClock(noon))
	s.ledger.most = 3
	s.tracker.SetNode(node("n"), noon)
	s.tracker.SetNode(node("n", exampleTaint("k", 0)), noon)
	for i := range 5 {
		p := pod("p"+strconv.Itoa(i), "n")
		s.tracker.SetPod(p)
		s.leave(p)
	}
	require.Equal(t, 3, s.others())
	require.Len(t, s.ledger.known, 3)

	s.clock.SetTime(noon.Add(longestWindow + time.Second))
	p := pod("last", "n")
	s.tracker.SetPod(p)
	s.leave(p)
	require.Len(t, s.ledger.left, 1)
	require.Len(t, s.ledger.known, 1)
}

func TestTheLedgerIsGoroutineSafe(t *testing.T) {
	t.Parallel()
	const pods = 200
	s := newSite(clocktesting.NewFakePassiveClock(noon))
	s.tracker.SetNode(node("n"), noon)
	for i := range pods {
		s.tracker.SetPod(pod("p"+strconv.Itoa(i), "n"))
	}
	hit := s.strikes(t, node("n"), node("n", exampleTaint("k", 0)))
	s.tracker.SetNode(node("n", exampleTaint("k", 0)), noon)
	var running sync.WaitGroup
	for i := range pods {
		running.Go(func() { s.leave(pod("p"+strconv.Itoa(i), "n")) })
		running.Go(func() {
			own := s.ledger.Admit(hit)
			s.ledger.Others(Query{Window: tenMinutes, Governs: governed, Own: own})
			s.ledger.Withdraw(own)
		})
	}
	running.Wait()
	require.Equal(t, pods, s.others())
	require.Empty(t, s.ledger.admitted)
}
