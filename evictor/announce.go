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
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	// summaryPause is the minimum time between two summaries of one object.
	summaryPause = 10 * time.Second
	// announceTick is the interval at which summaries are written.
	announceTick = time.Second
	// eventRate and eventBurst bound the events on pods, and those about holds, per second and at
	// once. The burst is the one that client-go allows for the events about one object.
	eventRate  = 5
	eventBurst = 25
)

// recorder writes events without blocking; record.EventRecorder of client-go implements it.
type recorder interface {
	controller.Recorder
	AnnotatedEventf(object runtime.Object, annotations map[string]string, eventType, reason, format string, args ...any)
}

// announcer reports evictions by events: on pods up to a rate, and by summaries on the objects
// that carry the taints, so that events do not slow down a large eviction (I15).
type announcer struct {
	Events

	metrics *Metrics
	clock   clock.PassiveClock
	rate    *rate.Limiter
	// holds bounds the events about holds.
	holds *rate.Limiter
	// withheld is true while Kubernetes' own controllers write the events on pods too (J10).
	withheld atomic.Bool

	mu        sync.Mutex
	summaries map[tracker.Source]*summary
}

// summary counts the evictions because of an object since its last summary event.
type summary struct {
	uid    types.UID
	pods   int
	taints sets.Set[string]
	// written is the time of the last summary event.
	written time.Time
}

// recorder returns the recorder for taints of objects of a kind.
func (a *announcer) recorder(kind tracker.SourceKind) recorder {
	if kind.OnDevice() {
		return a.DeviceRecorder
	}
	return a.Recorder
}

// evicted reports an evicted pod. uid is the UID of the object in which a user wrote the taint.
func (a *announcer) evicted(goal *target, how act.Method, uid types.UID) {
	because := &goal.cause.Taint
	source := because.Author()
	// Without a policy, the message is that of Kubernetes, without the taint.
	words := phrasesFor(source.Kind)
	message := words.about(goal.pod.Key, "Marking for deletion", " Pod")
	switch end, ending := goal.cause.patience(); {
	case how == act.Evict:
		message = words.about(goal.pod.Key, "Evicting", " Pod") + ", as EvictionPolicy " + goal.cause.Treatment.Policy.Name + " says"
	case ending:
		message += ": its PodDisruptionBudget did not let it go until " +
			end.UTC().Format(time.RFC3339) + ", deleteAfter of EvictionPolicy " + goal.cause.Treatment.Policy.Name
	}
	named := map[string]string{v1alpha1.AnnotationEvictedBecause: reasonText(goal.cause.Reason)}
	a.onPod(goal.pod.Key, source.Kind, named, corev1.EventTypeNormal, words.eviction, message)
	a.mu.Lock()
	defer a.mu.Unlock()
	t, ok := a.summaries[source]
	if !ok {
		t = &summary{taints: sets.Set[string]{}}
		a.summaries[source] = t
	}
	t.uid = uid
	t.pods++
	t.taints.Insert(because.String())
}

// cancelled reports that a pod need not leave any more.
func (a *announcer) cancelled(key tracker.Key, cause tracker.SourceKind) {
	words := phrasesFor(cause)
	a.onPod(key, cause, nil, corev1.EventTypeNormal, words.eviction, words.about(key, "Cancelling deletion", " of Pod"))
}

// heldUp reports that the API server keeps refusing the eviction of a pod. It returns false if no
// event was written, because of the rate or because events are withheld.
func (a *announcer) heldUp(key tracker.Key, cause tracker.SourceKind, err error) bool {
	why, words := act.Explain(err), phrasesFor(cause)
	return a.onPod(key, cause, map[string]string{v1alpha1.AnnotationHeldUpBecause: why}, corev1.EventTypeWarning, words.heldUp,
		"Pod "+key.String()+" "+words.task+", and this is tried again and again: "+why)
}

// reasonText names the taint because of which a pod was evicted, the object in which a user wrote
// it, and the device.
func reasonText(cause *decide.Reason) string {
	author := cause.Taint.Author()
	text := "taint " + cause.Taint.String() + " of " + author.Kind.Object() + " " + author.Name
	if author.Kind.OnDevice() {
		text += ", device " + cause.Device.String()
	}
	return text
}

// onPod writes an event on a pod, and reports whether it was written.
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

// flush writes the summaries that are due, and with end all of them.
func (a *announcer) flush(end bool) {
	now := a.clock.Now()
	due := map[tracker.Source]*summary{}
	a.mu.Lock()
	for source, t := range a.summaries {
		switch waiting := now.Sub(t.written) < summaryPause; {
		case t.pods == 0 && !waiting:
			delete(a.summaries, source)
		case t.pods > 0 && (!waiting || end):
			due[source] = t
			a.summaries[source] = &summary{taints: sets.Set[string]{}, written: now}
		}
	}
	a.mu.Unlock()
	for source, t := range due {
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
		// The message names no taint, because "kubectl describe node" shows it after the taint is
		// gone. The field path prevents that client-go combines summaries about different taints.
		ref := reference(source, t.uid)
		named := map[string]string{v1alpha1.AnnotationEvictedBecause: because + " of " + ref.Kind + " " + ref.Name}
		ref.FieldPath = "spec{" + taints + "}"
		a.recorder(source.Kind).AnnotatedEventf(ref, named, corev1.EventTypeNormal, phrasesFor(source.Kind).eviction,
			"Evicted %d%s because of %s", t.pods, pods, taint)
	}
}

// apiVersions are the API versions of objects that carry taints, and of ResourceSlicePatches.
var apiVersions = map[tracker.SourceKind]string{
	tracker.SourceNode: "v1", tracker.SourceSlice: resourcev1.SchemeGroupVersion.String(),
	tracker.SourceRule: resourcev1.SchemeGroupVersion.String(), tracker.SourcePatch: v1alpha1.GroupVersion.String(),
}

// reference returns a reference to the object of a source of taints.
func reference(source tracker.Source, uid types.UID) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: apiVersions[source.Kind], Kind: source.Kind.Object(), Name: source.Name, UID: uid}
}

// phrases are the texts of events on pods.
type phrases struct {
	// eviction is the reason of events that Kubernetes' own controllers write too.
	eviction string
	// heldUp is the reason of events about evictions that the API server refuses.
	heldUp string
	// task is the part of their message that says what the pod has to do.
	task string
	// named is true if messages end with the name of the pod.
	named bool
}

// The events of Kubernetes' two controllers (NE-21, DE-42).
var (
	nodePhrases = phrases{
		eviction: "TaintManagerEviction", heldUp: "TaintManagerEvictionHeldUp", task: "has to leave its node", named: true,
	}
	devicePhrases = phrases{
		eviction: "DeviceTaintManagerEviction", heldUp: "DeviceTaintManagerEvictionHeldUp", task: "has to stop using a device",
	}
)

// phrasesFor returns the texts for taints of objects of a kind.
func phrasesFor(cause tracker.SourceKind) phrases {
	if cause.OnDevice() {
		return devicePhrases
	}
	return nodePhrases
}

// about returns a message about a pod. If named, it appends of and the name of the pod to text.
func (p phrases) about(key tracker.Key, text, of string) string {
	if p.named {
		return text + of + " " + key.String()
	}
	return text
}
