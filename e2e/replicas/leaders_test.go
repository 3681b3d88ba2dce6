package replicas

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/e2e/faultproxy"
)

// takeover is after what time a leader that is dead has a successor that leads, on a machine
// that has other things to do.
const takeover = leaseDuration + 20*time.Second

// staying returns a pod on each node that tolerates the taint for ever.
func staying() []*corev1.Pod {
	var pods []*corev1.Pod
	for node := range nodeCount {
		pods = append(pods, podOn(node, fmt.Sprintf("stays-%d", node), forever))
	}
	return pods
}

// TestJ06U17ALeaderThatWasStoppedPastItsLeaseDoesNothingOnWaking stops the leader until it
// has a successor, and then the successor too, so that nobody has done the work by the
// time the first one wakes up.
func TestJ06U17ALeaderThatWasStoppedPastItsLeaseDoesNothingOnWaking(t *testing.T) {
	const count, seconds = 20, 35
	leader, standby := waitLeader(t)
	namespace := namespaceOf(t)
	var pods []*corev1.Pod
	for i := range count {
		pods = append(pods, podOn(i, fmt.Sprintf("leaves-%d", i), seconds))
	}
	stays, leaves := create(t, namespace, staying()...), create(t, namespace, pods...)
	added := taint(t)
	waitPending(t, leader, count)
	t.Cleanup(func() { // A stopped process would not even end.
		leader.signal(t, syscall.SIGCONT)
		standby.signal(t, syscall.SIGCONT)
	})

	stopped := leader.signal(t, syscall.SIGSTOP)
	taken := standby.waitTerm(t, stopped)
	t.Logf("the leader was stopped, its successor has the lease after %s", taken.Sub(stopped).Round(time.Millisecond))
	require.Less(t, taken.Sub(stopped), takeover)
	waitPending(t, standby, count)
	due := slices.MinFunc(slices.Collect(maps.Values(added)), time.Time.Compare).Add(seconds * time.Second)
	require.True(t, time.Now().Before(due.Add(-time.Second)), "the machine is too slow for this test")
	sleepUntil(t, due.Add(-time.Second))
	standby.signal(t, syscall.SIGSTOP)

	sleepUntil(t, due.Add(3*time.Second)) // All are due for more than a second.
	woken := leader.signal(t, syscall.SIGCONT)
	// It may have the lease again when it has seen for its whole length that nobody
	// renews it, and not earlier.
	until := woken.Add(leaseDuration - 500*time.Millisecond)
	sleepUntil(t, until) // The test may be late, and look at what is right by then.
	require.Empty(t, leader.toPods(stopped, until), "it does not lead")
	require.Empty(t, written.find(func(w faultproxy.Write) bool {
		return w.Replica == leader.Name && w.Resource == "leases" && w.Status == http.StatusOK && w.Sent.After(woken) && w.Sent.Before(until)
	}), "it leaves the lease to its successor")
	for name, at := range deletions(t, namespace) {
		require.False(t, at.Before(until), "%s left at %s, when nobody led", name, at)
	}

	standby.signal(t, syscall.SIGCONT)
	waitAlive(t, namespace, stays)
	deleted := waitDeletions(t, namespace, count)
	requireNeverEarly(t, leaves, added, deleted)
	requireOneAtATime(t, stopped)
}

