package status

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor"
	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// heldWorld is an API server with the policy p, and an evictor that holds pods.
type heldWorld struct {
	client.Client

	mu       sync.Mutex
	heldPods []evictor.Held
	settled  bool
	leads    bool
	err      error
	writes   int
}

func (w *heldWorld) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	w.mu.Lock()
	err := w.err
	if err == nil {
		w.writes++
	}
	w.mu.Unlock()
	if err != nil {
		return err
	}
	return w.Status().Patch(ctx, obj, patch, opts...)
}

// unwatched is a cache without informers.
type unwatched struct{ client.Reader }

func (unwatched) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return nil, errors.New("nothing is watched")
}

func (w *heldWorld) written() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writes
}

func (w *heldWorld) locked(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *heldWorld) status(t *testing.T) (v1alpha1.EvictionPolicyStatus, *metav1.Condition) {
	t.Helper()
	var p v1alpha1.EvictionPolicy
	require.NoError(t, w.Get(t.Context(), types.NamespacedName{Name: "p"}, &p))
	return p.Status, meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionHeld)
}

// runHeld runs a test while a controller runs.
func runHeld(t *testing.T, test func(t *testing.T, w *heldWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		scheme := runtime.NewScheme()
		require.NoError(t, v1alpha1.AddToScheme(scheme))
		policy := &v1alpha1.EvictionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p", Generation: 3}}
		policy.Spec.Taints = []v1alpha1.TaintSelector{{Key: "*"}}
		policy.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "InForce"}}
		w := &heldWorld{settled: true, leads: true}
		w.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(policy).WithStatusSubresource(policy).Build()
		set := eviction.Compile([]v1alpha1.EvictionPolicy{*policy})
		c := NewHeld(controller.Base{
			Cache: unwatched{w}, Status: w, Leads: func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.leads },
			Clock: clock.RealClock{}, Local: clock.RealClock{}, Timeout: time.Second,
		}, HeldOptions{
			Evictions: func() *eviction.Set { return set },
			Held:      func() []evictor.Held { w.mu.Lock(); defer w.mu.Unlock(); return w.heldPods },
			Settled:   func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.settled },
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Start(ctx) }()
		rest(time.Second)
		test(t, w)
		stop()
		require.NoError(t, <-done)
	})
}

// heldOn returns a number of pods that are held because of a node.
func heldOn(node string, n int, reason checks.Reason) []evictor.Held {
	var list []evictor.Held
	for range n {
		list = append(list, evictor.Held{Carrier: tracker.Source{Kind: tracker.SourceNode, Name: node}, Reason: reason, Policy: "p"})
	}
	return list
}

func TestJ01WhatIsHeldStandsInTheStatus(t *testing.T) {
	runHeld(t, func(t *testing.T, w *heldWorld) {
		t.Helper()
		_, condition := w.status(t)
		require.Nil(t, condition, "nothing was ever held")
		w.locked(func() {
			w.heldPods = append(heldOn("a", 3, checks.BreakerTripped), heldOn("b", 5, checks.Protected)...)
			w.heldPods = append(w.heldPods, heldOn("c", 7, checks.NodesDown)...)
		})
		rest(3 * time.Second)
		status, condition := w.status(t)
		require.EqualValues(t, 8, status.Held)
		require.Equal(t, []v1alpha1.HeldEvictions{{Kind: "Node", Name: "b", Pods: 5}, {Kind: "Node", Name: "a", Pods: 3}}, status.Holding)
		require.Equal(t, metav1.ConditionTrue, condition.Status)
		require.Equal(t, "BreakerTripped", condition.Reason)
		require.EqualValues(t, 3, condition.ObservedGeneration)
		require.Contains(t, condition.Message, "Pods held by the breaker: 3. They go when an EvictionApproval")
		require.Contains(t, condition.Message, "Pods protected by the policy: 5.")
		require.NotNil(t, meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady), "what others say stays")

		w.locked(func() { w.heldPods = nil })
		rest(3 * time.Second)
		status, condition = w.status(t)
		require.Zero(t, status.Held)
		require.Empty(t, status.Holding)
		require.Equal(t, metav1.ConditionFalse, condition.Status)
		require.Equal(t, "NothingHeld", condition.Reason)
	})
}

func TestAStatusIsWrittenSeldomAndOnlyWhenItChanges(t *testing.T) {
	runHeld(t, func(t *testing.T, w *heldWorld) {
		t.Helper()
		for i := range 100 {
			w.locked(func() { w.heldPods = heldOn("a", i+1, checks.Paused) })
			rest(100 * time.Millisecond)
		}
		require.LessOrEqual(t, w.written(), 6)
		rest(5 * time.Second)
		writes := w.written()
		rest(time.Hour)
		require.Equal(t, writes, w.written())
		status, condition := w.status(t)
		require.EqualValues(t, 100, status.Held)
		require.Equal(t, "Paused", condition.Reason)
	})
}

func TestAStatusNamesTheObjectsWithTheMostPods(t *testing.T) {
	runHeld(t, func(t *testing.T, w *heldWorld) {
		t.Helper()
		w.locked(func() {
			for i := range 40 {
				w.heldPods = append(w.heldPods, heldOn(fmt.Sprintf("n%02d", i), 1+i%20, checks.BreakerTripped)...)
			}
		})
		rest(3 * time.Second)
		status, _ := w.status(t)
		require.Len(t, status.Holding, maxHolding)
		require.Equal(t, v1alpha1.HeldEvictions{Kind: "Node", Name: "n19", Pods: 20}, status.Holding[0])
		require.Equal(t, v1alpha1.HeldEvictions{Kind: "Node", Name: "n39", Pods: 20}, status.Holding[1])
	})
}

func TestANewLeaderSaysNothingBeforeItKnows(t *testing.T) {
	runHeld(t, func(t *testing.T, w *heldWorld) {
		t.Helper()
		w.locked(func() { w.heldPods = heldOn("a", 2, checks.Paused) })
		rest(3 * time.Second)
		w.locked(func() { w.heldPods, w.settled = nil, false })
		rest(time.Minute)
		status, _ := w.status(t)
		require.EqualValues(t, 2, status.Held)
		w.locked(func() { w.settled = true })
		rest(3 * time.Second)
		status, _ = w.status(t)
		require.Zero(t, status.Held)
	})
}

func TestHeldAStatusThatCannotBeWrittenIsWrittenLater(t *testing.T) {
	runHeld(t, func(t *testing.T, w *heldWorld) {
		t.Helper()
		w.locked(func() { w.err, w.heldPods = errors.New("away"), heldOn("a", 2, checks.Paused) })
		rest(time.Minute)
		w.locked(func() { w.err, w.leads = nil, false })
		rest(time.Minute)
		status, _ := w.status(t)
		require.Zero(t, status.Held, "nothing is written without the lease")
		w.locked(func() { w.leads = true })
		rest(5 * time.Second)
		status, _ = w.status(t)
		require.EqualValues(t, 2, status.Held)
	})
}
