package handlers

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// classReader reads one RuntimeClass, or fails to.
type classReader struct {
	client.Reader

	class *nodev1.RuntimeClass
	err   error
}

func (r classReader) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if r.err == nil {
		r.class.DeepCopyInto(into.(*nodev1.RuntimeClass))
	}
	return r.err
}

func TestTP19ARuntimeClassIsReadFromTheCacheAndIfItIsNewFromTheAPIServer(t *testing.T) {
	missing := apierrors.NewNotFound(nodev1.Resource("runtimeclasses"), "a")
	broken := errors.New("broken")
	brings := func(key string) classReader {
		return classReader{class: &nodev1.RuntimeClass{Scheduling: &nodev1.Scheduling{
			Tolerations: []corev1.Toleration{{Key: key, Operator: corev1.TolerationOpExists}},
		}}}
	}
	tests := map[string]struct {
		cache, live classReader
		want        string
		err         error
	}{
		"a class that the cache knows is not asked for again": {brings("cached"), classReader{err: broken}, "cached", nil},
		"a class that the cache does not know yet":            {classReader{err: missing}, brings("new"), "new", nil},
		"a class that does not exist brings nothing":          {classReader{err: missing}, classReader{err: missing}, "", nil},
		"a class that cannot be read is no verdict":           {classReader{err: missing}, classReader{err: broken}, "", broken},
		"nor is a cache that cannot":                          {classReader{err: broken}, brings("new"), "", broken},
		"a class without tolerations brings nothing":          {classReader{class: &nodev1.RuntimeClass{}}, classReader{err: broken}, "", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := NewRuntimeClasses(tt.cache, tt.live, clock.RealClock{}).Tolerations(t.Context(), "a")
			require.ErrorIs(t, err, tt.err)
			if tt.want == "" {
				require.Empty(t, got)
				return
			}
			require.Equal(t, []corev1.Toleration{{Key: tt.want, Operator: corev1.TolerationOpExists}}, got)
		})
	}
}

func TestAFloodOfUnknownRuntimeClassesIsNotPassedOn(t *testing.T) {
	missing := classReader{err: apierrors.NewNotFound(nodev1.Resource("runtimeclasses"), "a")}
	classes := NewRuntimeClasses(missing, missing, clocktesting.NewFakePassiveClock(time.Now()))
	for range liveReadsOnce {
		_, err := classes.Tolerations(t.Context(), "a")
		require.NoError(t, err)
	}
	_, err := classes.Tolerations(t.Context(), "a")
	require.ErrorIs(t, err, errTooManyReads)
}
