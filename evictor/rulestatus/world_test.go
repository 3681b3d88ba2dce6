package rulestatus

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// write is a status that the API server accepted.
type write struct {
	at         time.Time
	rule       string
	uid        types.UID
	generation int64
	conditions []metav1.Condition
}

// world is a controller with an API server that holds rules, a tracker that is told
// of them, and somebody who evicts, in a synctest bubble: its time passes only while
// everybody waits.
type world struct {
	t       *testing.T
	started time.Time
	tracker *tracker.Tracker
	base    controller.Base
	options Options

	controller *Controller
	registry   *prometheus.Registry
	stop       context.CancelFunc
	running    sync.WaitGroup

	mu      sync.Mutex
	version int
	rules   map[string]*resourcev1.DeviceTaintRule
	evicted map[types.UID]int
	forgot  []types.UID
	writes  []write
	lines   []string
	// asked counts requests, whatever came of them.
	asked int
	// fault makes a request fail; deaf keeps the watch from telling of what is
	// written.
	fault func(context.Context) error
	deaf  bool
	// unsupported are fields that the selectors of all rules have and that are not
	// understood.
	unsupported []string
}

// inWorld runs test in a bubble of its own, in which all devices are known. Leaving
// it fails if a goroutine is left over.
func inWorld(t *testing.T, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			t: t, started: time.Now(), tracker: tracker.New(),
			rules: map[string]*resourcev1.DeviceTaintRule{}, evicted: map[types.UID]int{},
		}
		w.tracker.SetDevicesKnown(true)
		w.options = Options{
			Objects: Objects{Kind: KindRule, Tracker: w.tracker, Applier: w, Written: func(*tracker.Rule) bool { return true }}, Synced: func() bool { return true },
			Evictor: Evictor{
				Decide: leaves, Evicted: w.evictions, Forget: w.forget, PodsChanged: func([]tracker.Key) {},
				Unanswered: func(types.UID) []tracker.Key { return nil }, Held: func(types.UID) (int, string, string) { return 0, "", "" },
			},
		}
		w.base = controller.Base{
			Clock: clock.RealClock{}, Local: clock.RealClock{}, Leads: func() bool { return true }, Timeout: 10 * time.Second,
		}
		test(w)
		w.kill()
	})
}

// leaves decides about one pod, in few words.
func leaves(s tracker.Situation) bool {
	if s.Pod.Terminating || s.Pod.Finished {
		return false
	}
	for _, d := range s.Devices {
		for _, taint := range d.Taints {
			seconds, tolerated := device.Toleration(d.Tolerations, taint.Key, taint.Value, resourcev1.DeviceTaintEffect(taint.Effect))
			if !tolerated || seconds != nil {
				return true
			}
		}
	}
	return false
}

// start starts a controller that knows nothing but what rules say.
func (w *world) start() {
	w.t.Helper()
	w.registry = prometheus.NewPedanticRegistry()
	w.options.Metrics = NewMetrics(w.registry)
	w.controller = New(w.base, w.options)
	w.run()
}

// run makes the controller the leader.
func (w *world) run() {
	log := funcr.New(func(_, args string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.lines = append(w.lines, args)
	}, funcr.Options{})
	ctx, cancel := context.WithCancel(logr.NewContext(w.t.Context(), log))
	w.stop = cancel
	w.running.Go(func() {
		if err := w.controller.Start(ctx); err != nil {
			w.t.Errorf("controller returned %v", err)
		}
	})
	synctest.Wait()
}

// kill stops the controller, if it runs.
func (w *world) kill() {
	if w.stop != nil {
		w.stop()
		w.running.Wait()
		w.stop = nil
	}
}

// restart is what a crash and a new leader come to: the count is lost.
func (w *world) restart() {
	w.t.Helper()
	w.kill()
	w.mu.Lock()
	w.evicted = map[types.UID]int{}
	w.mu.Unlock()
	w.start()
}

// pass lets time go by.
func (w *world) pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
	synctest.Wait()
}

func (w *world) evictions(uid types.UID) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.evicted[uid]
}

func (w *world) forget(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.evicted, uid)
	w.forgot = append(w.forgot, uid)
}

// Apply implements applier, as the API server does it.
func (w *world) Apply(ctx context.Context, name string, uid types.UID, conditions []metav1.Condition) (tracker.Rule, error) {
	w.mu.Lock()
	fault := w.fault
	w.asked++
	w.mu.Unlock()
	if fault != nil {
		if err := fault(ctx); err != nil {
			return tracker.Rule{}, err
		}
	}
	w.mu.Lock()
	rule := w.rules[name]
	if rule == nil || rule.UID != uid {
		w.mu.Unlock()
		return tracker.Rule{}, apierrors.NewNotFound(schema.GroupResource{Group: resourcev1.GroupName, Resource: "devicetaintrules"}, name)
	}
	rule = rule.DeepCopy()
	var kept []metav1.Condition
	for _, c := range rule.Status.Conditions {
		if c.Type != resourcev1.DeviceTaintConditionEvictionInProgress && c.Type != ConditionEvictionPreview {
			kept = append(kept, c)
		}
	}
	rule.Status.Conditions = slices.Concat(kept, conditions)
	w.writes = append(w.writes, write{time.Now(), name, uid, rule.Generation, conditions})
	w.store(rule)
	deaf := w.deaf
	w.mu.Unlock()
	if !deaf {
		w.tell(rule)
	}
	return w.read(rule), nil
}

