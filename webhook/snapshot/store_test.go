package snapshot

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// fakeCache is a cache of policies that a test fills.
type fakeCache struct {
	cache.Informer

	mutex   sync.Mutex
	synced  bool
	items   []v1alpha1.TolerationPolicy
	listErr error
	handler toolscache.ResourceEventHandler
	lists   int
}

func (f *fakeCache) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return f, nil
}

func (f *fakeCache) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.lists++
	list.(*v1alpha1.TolerationPolicyList).Items = f.items
	return f.listErr
}

func (f *fakeCache) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	f.handler = handler
	return nil, nil //nolint:nilnil // The store only hands it back.
}

func (f *fakeCache) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error { return nil }

func (f *fakeCache) HasSynced() bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.synced
}

func (f *fakeCache) set(change func()) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	change()
}

func policyNamed(name string) v1alpha1.TolerationPolicy {
	return v1alpha1.TolerationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.TolerationPolicySpec{Taints: []v1alpha1.TaintSelector{{Key: name}}},
	}
}

// inBubble runs test with a store that has been started on a fake cache.
func inBubble(t *testing.T, test func(t *testing.T, fake *fakeCache, store *Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		fake := &fakeCache{}
		store := NewStore(fake, clock.RealClock{}, NewMetrics(prometheus.NewPedanticRegistry()))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- store.Start(ctx) }()
		test(t, fake, store)
		stop()
		require.NoError(t, <-done)
	})
}

func TestE07NotReadyBeforeTheFirstSnapshot(t *testing.T) {
	inBubble(t, func(t *testing.T, fake *fakeCache, store *Store) {
		t.Helper()
		time.Sleep(time.Hour) // the first list takes its time
		require.ErrorContains(t, store.Ready(nil), "not been read yet")
		require.Nil(t, store.Tolerations())

		fake.set(func() { fake.synced, fake.items = true, []v1alpha1.TolerationPolicy{policyNamed("a")} })
		time.Sleep(time.Second)
		require.NoError(t, store.Ready(nil))
		require.Equal(t, 1, store.Tolerations().Len())
	})
}

func TestD04AChangeReplacesTheWholeSnapshot(t *testing.T) {
	inBubble(t, func(t *testing.T, fake *fakeCache, store *Store) {
		t.Helper()
		fake.set(func() { fake.synced = true })
		time.Sleep(time.Second)
		before := store.Tolerations()
		require.Zero(t, before.Len())

		fake.set(func() { fake.items = []v1alpha1.TolerationPolicy{policyNamed("a"), policyNamed("b")} })
		lists := fake.lists
		for range 1000 {
			fake.handler.OnAdd(nil, false)
		}
		time.Sleep(time.Second)
		require.Equal(t, 2, store.Tolerations().Len())
		require.Zero(t, before.Len(), "a review that holds the old one goes on with it")
		require.LessOrEqual(t, fake.lists-lists, 2, "a thousand events are compiled once, or once more")
	})
}

func TestWhatIsInForceStaysWhenPoliciesCannotBeRead(t *testing.T) {
	inBubble(t, func(t *testing.T, fake *fakeCache, store *Store) {
		t.Helper()
		fake.set(func() { fake.synced, fake.items = true, []v1alpha1.TolerationPolicy{policyNamed("a")} })
		time.Sleep(time.Second)
		fake.set(func() { fake.items, fake.listErr = nil, errors.New("no") })
		fake.handler.OnDelete(nil)
		time.Sleep(time.Second)
		require.Equal(t, 1, store.Tolerations().Len())
		fake.set(func() { fake.listErr = nil })
		time.Sleep(time.Second)
		require.Zero(t, store.Tolerations().Len(), "it is tried again")
	})
}

func TestStoreStopsBeforeItHasSynced(t *testing.T) {
	inBubble(t, func(*testing.T, *fakeCache, *Store) {})
}

func TestReadySaysWhetherAllOfAPolicyIsInForce(t *testing.T) {
	good, bad := policyNamed("a"), policyNamed("b")
	good.Generation, bad.Generation = 3, 4
	bad.Spec.Grants = []v1alpha1.TolerationGrant{{RBAC: true}}
	require.Equal(t, metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, ObservedGeneration: 3, Reason: "InForce", Message: messageInForce,
	}, ready(&good, true))
	condition := ready(&bad, true)
	require.Equal(t, metav1.ConditionFalse, condition.Status)
	require.Equal(t, "PartlyInForce", condition.Reason)
	require.Contains(t, condition.Message, "spec.grants[0].rbac")
	require.Equal(t, int64(4), condition.ObservedGeneration)

	condition = ready(&good, false)
	require.Equal(t, metav1.ConditionFalse, condition.Status)
	require.Equal(t, "Disabled", condition.Reason)
}
