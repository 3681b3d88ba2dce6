package policies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// world is an API server with policies of three kinds, and a cache of them.
type world struct {
	store *Store
	reg   *prometheus.Registry

	mu sync.Mutex
	// synced says whether the first lists have come.
	synced bool
	// tolerations and gates are what the cache holds, stored what the API server does;
	// the cache's where that is nil.
	tolerations []v1alpha1.TolerationPolicy
	gates       []v1alpha1.GatePolicy
	evictions   []v1alpha1.EvictionPolicy
	placements  []v1alpha1.PlacementPolicy
	stored      []v1alpha1.TolerationPolicy
	// storedEvictions are to evictions what stored is to tolerations.
	storedEvictions []v1alpha1.EvictionPolicy
	// listErr, liveErr and served are what the cache, the API server and its discovery
	// answer, undefined how often there is no informer yet.
	listErr, liveErr error
	verbs            metav1.Verbs
	unserved         bool
	undefined        int
	handlers         []toolscache.ResourceEventHandler
	lists            int
	// whole counts the lists of the API server with specs.
	whole int
}

func (w *world) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.undefined > 0 {
		w.undefined--
		return nil, errors.New("no such kind")
	}
	return &fakeInformer{world: w}, nil
}

func (w *world) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lists++
	switch list := list.(type) {
	case *v1alpha1.TolerationPolicyList:
		list.Items = w.tolerations
	case *v1alpha1.GatePolicyList:
		list.Items = w.gates
	case *v1alpha1.EvictionPolicyList:
		list.Items = w.evictions
	case *v1alpha1.PlacementPolicyList:
		list.Items = w.placements
	}
	return w.listErr
}

func (w *world) ServerResourcesForGroupVersionWithContext(context.Context, string) (*metav1.APIResourceList, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unserved {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, "tollgate.dev/v1alpha1")
	}
	return &metav1.APIResourceList{APIResources: []metav1.APIResource{
		{Name: "gatepolicies", Verbs: metav1.Verbs{"create", "list"}},
		{Name: "evictionpolicies", Verbs: metav1.Verbs{"create", "list"}},
		{Name: "tolerationpolicies", Verbs: w.verbs},
		{Name: "placementpolicies", Verbs: w.verbs},
	}}, nil
}

// live is the API server itself.
type live struct{ *world }

func (l live) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if metadata, ok := list.(*metav1.PartialObjectMetadataList); ok {
		return l.listMetadata(ctx, metadata)
	}
	l.mu.Lock()
	l.whole++
	l.mu.Unlock()
	return l.storedIn(ctx, list, opts...)
}

// storedIn lists policies as the API server has them.
func (l live) storedIn(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := l.world.List(ctx, list, opts...); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if tolerations, ok := list.(*v1alpha1.TolerationPolicyList); ok && l.stored != nil {
		tolerations.Items = l.stored
	}
	if evictions, ok := list.(*v1alpha1.EvictionPolicyList); ok && l.storedEvictions != nil {
		evictions.Items = l.storedEvictions
	}
	return l.liveErr
}

// listMetadata lists the metadata of the policies of a kind.
func (l live) listMetadata(ctx context.Context, metadata *metav1.PartialObjectMetadataList) error {
	kind, ok := policyset.KindOf(strings.TrimSuffix(metadata.Kind, "List"))
	if !ok {
		return fmt.Errorf("%s is no list of policies", metadata.Kind)
	}
	list := kind.NewList()
	if err := l.storedIn(ctx, list); err != nil {
		return err
	}
	for _, p := range kind.Items(list) {
		metadata.Items = append(metadata.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: p.GetUID(), Generation: p.GetGeneration()}})
	}
	return nil
}

type fakeInformer struct {
	cache.Informer

	world *world
}

func (f *fakeInformer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	f.world.mu.Lock()
	defer f.world.mu.Unlock()
	f.world.handlers = append(f.world.handlers, handler)
	return nil, nil //nolint:nilnil // The store only hands it back.
}

func (f *fakeInformer) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error {
	return nil
}

func (f *fakeInformer) HasSynced() bool {
	f.world.mu.Lock()
	defer f.world.mu.Unlock()
	return f.world.synced
}

// change changes the world, has all handlers told, and gives the store time.
func (w *world) change(change func()) {
	w.tell(change)
	time.Sleep(time.Second)
}

// tell changes the world and has all handlers told.
func (w *world) tell(change func()) {
	w.mu.Lock()
	change()
	handlers := w.handlers
	w.mu.Unlock()
	for _, handler := range handlers {
		handler.OnUpdate(nil, nil)
	}
}

// listed returns how many lists were asked for.
func (w *world) listed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lists
}

func (w *world) stale(t *testing.T) float64 {
	t.Helper()
	return testutil.ToFloat64(w.store.options.Metrics.stale.WithLabelValues("TolerationPolicy"))
}

func named(name string) v1alpha1.TolerationPolicy {
	return v1alpha1.TolerationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Generation: 1},
		Spec:       v1alpha1.TolerationPolicySpec{Taints: []v1alpha1.TaintSelector{{Key: name}}},
	}
}