// store gives a rule a version and keeps it. The lock is held.
func (w *world) store(rule *resourcev1.DeviceTaintRule) {
	w.version++
	rule.ResourceVersion = strconv.Itoa(w.version)
	w.rules[rule.Name] = rule
}

// tell is the watch.
func (w *world) tell(rule *resourcev1.DeviceTaintRule) {
	w.tracker.SetRule(w.read(rule), time.Now())
	if w.controller != nil {
		w.controller.Add(rule.Name)
	}
}

// read is what is read of a rule.
func (w *world) read(rule *resourcev1.DeviceTaintRule) tracker.Rule {
	read := tracker.RuleOf(rule)
	if read.Unsupported = w.unsupported; len(read.Unsupported) > 0 {
		read.Selects = false
	}
	return read
}

// change creates or changes a rule, as a user does.
func (w *world) change(name string, edit func(*resourcev1.DeviceTaintRule)) {
	w.mu.Lock()
	rule := &resourcev1.DeviceTaintRule{}
	if old := w.rules[name]; old != nil {
		rule = old.DeepCopy()
	} else {
		rule.Name, rule.UID = name, types.UID(fmt.Sprintf("%s-%d", name, w.version))
		rule.CreationTimestamp = metav1.NewTime(time.Now().Truncate(time.Second))
		rule.Spec.DeviceSelector = &resourcev1.DeviceTaintSelector{}
		rule.Spec.Taint = resourcev1.DeviceTaint{Key: "broken", TimeAdded: new(rule.CreationTimestamp)}
	}
	edit(rule)
	rule.Generation++
	w.store(rule)
	w.mu.Unlock()
	w.tell(rule)
	synctest.Wait()
}

// setEffect creates a rule, or changes its effect.
func (w *world) setEffect(name string, effect resourcev1.DeviceTaintEffect) {
	w.change(name, func(rule *resourcev1.DeviceTaintRule) { rule.Spec.Taint.Effect = effect })
}

// overwrite changes the status of a rule, as others do.
func (w *world) overwrite(name string, conditions ...metav1.Condition) {
	w.mu.Lock()
	rule := w.rules[name].DeepCopy()
	rule.Status.Conditions = conditions
	w.store(rule)
	w.mu.Unlock()
	w.tell(rule)
	synctest.Wait()
}

// deleteRule deletes a rule and tells of it.
func (w *world) deleteRule(name string) {
	w.mu.Lock()
	rule := w.rules[name]
	delete(w.rules, name)
	w.mu.Unlock()
	w.tracker.DeleteRule(name, rule.UID)
	w.controller.Add(name)
	synctest.Wait()
}

// pod puts a pod on a node, with a device of its own that is allocated to it.
func (w *world) pod(namespace, name string, tolerations ...resourcev1.DeviceToleration) tracker.Key {
	key := tracker.Key{Namespace: namespace, Name: name, UID: types.UID("uid-" + namespace + "-" + name)}
	w.claim(key, namespace+"-"+name, tolerations...)
	w.tracker.SetPod(podWithClaim(key))
	return key
}

func podWithClaim(key tracker.Key) tracker.Pod {
	return tracker.Pod{Key: key, NodeName: "node", Claims: []tracker.PodClaim{{Name: key.Name}}}
}

// claim allocates a device to the claim of a pod, which has its name.
func (w *world) claim(key tracker.Key, deviceName string, tolerations ...resourcev1.DeviceToleration) {
	w.tracker.SetClaim(tracker.Claim{
		ClaimName: tracker.ClaimName{Namespace: key.Namespace, Name: key.Name}, UID: "claim-of-" + key.UID, Allocated: true,
		Devices: []tracker.AllocatedDevice{{
			ID: device.ID{Driver: "gpu.example.com", Pool: "node", Name: deviceName}, Tolerations: tolerations,
		}},
		Consumers: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: key.Name, UID: key.UID}},
	})
}

// pending is what the evictor says of a pod that has to leave, or need not any more.
func (w *world) pending(rules ...string) {
	w.controller.Add(rules...)
	synctest.Wait()
}

// evict is what the evictor does to a pod because of a rule.
func (w *world) evict(rule string, keys ...tracker.Key) {
	for _, key := range keys {
		w.tracker.SetTerminating(key)
		w.count(rule)
		w.controller.Add(rule)
	}
	synctest.Wait()
}

// replaceUnseen deletes a rule and creates another one under its name, and nobody
// is told.
func (w *world) replaceUnseen(name string) *resourcev1.DeviceTaintRule {
	w.mu.Lock()
	defer w.mu.Unlock()
	rule := w.rules[name].DeepCopy()
	rule.UID, rule.Generation, rule.Status.Conditions = "successor-of-"+rule.UID, 1, nil
	w.store(rule)
	return rule
}

// hang keeps requests from being answered until release is closed.
func (w *world) hang(release <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = func(ctx context.Context) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// becomes changes the effect of a rule, and the watch does not tell of it.
func (w *world) becomes(name string, effect resourcev1.DeviceTaintEffect) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rule := w.rules[name].DeepCopy()
	rule.Spec.Taint.Effect = effect
	rule.Generation++
	w.store(rule)
	w.deaf = true
}
