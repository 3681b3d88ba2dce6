package devicetaints

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/tracker"
)

// world is an API server with rules, a tracker of them, and the policies in force.
type world struct {
	*tracker.Tracker

	mu      sync.Mutex // guards what is below
	t       *testing.T
	stored  map[string]*resourcev1.DeviceTaintRule
	version int
	calls   []string
	events  []string
	fault   error
	// refused are the names of rules that may not be written.
	refused map[string]bool
	policy  *policyset.Set
	// window is true in mode Window.
	window bool
	// staleTracker disables updates of the tracker by writes.
	staleTracker bool

	changed chan struct{}
	synced  bool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{Tracker: tracker.New(), t: t, stored: map[string]*resourcev1.DeviceTaintRule{}, refused: map[string]bool{}, changed: make(chan struct{}, 1), synced: true}
}

func (w *world) controller() *Controller {
	return New(controller.Base{
		Policies: w, Recorder: w, Local: clock.RealClock{}, Leads: func() bool { return true }, Timeout: time.Minute,
	}, Options{
		Devices: w.Tracker, Synced: func() bool { return w.synced }, Client: w, Window: w.window, Metrics: NewMetrics(prometheus.NewPedanticRegistry()),
	})
}

func (w *world) Current() *policyset.Set {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.policy
}

func (w *world) Subscribe() (<-chan struct{}, func()) { return w.changed, func() {} }

// give brings a policy into force that gives claims a toleration of key with
// tolerationSeconds; none if the key is empty.
func (w *world) give(keys ...string) {
	policies := make([]v1alpha1.PlacementPolicy, 0, len(keys))
	for _, key := range keys {
		policies = append(policies, v1alpha1.PlacementPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: key, UID: types.UID(key)},
			Spec: v1alpha1.PlacementPolicySpec{
				Match: v1alpha1.PlacementMatch{Namespaces: []string{"*"}},
				Claim: &v1alpha1.ClaimPlacement{Tolerations: []resourcev1.DeviceToleration{{
					Key: key, Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoExecute, TolerationSeconds: new(int64(300)),
				}}},
			},
		})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.policy = (*policyset.Set)(nil).WithPlacement(policies)
}

// windows brings policies into force that give claims time for taints with these keys, in
// mode Window.
func (w *world) windows(keys ...string) {
	policies := make([]v1alpha1.EvictionPolicy, 0, len(keys))
	for _, key := range keys {
		policies = append(policies, v1alpha1.EvictionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: key, UID: types.UID(key)},
			Spec: v1alpha1.EvictionPolicySpec{
				Taints: []v1alpha1.TaintSelector{{Target: v1alpha1.TaintTargetDevice, Key: key}},
				Inject: &v1alpha1.EvictionInjection{Seconds: 20},
			},
		})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.policy = w.policy.WithEvictions(policies)
}

// Eventf implements recorder.
func (w *world) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, eventType+" "+reason+" "+object.(*corev1.ObjectReference).Name+": "+fmt.Sprintf(format, args...))
}

var ruleResource = schema.GroupResource{Group: "resource.k8s.io", Resource: "devicetaintrules"}

// Get implements rules.
func (w *world) Get(_ context.Context, name string) (*resourcev1.DeviceTaintRule, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, "get "+name)
	if w.fault != nil {
		return nil, w.fault
	}
	rule, ok := w.stored[name]
	if !ok {
		return nil, apierrors.NewNotFound(ruleResource, name)
	}
	return rule.DeepCopy(), nil
}

// Create implements rules.
func (w *world) Create(_ context.Context, build BuildRule) error {
	rule := build("resource.k8s.io/v1")
	w.note("create " + rule.Name)
	if w.refused[rule.Name] {
		return apierrors.NewForbidden(ruleResource, rule.Name, errors.New("refused"))
	}
	if _, ok := w.stored[rule.Name]; ok {
		return apierrors.NewAlreadyExists(ruleResource, rule.Name)
	}
	w.put(rule)
	return nil
}

// Update implements rules.
func (w *world) Update(_ context.Context, stored *resourcev1.DeviceTaintRule, build BuildRule) error {
	rule := build("resource.k8s.io/v1")
	w.note("update " + rule.Name)
	if w.stored[rule.Name].ResourceVersion != stored.ResourceVersion {
		return apierrors.NewConflict(ruleResource, rule.Name, errors.New("it was written since"))
	}
	rule.UID = stored.UID
	w.put(rule)
	return nil
}

// Delete implements rules.
func (w *world) Delete(_ context.Context, stored *resourcev1.DeviceTaintRule) error {
	w.note("delete " + stored.Name)
	w.drop(stored.Name)
	return nil
}

func (w *world) note(call string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, call)
}

// put stores a rule of another writer.
func (w *world) put(rule *resourcev1.DeviceTaintRule) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version++
	rule.ResourceVersion = strconv.Itoa(w.version)
	if rule.UID == "" {
		rule.UID = types.UID("uid-" + rule.ResourceVersion)
	}
	w.stored[rule.Name] = rule
	if !w.staleTracker {
		w.SetRule(tracker.RuleOf(rule), time.Unix(0, 0))
	}
}

func (w *world) drop(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rule := w.stored[name]
	delete(w.stored, name)
	if !w.staleTracker {
		w.DeleteRule(name, rule.UID)
	}
}

// taken returns the calls since the last time, and the events.
func (w *world) taken() (calls, events []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls, events, w.calls, w.events = w.calls, w.events, nil, nil
	return calls, events
}

// pairs returns the rules of the controller as text.
func (w *world) pairs() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var text []string
	for name, rule := range w.stored {
		if rule.Labels[Label] != "" {
			s := rule.Spec.DeviceSelector
			at := make([]string, 0, 3)
			for _, part := range []*string{s.Driver, s.Pool, s.Device} {
				if part == nil {
					part = new("*")
				}
				at = append(at, *part)
			}
			text = append(text, fmt.Sprintf("%s %s %s=%s:%s of %s", name, strings.Join(at, "/"), rule.Spec.Taint.Key, rule.Spec.Taint.Value, rule.Spec.Taint.Effect, rule.OwnerReferences[0].Name))
		}
	}
	slices.Sort(text)
	return text
}

// step runs steps for a rule, or for published taints, until nothing changes.
func (w *world) step(c *Controller, name string) {
	w.t.Helper()
	_, err := c.reconcile(w.t.Context(), name)
	require.NoError(w.t, err)
}

func rule(name, device, taintKey string, effect resourcev1.DeviceTaintEffect) *resourcev1.DeviceTaintRule {
	return &resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.DeviceTaintRuleSpec{
			DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: new("gpu.example.com"), Device: &device},
			Taint:          resourcev1.DeviceTaint{Key: taintKey, Value: "v", Effect: effect},
		},
	}
}
