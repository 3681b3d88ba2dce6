package evictor

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

const (
	defaultWorkers = 64
	attemptTimeout = 10 * time.Second
)

// world is an evictor with all that it needs, in a synctest bubble: its time
// passes only while everybody waits.
type world struct {
	t   *testing.T
	api *fakeAPI
	// recorder and deviceRecorder keep the events about taints of nodes, and those of
	// devices.
	recorder       *fakeRecorder
	deviceRecorder *fakeRecorder

	registry *prometheus.Registry
	options  Options
	policies policyStore
	// rooms are the breakers of a scenario, nil if it has none.
	rooms *rooms
	log   logr.Logger

	tracker *tracker.Tracker
	evictor *Evictor
	stop    context.CancelFunc
	running sync.WaitGroup
	started time.Time
}

// allTripped is the check of breakers that hold all pods that they bound.
func allTripped(_ checks.Now, of *checks.Eviction) checks.Answer {
	if bound := of.Treatment.Breakers; len(bound) > 0 {
		return trippedBy(of, bound[0])
	}
	return checks.Answer{}
}

// trippedBy is the answer when the breaker of one of the policies that bind a pod is tripped.
func trippedBy(of *checks.Eviction, policy *eviction.Policy) checks.Answer {
	hold := checks.NewHold(checks.BreakerTripped, policy)
	for _, bound := range of.Treatment.Breakers {
		hold.Breakers = append(hold.Breakers, bound.UID)
	}
	return checks.Answer{Hold: hold}
}

// inWorld runs test in a bubble of its own. Leaving it fails if a goroutine is
// left over.
func inWorld(t *testing.T, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, api: newFakeAPI(), recorder: &fakeRecorder{}, deviceRecorder: &fakeRecorder{}, started: time.Now()}
		w.options = Options{
			Source:    Source{Synced: func() bool { return true }, Missing: func() []string { return nil }},
			Requests:  Requests{Workers: defaultWorkers},
			Lease:     Lease{Leads: func() bool { return true }, AttemptTimeout: attemptTimeout},
			Clocks:    Clocks{Clock: clock.RealClock{}, Local: clock.RealClock{}},
			Decisions: Decisions{Mode: ModeReplace, NamespaceLabels: func(string) (labels.Labels, bool) { return nil, false }, Breaker: allTripped},
			Listeners: Listeners{FitChanged: func(ModeFinding) {}, RulesChanged: func([]string) {}, PatchesChanged: func([]string) {}},
		}
		test(w)
		w.kill()
	})
}

// start starts an evictor that knows nothing but what the API server lists.
func (w *world) start() {
	w.t.Helper()
	w.registry = prometheus.NewPedanticRegistry()
	w.tracker = tracker.New()
	options := w.options
	options.Tracker, options.Client, options.Metrics = w.tracker, w.api.client, NewMetrics(w.registry)
	options.Recorder, options.DeviceRecorder = w.recorder, w.deviceRecorder
	if options.Carriers == nil {
		options.Carriers = typedCarriers{w.api.client.ResourceV1()}
	}
	if options.Policies == nil {
		options.Policies = w.policies.current
	}
	w.evictor = New(options)
	w.api.attach(w.t, informer.NewFeed(w.tracker, w.evictor, options.Clock), newDeviceFeed(w.tracker, w.evictor, options.Clock))
	w.lead()
}

// lead has the evictor that there is run, for the first time or again.
func (w *world) lead() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(logr.NewContext(w.t.Context(), w.log))
	w.stop = cancel
	w.running.Go(func() {
		if err := w.evictor.Start(ctx); err != nil {
			w.t.Errorf("evictor returned %v", err)
		}
	})
	synctest.Wait()
}

// kill stops the evictor, if it runs. What is told of changes goes on.
func (w *world) kill() {
	if w.stop != nil {
		w.stop()
		w.running.Wait()
		w.stop = nil
	}
}

// restart is what a crash and a new leader come to.
func (w *world) restart() {
	w.t.Helper()
	w.kill()
	w.start()
}

// pass lets time pass, and then waits until everybody waits.
func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// setNode creates a node or sets its taints.
func (w *world) setNode(name string, taints ...corev1.Taint) {
	n := w.api.node(name)
	if n == nil {
		n = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid")}}
	}
	n.Spec.Taints = taints
	w.api.store(n)
	synctest.Wait()
}

// noExecute returns a NoExecute taint with the time that it has now.
func noExecute(key string) corev1.Taint {
	return corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute, TimeAdded: new(metav1.NewTime(time.Now().Truncate(time.Second)))}
}

// noon is the time at which tests decide.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// tolerationFor returns a toleration of a key for some seconds.
func tolerationFor(key string, n int64) corev1.Toleration {
	return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &n}
}

// forever returns a toleration of a key without end.
func forever(key string) corev1.Toleration {
	return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
}

// newPod returns a pod bound to a node now.
func newPod(name, node string, tolerations ...corev1.Toleration) *corev1.Pod {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name + "-uid"), Generation: 1, CreationTimestamp: now},
		Spec:       corev1.PodSpec{NodeName: node, Tolerations: tolerations},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if node != "" {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now}}
	}
	return p
}

// setPod creates or replaces a pod.
func (w *world) setPod(pod *corev1.Pod) {
	w.api.store(pod)
	synctest.Wait()
}

// set creates or replaces a slice, a rule or a claim.
func (w *world) set(obj runtime.Object) {
	w.api.store(obj)
	synctest.Wait()
}

// drop deletes a slice, a rule or a claim.
func (w *world) drop(obj runtime.Object) {
	w.api.remove(keyOf(obj))
	synctest.Wait()
}

// update changes a pod as it stands.
func (w *world) update(key string, change func(*corev1.Pod)) {
	w.t.Helper()
	pod := w.api.pod(key)
	require.NotNil(w.t, pod)
	change(pod)
	w.setPod(pod)
}

// leaving reports whether a pod is deleted or on its way out.
func (w *world) leaving(key string) bool {
	pod := w.api.pod(key)
	return pod == nil || pod.DeletionTimestamp != nil
}

// stays and leaves say what must have become of a pod.
func (w *world) stays(key string) {
	w.t.Helper()
	require.False(w.t, w.leaving(key), "%s must stay", key)
}

func (w *world) leaves(key string) {
	w.t.Helper()
	require.True(w.t, w.leaving(key), "%s must leave", key)
}

// value returns the sum of a metric over all labels that fit.
func (w *world) value(name string, labels ...string) float64 {
	w.t.Helper()
	families, err := w.registry.Gather()
	require.NoError(w.t, err)
	sum := 0.0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			if !hasLabels(metric, labels) {
				continue
			}
			sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

func hasLabels(metric *dto.Metric, labels []string) bool {
	for _, want := range labels {
		found := false
		for _, label := range metric.GetLabel() {
			found = found || label.GetName()+"="+label.GetValue() == want
		}
		if !found {
			return false
		}
	}
	return true
}

// matches counts what fits.
func matches[T ~string](all []T, prefix string) int {
	count := 0
	for _, s := range all {
		if len(s) >= len(prefix) && string(s[:len(prefix)]) == prefix {
			count++
		}
	}
	return count
}

func after(d time.Duration) time.Time { return noon.Add(d) }