func TestJ07ALeaderThatIsKilledInTheMiddleHasASuccessorThatFinishes(t *testing.T) {
	const count = 320
	leader, standby := waitLeader(t)
	namespace := namespaceOf(t)
	var pods []*corev1.Pod
	for i := range count {
		pods = append(pods, podOn(i, fmt.Sprintf("leaves-%d", i), 0))
	}
	stays, leaves := create(t, namespace, staying()...), create(t, namespace, pods...)
	load := startLoad(t, 8, 40)

	added := taint(t)
	eventually(t, "the middle", func(context.Context) error {
		if done := len(deletions(t, namespace)); done < count/4 {
			return fmt.Errorf("%d deleted", done)
		}
		return nil
	})
	killed := leader.signal(t, syscall.SIGKILL)
	leader.wait(t)
	heard := leader.waitNotGiven(t)
	taken := standby.waitTerm(t, killed)
	waitAlive(t, namespace, stays)
	finished := time.Now()
	require.Less(t, taken.Sub(killed), takeover)
	before := leader.toPods(time.Time{}, killed)
	after := standby.toPods(killed, finished)
	require.NotEmpty(t, before)
	require.NotEmpty(t, after, "there was something left to do")
	deleted := deletions(t, namespace)
	require.LessOrEqual(t, len(deleted), count)
	requireNeverEarly(t, leaves, added, deleted)
	t.Logf("killed after %d requests; the successor has the lease after %s, its first request came %s after that; "+
		"all %d were gone %s after the kill", len(before), taken.Sub(killed).Round(time.Millisecond),
		after[0].Sent.Sub(taken).Round(time.Millisecond), count, finished.Sub(killed).Round(time.Millisecond))

	t.Run("E05 reviews that the other replica had are all answered", func(t *testing.T) {
		load.stop()
		requireOnlyOf(t, load, leader, death{killed, heard})
	})
	leader.restart(t)
}

func TestJ08ALeaderThatCannotRenewItsLeaseStopsBeforeSomebodyElseHasIt(t *testing.T) {
	const count, seconds = 32, 8
	leader, standby := waitLeader(t)
	namespace := namespaceOf(t)
	var pods []*corev1.Pod
	for i := range count {
		pods = append(pods, podOn(i, fmt.Sprintf("leaves-%d", i), int64(1+i*seconds/count)))
	}
	stays, leaves := create(t, namespace, staying()...), create(t, namespace, pods...)
	began := time.Now()
	added := taint(t)
	eventually(t, "the first evictions", func(context.Context) error {
		if len(deletions(t, namespace)) == 0 {
			return errors.New("none yet")
		}
		return nil
	})

	restore := leader.proxy.Inject(faultproxy.Fault{
		Match: faultproxy.Match{Resources: []string{"leases"}}, Status: http.StatusServiceUnavailable,
	})
	defer restore()
	cut := time.Now()
	taken := standby.waitTerm(t, cut)
	waitAlive(t, namespace, stays)
	last := leader.lastRenewal(t)
	for _, write := range leader.toPods(cut, time.Now()) {
		require.Less(t, write.Sent.Sub(last), leaseDuration, "%s %s", write.Method, write.Path)
		require.True(t, write.Answered.Before(taken), "it ended before the successor could begin")
	}
	t.Logf("the lease was last renewed at %s, lost to the other replica at %s", last.Sub(began), taken.Sub(began))
	deleted := waitDeletions(t, namespace, count) // None is lost.
	requireNeverEarly(t, leaves, added, deleted)
	requireOneAtATime(t, began)

	restore()
	t.Run("it goes on with everything else, and leads again when it can", func(t *testing.T) {
		require.True(t, leader.Alive())
		waitGiven(t, first, second)
		stopped := standby.signal(t, syscall.SIGTERM)
		requireHandedOver(t, standby, leader, stopped)
		standby.wait(t)
		standby.restart(t)
	})
}

// requireOneAtATime fails if a replica wrote to pods, since some time, while the lease
// was another one's.
func requireOneAtATime(t *testing.T, since time.Time) {
	t.Helper()
	held := terms(t, time.Time{})
	for _, r := range []*replica{first, second} {
		for _, write := range r.toPods(since, time.Now()) {
			var holder *replica
			for _, term := range held {
				if term.answered.Before(write.Sent) {
					holder = term.replica
				}
			}
			require.Equal(t, r, holder, "%s %s by %s at %s", write.Method, write.Path, r.Name, write.Sent)
		}
	}
}
