package sliceview_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

func TestRun(t *testing.T) {
	t.Parallel()

	t.Run("a view that nothing feeds does not run", func(t *testing.T) {
		t.Parallel()
		require.ErrorContains(t, sliceview.New().Run(t.Context()), "not attached")
	})

	t.Run("the end leaves the informers, ends the deliveries and takes no new handlers", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			slices, rules, view := newSliceSource(), newRuleSource(), sliceview.New()
			require.NoError(t, view.Attach(slices, rules))
			w := &world{tb: t, view: view}
			r := w.subscribe()
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- view.Run(ctx) }()
			slices.set(t, slice("s", dev("gpu")))
			close(slices.synced)
			cancel()
			require.NoError(t, <-ended)
			require.Equal(t, []int{1, 1}, []int{slices.removed, rules.removed})
			close(rules.synced)
			require.Empty(t, r.told())
			require.False(t, view.HasSynced())
			_, err := view.AddEventHandler(r)
			require.ErrorContains(t, err, "stopped")
		})
	})

	t.Run("an informer that takes no handlers is told of", func(t *testing.T) {
		t.Parallel()
		require.ErrorIs(t, sliceview.New().Attach(broken{}, nil), errBroken)
		require.ErrorIs(t, sliceview.New().Attach(newSliceSource(), broken{}), errBroken)
	})

	t.Run("objects of another kind are passed over", func(t *testing.T) {
		t.Parallel()
		slices, rules, view := newSliceSource(), newRuleSource(), sliceview.New()
		require.NoError(t, view.Attach(slices, rules))
		slices.set(t, rule("r", every()))
		rules.set(t, slice("s", dev("gpu")))
		require.Empty(t, view.List())
		slices.handlers[0].OnDelete("neither object nor tombstone")
	})
}

var errBroken = errors.New("broken")

// broken is an informer that has stopped.
type broken struct{}

func (broken) AddEventHandler(toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return nil, errBroken
}

func (broken) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error { return errBroken }
