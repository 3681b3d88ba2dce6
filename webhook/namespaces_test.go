package webhook

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fakeReader knows some namespaces and counts how often it is asked.
type fakeReader struct {
	client.Reader

	known map[string]map[string]string
	asked int
}

func (f *fakeReader) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	f.asked++
	labels, ok := f.known[key.Name]
	if !ok {
		return apierrors.NewNotFound(corev1.Resource("namespaces"), key.Name)
	}
	object.(*metav1.PartialObjectMetadata).Labels = labels
	return nil
}

func TestC10ANewNamespaceIsReadFromTheAPIServer(t *testing.T) {
	cached := &fakeReader{known: map[string]map[string]string{"old": {"a": "b"}}}
	live := &fakeReader{known: map[string]map[string]string{"new": {"c": "d"}}}
	namespaces := NewNamespaces(cached, live, clocktesting.NewFakePassiveClock(time.Now()))

	labels, err := namespaces.Labels(t.Context(), "old")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "b"}, labels)
	require.Zero(t, live.asked, "the cache knows it")

	labels, err = namespaces.Labels(t.Context(), "new")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"c": "d"}, labels)

	_, err = namespaces.Labels(t.Context(), "none")
	require.True(t, apierrors.IsNotFound(err))
}

func TestAFloodOfUnknownNamespacesIsNotPassedOn(t *testing.T) {
	live := &fakeReader{}
	clock := clocktesting.NewFakePassiveClock(time.Now())
	namespaces := NewNamespaces(&fakeReader{}, live, clock)
	for i := range 10 * liveReadsOnce {
		_, err := namespaces.Labels(t.Context(), strconv.Itoa(i))
		require.Error(t, err)
	}
	require.Equal(t, liveReadsOnce, live.asked)
	clock.SetTime(clock.Now().Add(time.Second))
	_, err := namespaces.Labels(t.Context(), "x")
	require.True(t, apierrors.IsNotFound(err), "later it is asked again")
}