func gate(name string) v1alpha1.GatePolicy {
	return v1alpha1.GatePolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Generation: 1},
		Spec:       v1alpha1.GatePolicySpec{Gates: []string{name}},
	}
}

// inBubble runs test with a store that has been started.
func inBubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{verbs: metav1.Verbs{"create", "list"}, reg: prometheus.NewPedanticRegistry()}
		w.store = NewStore(Options{
			Kinds: slices.DeleteFunc(policyset.Kinds(), func(k policyset.Kind) bool { return k.Name == "TaintPolicy" }),
			Cache: w, Live: live{w}, Discovery: w, Clock: clock.RealClock{}, Metrics: NewMetrics(w.reg),
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.store.Start(ctx) }()
		test(t, w)
		stop()
		require.NoError(t, <-done)
	})
}

func TestTheStatusOfAPolicyChangesNothingThatIsInForce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		t.Helper()
		policy := v1alpha1.EvictionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "e", UID: "uid-e", Generation: 1}}
		w.change(func() { w.synced, w.evictions = true, []v1alpha1.EvictionPolicy{policy} })
		before := w.store.Current()
		changed, stop := w.store.Subscribe()
		defer stop()
		w.change(func() {
			counted := policy
			counted.Status.Held, counted.ResourceVersion = 9, "2"
			w.evictions = []v1alpha1.EvictionPolicy{counted}
		})
		require.Same(t, before, w.store.Current())
		require.Empty(t, changed)
		w.change(func() { w.evictions = nil })
		require.Zero(t, w.store.Current().Evictions.Len())
	})
}

func TestE07NotReadyBeforeTheFirstSnapshot(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		t.Helper()
		time.Sleep(time.Hour) // the first list takes its time
		require.ErrorContains(t, w.store.Ready(nil), "not been read yet")
		require.Nil(t, w.store.Current())

		w.change(func() { w.synced, w.tolerations = true, []v1alpha1.TolerationPolicy{named("a")} })
		require.NoError(t, w.store.Ready(nil))
		require.Equal(t, 1, w.store.Current().Tolerations.Len())
	})
}

func TestD04AChangeReplacesThePoliciesOfAllKindsTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		t.Helper()
		w.change(func() { w.synced, w.gates = true, []v1alpha1.GatePolicy{gate("a")} })
		before := w.store.Current()
		require.Zero(t, before.Tolerations.Len())
		require.Equal(t, 1, before.Gates.Len())
		changed, stop := w.store.Subscribe()
		defer stop()

		lists := w.listed()
		w.change(func() {
			w.tolerations = []v1alpha1.TolerationPolicy{named("a"), named("b")}
			for range 1000 {
				w.handlers[0].OnAdd(nil, false)
			}
		})
		now := w.store.Current()
		require.Equal(t, 2, now.Tolerations.Len())
		require.NotEqual(t, before.Version, now.Version)
		require.Same(t, before.Gates, now.Gates, "what did not change is not compiled again")
		require.Zero(t, before.Tolerations.Len(), "a review that holds the old ones goes on with them")
		require.LessOrEqual(t, w.listed()-lists, len(w.store.options.Kinds)+1, "a thousand events are compiled once, or once more")
		require.Len(t, changed, 1)
	})
}

func TestAChangeThatChangesNoSpecIsNone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		t.Helper()
		w.change(func() { w.synced, w.tolerations = true, []v1alpha1.TolerationPolicy{named("a")} })
		before := w.store.Current()
		w.change(func() { w.tolerations[0].Status.ObservedGeneration = 1 })
		require.Same(t, before, w.store.Current())
	})
}

func TestAPolicyThatIsDeletedIsOutOfForceWithinASecondD04(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		t.Helper()
		w.change(func() { w.synced, w.tolerations = true, []v1alpha1.TolerationPolicy{named("a")} })
		w.change(func() { w.tolerations = nil })
		require.Zero(t, w.store.Current().Tolerations.Len())
		require.Zero(t, w.stale(t))
	})
}

func TestD05PoliciesStayInForceWhenTheirDefinitionGoes(t *testing.T) {
	for sentence, going := range map[string]func(w *world){
		"while it is on its way out": func(w *world) { w.verbs = metav1.Verbs{"delete", "get", "list"} },
		"once it is gone":            func(w *world) { w.verbs = nil },
		"once no kind is defined":    func(w *world) { w.unserved = true },
	} {
		t.Run(sentence, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				t.Helper()
				w.change(func() {
					w.synced, w.gates = true, []v1alpha1.GatePolicy{gate("g")}
					w.tolerations = []v1alpha1.TolerationPolicy{named("a"), named("b")}
				})
				w.change(func() {
					going(w)
					w.tolerations = w.tolerations[:1] // the first of them is deleted
				})
				w.change(func() { w.tolerations = nil })
				require.Equal(t, 2, w.store.Current().Tolerations.Len())
				require.InDelta(t, 1, w.stale(t), 0)
				require.NoError(t, w.store.Ready(nil), "it goes on judging")
				time.Sleep(time.Hour)
				require.Equal(t, 2, w.store.Current().Tolerations.Len())

				w.change(func() { w.gates = append(w.gates, gate("h")) })
				require.Equal(t, 2, w.store.Current().Gates.Len(), "the other kinds go on")

				w.change(func() {
					w.verbs, w.unserved = metav1.Verbs{"create", "list"}, false
					w.stored = []v1alpha1.TolerationPolicy{named("c")}
				})
				require.Equal(t, 2, w.store.Current().Tolerations.Len(), "the watch has not seen what is stored")
				w.change(func() { w.tolerations = w.stored })
				time.Sleep(time.Second)
				require.Equal(t, 1, w.store.Current().Tolerations.Len())
				require.Zero(t, w.stale(t))
			})
		})
	}
}

