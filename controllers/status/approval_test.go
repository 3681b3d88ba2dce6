package status

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/tracker"
)

// approvalWorld is an API server with one approval, one node and one rule.
type approvalWorld struct {
	controller.Cache

	controller *ApprovalController
	registry   *prometheus.Registry
	stop       func()
	done       chan error

	mu       sync.Mutex
	approval *v1alpha1.EvictionApproval
	tracker  *tracker.Tracker
	left     int
	asked    []tracker.Source
	err      error
	writes   int
	handlers map[string]toolscache.ResourceEventHandler
}

func (w *approvalWorld) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if approval, ok := obj.(*v1alpha1.EvictionApproval); ok && w.approval != nil && w.approval.Name == key.Name {
		w.approval.DeepCopyInto(approval)
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (w *approvalWorld) GetInformer(_ context.Context, obj client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	return &approvalFakeInformer{world: w, object: obj}, nil
}

type approvalFakeInformer struct {
	cache.Informer

	world  *approvalWorld
	object client.Object
}

func (f *approvalFakeInformer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	f.world.mu.Lock()
	defer f.world.mu.Unlock()
	kind := "approval"
	if _, ok := f.object.(*corev1.Node); ok {
		kind = "node"
	}
	f.world.handlers[kind] = handler
	if kind == "approval" && f.world.approval != nil {
		handler.OnAdd(f.world.approval, true)
	}
	return nil, nil //nolint:nilnil // It is only handed back.
}

func (f *approvalFakeInformer) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error {
	return nil
}

func (w *approvalWorld) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes++
	if w.err != nil {
		return w.err
	}
	before, err := json.Marshal(w.approval)
	if err != nil {
		return err
	}
	change, err := patch.Data(obj)
	if err != nil {
		return err
	}
	after, err := jsonpatch.MergePatch(before, change)
	if err != nil {
		return err
	}
	written := &v1alpha1.EvictionApproval{}
	if err := json.Unmarshal(after, written); err != nil {
		return err
	}
	w.approval = written
	w.handlers["approval"].OnUpdate(nil, written)
	return nil
}

func (w *approvalWorld) evicted(source tracker.Source, key string, _ time.Time) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, source)
	if key != "broken" {
		return 0
	}
	return w.left
}

// taint sets the taints of the node and sends its event.
func (w *approvalWorld) taint(taints ...corev1.Taint) {
	w.tracker.SetNode(tracker.Node{Name: "n", UID: "n", Taints: taints}, time.Now())
	w.mu.Lock()
	handler := w.handlers["node"]
	w.mu.Unlock()
	handler.OnUpdate(nil, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	rest(time.Second)
}

// set writes the rule and sends its event.
func (w *approvalWorld) set(rule tracker.Rule) {
	w.tracker.SetRule(rule, time.Now())
	w.controller.RuleChanged(rule.Name)
	rest(time.Second)
}

// state returns the reason of the condition and the other fields of the status as text.
func (w *approvalWorld) state() (string, v1alpha1.EvictionApprovalStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	condition := meta.FindStatusCondition(w.approval.Status.Conditions, v1alpha1.ConditionReady)
	if condition == nil {
		return "", w.approval.Status
	}
	return condition.Reason, w.approval.Status
}

func (w *approvalWorld) requireState(t *testing.T, want string) {
	t.Helper()
	reason, status := w.state()
	require.Equal(t, want, reason)
	require.Equal(t, want == reasonUsed, status.UsedAt != nil)
	ready := meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady)
	require.Equal(t, want == reasonOpen, ready)
}

// runApprovals runs test while a controller runs with an approval for node n, or for a
// rule r.
func runApprovals(t *testing.T, forRule bool, test func(t *testing.T, w *approvalWorld)) {
	t.Helper()
	runWith(t, func(spec *v1alpha1.EvictionApprovalSpec) {
		if forRule {
			spec.Node, spec.DeviceTaintRule = "", "r"
		}
	}, test)
}

