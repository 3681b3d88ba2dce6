package evictor

import (
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/tracker"
)

// The reasons of events.
const (
	// The one that Kubernetes uses (NE-21).
	eventReason = "TaintManagerEviction"
	// For evictions that the API server does not accept.
	heldUpReason = "TaintManagerEvictionHeldUp"
	// For taints with a time that is hardly meant.
	oddTimeReason = "TaintTimeOdd"
)

const (
	// The least time between two summaries of one node.
	summaryPause = 10 * time.Second
	// How often it is looked whether a summary is due.
	announceTick = time.Second
)

// recorder writes events. It must not block; record.EventRecorder of client-go
// is one.
type recorder interface {
	Eventf(object runtime.Object, eventType, reason, format string, args ...any)
}

// announcer tells of evictions by events: on the pods as far as a rate allows,
// and in sum on the nodes, so that a large eviction is not slowed down by its
// own reports (I15).
type announcer struct {
	recorder recorder
	metrics  *Metrics
	clock    clock.PassiveClock
	rate     *rate.Limiter

	mu      sync.Mutex
	tallies map[string]*tally
}

// tally is what happened on a node since its last summary.
type tally struct {
	uid    types.UID
	pods   int
	taints map[string]struct{}
	// told is when the last summary was written.
	told time.Time
}

func newAnnouncer(rec recorder, metrics *Metrics, clk clock.PassiveClock, perSecond float64, burst int) *announcer {
	return &announcer{
		recorder: rec, metrics: metrics, clock: clk,
		rate:    rate.NewLimiter(rate.Limit(perSecond), burst),
		tallies: map[string]*tally{},
	}
}

// evicted tells of a pod whose deletion was accepted.
func (a *announcer) evicted(pod tracker.Pod, node types.UID, because []Reason) {
	a.onPod(pod.Key, corev1.EventTypeNormal, eventReason, "Marking for deletion Pod %s", pod.String())
	a.mu.Lock()
	defer a.mu.Unlock()
	t, ok := a.tallies[pod.NodeName]
	if !ok {
		t = &tally{}
		a.tallies[pod.NodeName] = t
	}
	if t.taints == nil {
		t.taints = map[string]struct{}{}
	}
	t.uid = node
	t.pods++
	t.taints[because[0].Taint.String()] = struct{}{}
}

// cancelled tells of a pod that had to leave and may stay now.
func (a *announcer) cancelled(key tracker.Key) {
	a.onPod(key, corev1.EventTypeNormal, eventReason, "Cancelling deletion of Pod %s", key.String())
}

// heldUp tells of a pod that has to leave and is not let go.
func (a *announcer) heldUp(key tracker.Key, err error) {
	a.onPod(key, corev1.EventTypeWarning, heldUpReason, "Pod %s has to leave its node, and this is tried again and again: %s", key.String(), explain(err))
}

func (a *announcer) onPod(key tracker.Key, eventType, reason, format string, args ...any) {
	if !a.rate.AllowN(a.clock.Now(), 1) {
		a.metrics.dropped.Inc()
		return
	}
	a.recorder.Eventf(&corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: key.Namespace, Name: key.Name, UID: key.UID,
	}, eventType, reason, format, args...)
}

func (a *announcer) onNode(name string, uid types.UID, eventType, reason, format string, args ...any) {
	a.recorder.Eventf(&corev1.ObjectReference{
		APIVersion: "v1", Kind: "Node", Name: name, UID: uid,
	}, eventType, reason, format, args...)
}

// flush writes the summaries that are due: all of them at the end.
func (a *announcer) flush(end bool) {
	for name, t := range a.due(end) {
		taint := "taint "
		if len(t.taints) > 1 {
			taint = "taints "
		}
		pods := " pods"
		if t.pods == 1 {
			pods = " pod"
		}
		a.onNode(name, t.uid, corev1.EventTypeNormal, eventReason, "Evicted %d%s because of NoExecute %s%s",
			t.pods, pods, taint, strings.Join(sortedKeys(t.taints), ", "))
	}
}

// due takes out what is to be told now.
func (a *announcer) due(end bool) map[string]tally {
	now := a.clock.Now()
	due := map[string]tally{}
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, t := range a.tallies {
		switch waiting := now.Sub(t.told) < summaryPause; {
		case t.pods == 0 && !waiting:
			delete(a.tallies, name)
		case t.pods > 0 && (!waiting || end):
			due[name] = *t
			a.tallies[name] = &tally{told: now}
		}
	}
	return due
}

func sortedKeys(set map[string]struct{}) []string {
	keys := make([]string, 0, len(set))
	for key := range set {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