func TestD05AGuardStaysInForceWhenItsDefinitionGoes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		t.Helper()
		w.change(func() {
			w.synced = true
			w.placements = []v1alpha1.PlacementPolicy{{
				ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p", Generation: 1},
				Spec: v1alpha1.PlacementPolicySpec{
					Match: v1alpha1.PlacementMatch{Namespaces: []string{"a"}},
					Guard: &v1alpha1.PlacementGuard{Taints: []v1alpha1.RegisteredTaint{{Key: "dedicated", Value: "a", Effect: "NoSchedule"}}},
				},
			}}
		})
		require.Equal(t, 1, w.store.Current().Tolerations.Len())
		w.change(func() { w.verbs, w.placements = metav1.Verbs{"delete", "get", "list"}, nil })
		time.Sleep(time.Hour)
		require.Equal(t, 1, w.store.Current().Tolerations.Len())
		w.change(func() { w.verbs = metav1.Verbs{"create", "list"} })
		time.Sleep(time.Minute)
		require.Zero(t, w.store.Current().Tolerations.Len(), "no PlacementPolicy is stored")
	})
}

func TestD05WhatIsInForceStaysWhenPoliciesCannotBeRead(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		t.Helper()
		w.change(func() { w.synced, w.tolerations = true, []v1alpha1.TolerationPolicy{named("a")} })
		w.change(func() { w.tolerations, w.listErr = nil, errors.New("no") })
		require.Equal(t, 1, w.store.Current().Tolerations.Len())
		w.change(func() { w.listErr = nil })
		time.Sleep(time.Second)
		require.Zero(t, w.store.Current().Tolerations.Len(), "it is tried again")
	})
}

func TestD05APersistentFailureToReadIsSaid(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		t.Helper()
		w.change(func() { w.synced, w.tolerations = true, []v1alpha1.TolerationPolicy{named("a")} })
		w.mu.Lock()
		w.liveErr = errors.New("conversion webhook failed")
		w.mu.Unlock()
		time.Sleep(time.Minute)
		require.InDelta(t, 1, w.stale(t), 0, "the informer is silent about it")
		require.Equal(t, 1, w.store.Current().Tolerations.Len())
		w.mu.Lock()
		w.liveErr = nil
		w.mu.Unlock()
		time.Sleep(time.Minute)
		require.Zero(t, w.stale(t))
	})
}

func TestAKindThatIsDefinedLaterIsWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		t.Helper()
		w.change(func() { w.synced, w.undefined = true, 5 })
		require.Error(t, w.store.Ready(nil))
		time.Sleep(time.Minute)
		require.NoError(t, w.store.Ready(nil))
	})
}

func TestEveryKindHasASeriesFromTheBeginning(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		t.Helper()
		w.change(func() { w.synced = true })
		for _, kind := range []string{"TolerationPolicy", "PlacementPolicy", "GatePolicy", "EvictionPolicy"} {
			for _, inForce := range []string{"fully", "partly"} {
				_, err := w.store.options.Metrics.policies.GetMetricWithLabelValues(kind, inForce)
				require.NoError(t, err)
			}
		}
		count, err := testutil.GatherAndCount(w.reg, "tollgate_policies")
		require.NoError(t, err)
		require.Equal(t, 8, count)
	})
}

func TestStoreStopsBeforeItHasSynced(t *testing.T) {
	inBubble(t, func(*testing.T, *world) {})
}

func TestWithoutKindsNothingIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := NewStore(Options{Clock: clock.RealClock{}, Metrics: NewMetrics(prometheus.NewPedanticRegistry())})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- store.Start(ctx) }()
		synctest.Wait()
		require.NoError(t, store.Ready(nil))
		require.Zero(t, store.Current().Tolerations.Len())
		stop()
		require.NoError(t, <-done)
	})
}

// TestManyPoliciesAreInForceSoonD02 holds a generous bound: what it takes is in the
// benchmarks.
func TestManyPoliciesAreInForceSoonD02(t *testing.T) {
	many := make([]v1alpha1.TolerationPolicy, 10_000)
	for i := range many {
		many[i] = named(fmt.Sprintf("p%d", i))
	}
	began := time.Now()
	policies := policyset.None().WithTolerations(many)
	require.Equal(t, len(many), policies.Tolerations.Len())
	require.Less(t, time.Since(began), 10*time.Second)
}