// runWith calls runApprovals with a changed approval.
func runWith(t *testing.T, change func(*v1alpha1.EvictionApprovalSpec), test func(t *testing.T, w *approvalWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &approvalWorld{handlers: map[string]toolscache.ResourceEventHandler{}}
		w.approval = &v1alpha1.EvictionApproval{
			ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a", ResourceVersion: "1", Generation: 1, CreationTimestamp: metav1.Now()},
			Spec: v1alpha1.EvictionApprovalSpec{
				Node: "n", Taint: v1alpha1.ApprovedTaint{Key: "broken", Effect: corev1.TaintEffectNoExecute}, MaxPods: 10,
				ExpiresAfter: metav1.Duration{Duration: time.Hour},
			},
		}
		change(&w.approval.Spec)
		w.tracker = tracker.New()
		w.tracker.SetNode(tracker.Node{Name: "n", UID: "n"}, time.Now())
		w.registry = prometheus.NewPedanticRegistry()
		w.controller = NewApprovals(controller.Base{
			Cache: w, Status: w, Clock: clock.RealClock{}, Local: clock.RealClock{}, Leads: func() bool { return true }, Timeout: time.Second,
		}, ApprovalOptions{Standing: w.tracker.Standing, Left: w.evicted, Metrics: NewMetrics(w.registry)})
		w.start(t)
		w.requireState(t, reasonOpen)
		test(t, w)
		w.stop()
		require.NoError(t, <-w.done)
	})
}

func (w *approvalWorld) start(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w.stop, w.done = stop, make(chan error)
	go func() { w.done <- w.controller.Start(ctx) }()
	rest(time.Second)
}

// again makes the replica lose the lease and get it back.
func (w *approvalWorld) again(t *testing.T) {
	t.Helper()
	w.stop()
	require.NoError(t, <-w.done)
	w.start(t)
}

// approved returns the approved taint with an age.
func approved(age time.Duration) corev1.Taint {
	return corev1.Taint{Key: "broken", Effect: corev1.TaintEffectNoExecute, TimeAdded: new(metav1.NewTime(time.Now().Add(-age)))}
}

func TestAnApprovalIsUsedOnce(t *testing.T) {
	runApprovals(t, false, func(t *testing.T, w *approvalWorld) {
		t.Helper()
		w.taint(corev1.Taint{Key: "broken", Effect: corev1.TaintEffectNoSchedule, TimeAdded: new(metav1.Now())},
			corev1.Taint{Key: "other", Effect: corev1.TaintEffectNoExecute, TimeAdded: new(metav1.Now())})
		w.requireState(t, reasonOpen)
		w.taint(approved(0))
		w.requireState(t, reasonUsed)
		_, first := w.state()
		w.taint()
		rest(2 * time.Hour)
		w.requireState(t, reasonUsed)
		_, then := w.state()
		require.Equal(t, first.UsedAt.Unix(), then.UsedAt.Unix())
		w.again(t)
		w.requireCounted(t, 1)
	})
}

func TestAnApprovalThatABreakerUsedIsCounted(t *testing.T) {
	runApprovals(t, false, func(t *testing.T, w *approvalWorld) {
		t.Helper()
		w.requireCounted(t, 0)
		w.mu.Lock()
		w.approval.Status.UsedAt = new(metav1.Now())
		w.handlers["approval"].OnUpdate(nil, w.approval)
		w.mu.Unlock()
		rest(time.Hour)
		w.requireState(t, reasonUsed)
		w.requireCounted(t, 1)
	})
}

func TestAnApprovalForAPolicyIsUsedUntilItsPodsAreGone(t *testing.T) {
	runApprovals(t, false, func(t *testing.T, w *approvalWorld) {
		t.Helper()
		write := func(released int32) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.approval.Spec = v1alpha1.EvictionApprovalSpec{EvictionPolicy: "default", MaxPods: 5, ExpiresAfter: metav1.Duration{Duration: time.Hour}}
			if w.approval.Status.Released = released; released > 0 {
				w.approval.Status.UsedAt = new(metav1.Now())
			}
			w.handlers["approval"].OnUpdate(nil, w.approval)
		}
		write(0)
		rest(time.Minute)
		w.requireState(t, reasonOpen)
		w.taint(approved(0))
		w.requireState(t, reasonOpen)
		write(3)
		rest(time.Minute)
		reason, status := w.state()
		require.Equal(t, reasonOpen, reason, "it lets more pods go")
		require.True(t, meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady))
		require.EqualValues(t, 3, status.Evicted)
		require.Equal(t, "The breaker of EvictionPolicy default may let 2 more pods go, until "+
			w.approval.CreationTimestamp.Add(time.Hour).UTC().Format(time.RFC3339)+".", status.Conditions[0].Message)
		write(5)
		rest(time.Minute)
		w.requireState(t, reasonUsed)
		w.requireCounted(t, 0)
		require.InDelta(t, 1, testutil.ToFloat64(w.controller.Metrics.WithLabelValues("evictionpolicy")), 0)
	})
}

