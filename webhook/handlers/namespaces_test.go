package handlers

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

func namespaceWith(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func TestC10ANewNamespaceIsReadFromTheAPIServer(t *testing.T) {
	cached := storing(namespaceWith("old", map[string]string{"a": "b"}))
	live := storing(namespaceWith("new", map[string]string{"c": "d"}))
	namespaces := NewNamespaces(cached, live, clocktesting.NewFakePassiveClock(time.Now()))

	namespace, err := namespaces.Namespace(t.Context(), "old")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "b"}, namespace.Labels)
	require.Zero(t, live.asked(), "the cache knows it")

	namespace, err = namespaces.Namespace(t.Context(), "new")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"c": "d"}, namespace.Labels)

	_, err = namespaces.Namespace(t.Context(), "none")
	require.True(t, apierrors.IsNotFound(err))
}

func TestAFloodOfUnknownNamespacesIsNotPassedOn(t *testing.T) {
	live := storing()
	clock := clocktesting.NewFakePassiveClock(time.Now())
	namespaces := NewNamespaces(storing(), live, clock)
	for i := range 10 * liveReadsOnce {
		_, err := namespaces.Namespace(t.Context(), strconv.Itoa(i))
		require.Error(t, err)
	}
	require.Equal(t, liveReadsOnce, live.asked())
	clock.SetTime(clock.Now().Add(time.Second))
	_, err := namespaces.Namespace(t.Context(), "x")
	require.True(t, apierrors.IsNotFound(err), "later it is asked again")
}

func TestC09LabelsThatWereJustChangedCount(t *testing.T) {
	cached := storing(namespaceWith("apple", map[string]string{"tier": "system"}))
	live := storing(namespaceWith("apple", nil))
	namespaces := NewNamespaces(cached, live, clocktesting.NewFakePassiveClock(time.Now()))
	config := testConfig()
	config.Namespaces = namespaces
	require.False(t, judgePod(t, config, podReview(t, "CREATE", tolerant, "")).Allowed, "the label is gone")

	live.store(namespaceWith("apple", map[string]string{"tier": "system"}))
	cached.store(namespaceWith("apple", nil))
	require.True(t, judgePod(t, config, podReview(t, "CREATE", tolerant, "")).Allowed, "the label has come")

	before := live.asked()
	require.True(t, judgePod(t, config, podReview(t, "CREATE", defaulted, "")).Allowed)
	require.Equal(t, before, live.asked(), "where nothing is guarded nothing is read")

	t.Run("a flood is answered from the cache", func(t *testing.T) {
		for range 2 * confirmationsOnce {
			_, err := namespaces.Confirmed(t.Context(), "apple")
			require.NoError(t, err)
		}
		require.LessOrEqual(t, live.asked(), confirmationsOnce)
	})
	t.Run("a fault is no verdict", func(t *testing.T) {
		live.fault = apierrors.NewTimeoutError("slow", 1)
		_, err := NewNamespaces(cached, live, clocktesting.NewFakePassiveClock(time.Now())).Confirmed(t.Context(), "apple")
		require.True(t, apierrors.IsTimeout(err))
	})
}
