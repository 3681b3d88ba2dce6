package evictor

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	// The least time between two summaries of one object.
	summaryPause = 10 * time.Second
	// How often it is looked whether a summary is due.
	announceTick = time.Second
	// eventRate and eventBurst bound the events on pods, in a second and at once, and likewise those about
	// holds.
	eventRate  = 5
	eventBurst = 50
)

// recorder writes events. It must not block; record.EventRecorder of client-go
// is one.
type recorder interface {
	Eventf(object runtime.Object, eventType, reason, format string, args ...any)
	AnnotatedEventf(object runtime.Object, annotations map[string]string, eventType, reason, format string, args ...any)
}

// announcer tells of evictions by events: on the pods as far as a rate allows, and
// in sum on the objects that carry the taints, so that a large eviction is not
// slowed down by its own reports (I15).
type announcer struct {
	// nodes and devices write the events about taints of either.
	nodes   recorder
	devices recorder
	metrics *Metrics
	clock   clock.PassiveClock
	rate    *rate.Limiter
	// holds bounds the events about holds.
	holds *rate.Limiter
	// withheld is true while Kubernetes' own controllers write the events on pods as
	// well (J10).
	withheld atomic.Bool

	mu      sync.Mutex
	tallies map[tracker.Source]*tally
}

// tally is what happened because of an object since its last summary.
type tally struct {
	uid    types.UID
	pods   int
	taints sets.Set[string]
	// told is when the last summary was written.
	told time.Time
}

func newAnnouncer(nodes, devices recorder, metrics *Metrics, clk clock.PassiveClock) *announcer {
	return &announcer{
		nodes: nodes, devices: devices, metrics: metrics, clock: clk,
		rate:    rate.NewLimiter(eventRate, eventBurst),
		holds:   rate.NewLimiter(eventRate, eventBurst),
		tallies: map[tracker.Source]*tally{},
	}
}

// recorder returns the recorder for taints that objects of that kind carry.
func (a *announcer) recorder(kind tracker.SourceKind) recorder {
	if kind.OnDevice() {
		return a.devices
	}
	return a.nodes
}

// evicted tells of a pod that was made to leave, because of a taint that somebody wrote
// into the object that is known as uid.
func (a *announcer) evicted(goal *target, how act.Method, uid types.UID) {
	because := &goal.cause.Taint
	source := because.Author()
	// The message is that of Kubernetes, which names no taint.
	named := map[string]string{v1alpha1.AnnotationEvictedBecause: whatFor(goal.cause.Reason)}
	a.onPod(goal.pod.Key, source.Kind, named, corev1.EventTypeNormal, phrasesFor(source.Kind).eviction, evictedMessage(goal, how))
	a.mu.Lock()
	defer a.mu.Unlock()
	t, ok := a.tallies[source]
	if !ok {
		t = &tally{taints: sets.Set[string]{}}
		a.tallies[source] = t
	}
	t.uid = uid
	t.pods++
	t.taints.Insert(because.String())
}

// cancelled tells of a pod that had to leave and may stay now.
func (a *announcer) cancelled(key tracker.Key, cause tracker.SourceKind) {
	a.onPod(key, cause, nil, corev1.EventTypeNormal, phrasesFor(cause).eviction, phrasesFor(cause).about(key, "Cancelling deletion", " of Pod"))
}

// heldUp tells of a pod that has to leave and is not let go, and reports whether it did: it
// does not where the rate of events is used up, or while they are withheld.
func (a *announcer) heldUp(key tracker.Key, cause tracker.SourceKind, err error) bool {
	why := act.Explain(err)
	return a.onPod(key, cause, map[string]string{v1alpha1.AnnotationHeldUpBecause: why}, corev1.EventTypeWarning, phrasesFor(cause).heldUp,
		"Pod "+key.String()+" "+phrasesFor(cause).plight+", and this is tried again and again: "+why)
}

// whatFor names the taint because of which a pod was made to leave, the object that somebody
// wrote it into, and the device.
func whatFor(cause *decide.Reason) string {
	author := cause.Taint.Author()
	text := "taint " + cause.Taint.String() + " of " + author.Kind.Object() + " " + author.Name
	if author.Kind.OnDevice() {
		text += ", device " + cause.Device.String()
	}
	return text
}