// requireCounted requires a number of used approvals for nodes in the metric.
func (w *approvalWorld) requireCounted(t *testing.T, want float64) {
	t.Helper()
	require.InDelta(t, want, testutil.ToFloat64(w.controller.Metrics.WithLabelValues("node")), 0)
}

func TestAnApprovalExpires(t *testing.T) {
	runApprovals(t, false, func(t *testing.T, w *approvalWorld) {
		t.Helper()
		rest(59 * time.Minute)
		w.requireState(t, reasonOpen)
		rest(2 * time.Minute)
		w.requireState(t, reasonExpired)
		w.taint(approved(0))
		w.requireState(t, reasonExpired)
	})
}

func TestATaintWithATimeInThePastUsesAnApprovalToo(t *testing.T) {
	runApprovals(t, false, func(t *testing.T, w *approvalWorld) {
		t.Helper()
		w.taint(approved(24 * time.Hour))
		w.requireState(t, reasonUsed)
	})
}

func TestATaintThatWasThereUsesNoApproval(t *testing.T) {
	runApprovals(t, true, func(t *testing.T, w *approvalWorld) {
		t.Helper()
		standing := approved(24 * time.Hour)
		w.taint(standing)
		rest(time.Hour)
		w.mu.Lock()
		again := w.approval.DeepCopy()
		again.UID, again.Spec.DeviceTaintRule, again.Spec.Node = "again", "", "n"
		again.CreationTimestamp, again.Status = metav1.Now(), v1alpha1.EvictionApprovalStatus{}
		w.approval = again
		w.mu.Unlock()
		w.handlers["approval"].OnAdd(again, false)
		rest(time.Second)
		w.taint(standing, corev1.Taint{Key: "other", Effect: corev1.TaintEffectNoSchedule})
		w.requireState(t, reasonOpen)
		w.taint(approved(48 * time.Hour))
		w.requireState(t, reasonUsed)
	})
}

func TestARuleThatIsWidenedUsesAnApproval(t *testing.T) {
	runApprovals(t, true, func(t *testing.T, w *approvalWorld) {
		t.Helper()
		rule := tracker.Rule{Name: "r", UID: "r", Generation: 1, Taint: resourcev1.DeviceTaint{
			Key: "broken", Effect: resourcev1.DeviceTaintEffectNone, TimeAdded: new(metav1.NewTime(time.Now().Add(-time.Hour))),
		}}
		w.set(rule)
		w.requireState(t, reasonOpen)
		evicting := rule
		evicting.Generation, evicting.Taint.Effect = 2, resourcev1.DeviceTaintEffectNoExecute
		w.set(evicting)
		w.requireState(t, reasonUsed)
		require.Equal(t, tracker.Source{Kind: tracker.SourceRule, Name: "r"}, w.asked[0])
	})
}

func TestATimeThatIsStillToComeUsesAnApprovalToo(t *testing.T) {
	runApprovals(t, true, func(t *testing.T, w *approvalWorld) {
		t.Helper()
		rule := tracker.Rule{Name: "r", UID: "r", Created: time.Now().Add(-time.Hour), Taint: resourcev1.DeviceTaint{
			Key: "broken", Effect: resourcev1.DeviceTaintEffectNoExecute, TimeAdded: new(metav1.NewTime(time.Now().Add(24 * time.Hour))),
		}}
		w.set(rule)
		rest(time.Minute)
		w.requireState(t, reasonOpen)
		wider := rule
		wider.Generation, wider.Selects = 2, true
		w.set(wider)
		w.requireState(t, reasonUsed)
	})
}