// evictedMessage says how a pod was made to leave. Where no policy asks for more, the
// words are those of Kubernetes.
func evictedMessage(goal *target, how act.Method) string {
	words := phrasesFor(goal.cause.Taint.Source.Kind)
	marking := words.about(goal.pod.Key, "Marking for deletion", " Pod")
	policy := goal.cause.Treatment.Policy
	switch end, ending := goal.cause.patience(); {
	case how == act.Evict:
		return words.about(goal.pod.Key, "Evicting", " Pod") + ", as EvictionPolicy " + policy.Name + " says"
	case ending:
		return marking + ": its PodDisruptionBudget did not let it go until " +
			end.UTC().Format(time.RFC3339) + ", deleteAfter of EvictionPolicy " + policy.Name
	}
	return marking
}

// onPod writes an event on a pod, and reports whether it did.
func (a *announcer) onPod(key tracker.Key, cause tracker.SourceKind, annotations map[string]string, eventType, reason, message string) bool {
	if a.withheld.Load() {
		return false
	}
	if !a.rate.AllowN(a.clock.Now(), 1) {
		a.metrics.dropped.Inc()
		return false
	}
	a.recorder(cause).AnnotatedEventf(&corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: key.Namespace, Name: key.Name, UID: key.UID,
	}, annotations, eventType, reason, "%s", message)
	return true
}

// onCarrier tells of an object that carries taints, known as uid.
func (a *announcer) onCarrier(source tracker.Source, uid types.UID, eventType, reason, format string, args ...any) {
	a.recorder(source.Kind).Eventf(reference(source, uid), eventType, reason, format, args...)
}

// flush writes the summaries that are due: all of them at the end.
func (a *announcer) flush(end bool) {
	for source, t := range a.due(end) {
		taint, taints := "a NoExecute taint", strings.Join(sets.List(t.taints), ", ")
		because := "taint " + taints
		if len(t.taints) > 1 {
			taint = strconv.Itoa(len(t.taints)) + " NoExecute taints"
			because = "taints " + taints
		}
		pods := " pods"
		if t.pods == 1 {
			pods = " pod"
		}
		// The message names no taint: "kubectl describe node" shows it, and a taint that is gone
		// must not be found there. The field keeps summaries about other taints from being
		// counted as one event with this.
		ref := reference(source, t.uid)
		named := map[string]string{v1alpha1.AnnotationEvictedBecause: because + " of " + ref.Kind + " " + ref.Name}
		ref.FieldPath = "spec{" + taints + "}"
		a.recorder(source.Kind).AnnotatedEventf(ref, named, corev1.EventTypeNormal, phrasesFor(source.Kind).eviction,
			"Evicted %d%s because of %s", t.pods, pods, taint)
	}
}

// due takes out what is to be told now.
func (a *announcer) due(end bool) map[tracker.Source]tally {
	now := a.clock.Now()
	due := map[tracker.Source]tally{}
	a.mu.Lock()
	defer a.mu.Unlock()
	for source, t := range a.tallies {
		switch waiting := now.Sub(t.told) < summaryPause; {
		case t.pods == 0 && !waiting:
			delete(a.tallies, source)
		case t.pods > 0 && (!waiting || end):
			due[source] = *t
			a.tallies[source] = &tally{taints: sets.Set[string]{}, told: now}
		}
	}
	return due
}

// apiVersions are those of the objects that carry taints, and of patches.
var apiVersions = map[tracker.SourceKind]string{
	tracker.SourceNode: "v1", tracker.SourceSlice: resourcev1.SchemeGroupVersion.String(),
	tracker.SourceRule: resourcev1.SchemeGroupVersion.String(), tracker.SourcePatch: v1alpha1.GroupVersion.String(),
}

// reference names the object that is known under a source of taints.
func reference(source tracker.Source, uid types.UID) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: apiVersions[source.Kind], Kind: source.Kind.Object(), Name: source.Name, UID: uid}
}