func TestARuleThatWasWidenedWhileNobodyLedUsesAnApproval(t *testing.T) {
	runApprovals(t, true, func(t *testing.T, w *approvalWorld) {
		t.Helper()
		old := time.Now().Add(-time.Hour)
		rule := tracker.Rule{Name: "r", UID: "r", Created: old, Taint: resourcev1.DeviceTaint{
			Key: "broken", Effect: resourcev1.DeviceTaintEffectNoExecute, TimeAdded: new(metav1.NewTime(old)),
		}}
		w.set(rule)
		w.requireState(t, reasonOpen)
		w.mu.Lock()
		w.err = errors.New("away")
		w.mu.Unlock()
		wider := rule
		wider.Generation, wider.Selects = 2, true
		w.tracker.SetRule(wider, time.Now())
		widened := time.Now()
		rest(time.Minute)
		w.mu.Lock()
		w.err = nil
		w.mu.Unlock()
		w.again(t)
		w.requireState(t, reasonUsed)
		_, status := w.state()
		require.Equal(t, widened.Unix(), status.UsedAt.Unix(), "pods that left since then count")
	})
}

func TestWhatIsNotFollowedIsNotUsed(t *testing.T) {
	runApprovals(t, false, func(t *testing.T, w *approvalWorld) {
		t.Helper()
		w.controller.Standing = nil
		w.taint(approved(0))
		w.requireState(t, reasonOpen)
	})
}

func TestATaintThatIsKnownLateUsesAnApproval(t *testing.T) {
	runApprovals(t, false, func(t *testing.T, w *approvalWorld) {
		t.Helper()
		w.tracker.SetNode(tracker.Node{Name: "n", UID: "n", Taints: []corev1.Taint{approved(0)}}, time.Now())
		rest(openPause) // no event is sent
		w.requireState(t, reasonUsed)
	})
}

func TestWhatAnotherReplicaSawDeletedIsForgotten(t *testing.T) {
	runApprovals(t, false, func(t *testing.T, w *approvalWorld) {
		t.Helper()
		w.mu.Lock()
		w.approval = nil
		w.mu.Unlock()
		w.again(t)
		w.controller.mu.Lock()
		defer w.controller.mu.Unlock()
		require.Empty(t, w.controller.states)
	})
}

func TestThePodsThatHaveGoneAreCounted(t *testing.T) {
	runApprovals(t, false, func(t *testing.T, w *approvalWorld) {
		t.Helper()
		w.taint(approved(0))
		w.mu.Lock()
		w.left = 7
		w.mu.Unlock()
		rest(countPause)
		_, status := w.state()
		require.EqualValues(t, 7, status.Evicted)

		w.controller.mu.Lock()
		clear(w.controller.states) // another replica leads, which began to count only now
		w.controller.mu.Unlock()
		w.mu.Lock()
		w.left = 0
		w.mu.Unlock()
		rest(countPause)
		w.mu.Lock()
		w.left = 3
		w.mu.Unlock()
		rest(countPause)
		_, status = w.state()
		require.EqualValues(t, 10, status.Evicted)
	})
}

func TestAnApprovalOfAnObjectThatIsNotThereIsOpen(t *testing.T) {
	runApprovals(t, true, func(t *testing.T, w *approvalWorld) {
		t.Helper()
		w.set(tracker.Rule{Name: "another"})
		w.requireState(t, reasonOpen)
		w.mu.Lock()
		gone := w.approval
		w.approval = nil
		w.mu.Unlock()
		w.handlers["approval"].OnDelete(toolscache.DeletedFinalStateUnknown{Obj: gone})
		rest(time.Second)
		require.Empty(t, w.controller.states)
	})
}

func TestApprovalAStatusThatCannotBeWrittenIsWrittenLater(t *testing.T) {
	runApprovals(t, false, func(t *testing.T, w *approvalWorld) {
		t.Helper()
		w.mu.Lock()
		w.err = errors.New("away")
		w.mu.Unlock()
		w.taint(approved(0))
		rest(time.Minute)
		w.mu.Lock()
		w.err = nil
		w.mu.Unlock()
		rest(time.Minute)
		w.requireState(t, reasonUsed)
	})
}

func TestAnApprovalThatWasMadeAnewIsAnother(t *testing.T) {
	used := &v1alpha1.EvictionApproval{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: types.UID("old")}}
	c := NewApprovals(controller.Base{}, ApprovalOptions{})
	c.reset()
	first := c.stateOf(used)
	require.Same(t, first, c.stateOf(used))
	anew := used.DeepCopy()
	anew.UID = "new"
	require.NotSame(t, first, c.stateOf(anew))
}
