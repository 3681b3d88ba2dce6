package informer

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

func (w *watched) restarts(reason string) float64 {
	return testutil.ToFloat64(w.metrics.restarts.WithLabelValues("nodes", reason))
}

func TestI06ASilentWatchIsBegunAnew(t *testing.T) {
	t.Parallel()

	t.Run("from where it was, and without a list", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := follow(t, &fakeAPI{answers: []listAnswer{nodes(10, 1, 2)}})
			defer w.stop()
			w.stream().Add(numbered(15))
			time.Sleep(149 * time.Second)
			synctest.Wait()
			w.requireAsked(t, 1, 1)
			time.Sleep(2 * time.Second)
			synctest.Wait()
			w.requireAsked(t, 1, 2)
			require.Equal(t, "15", w.watches[1].ResourceVersion)
			require.InDelta(t, 1, w.restarts(restartSilent), 0)
			require.Equal(t, 3, w.known())
			w.stream().Add(numbered(16))
			synctest.Wait()
			require.Equal(t, 4, w.known(), "it goes on")
		})
	})

	t.Run("not while bookmarks come", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := follow(t, &fakeAPI{answers: []listAnswer{nodes(10, 1, 2)}})
			defer w.stop()
			for i := range 10 {
				time.Sleep(time.Minute)
				w.stream().Action(watch.Bookmark, bookmark(20+i, false))
				synctest.Wait()
			}
			w.requireAsked(t, 1, 1)
			require.Zero(t, w.restarts(restartSilent))
		})
	})

	t.Run("a stream that does not come to an end of what there is, too", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := follow(t, &fakeAPI{streams: true, answers: []listAnswer{nodes(10, 1)}})
			defer w.stop()
			w.stream().Add(numbered(1))
			time.Sleep(3 * time.Minute)
			synctest.Wait()
			_, watches := w.asked()
			require.Equal(t, 2, watches)
			w.stream().Action(watch.Bookmark, bookmark(10, true))
			synctest.Wait()
			require.Zero(t, w.known(), "what the first stream sent does not count")
		})
	})

	t.Run("a watch that is not answered is given up, and begun anew without a list", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var answering atomic.Bool
			api := &fakeAPI{answers: []listAnswer{nodes(10, 1)}}
			api.begin = func(ctx context.Context) error {
				if answering.Load() {
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			}
			w := follow(t, api)
			defer w.stop()
			require.Zero(t, w.restarts(restartUnanswered))
			answering.Store(true)
			time.Sleep(4 * time.Minute)
			synctest.Wait()
			require.InDelta(t, 1, w.restarts(restartUnanswered), 0)
			w.mu.Lock()
			require.Len(t, w.lists, 1)
			require.Equal(t, "10", w.watches[len(w.watches)-1].ResourceVersion)
			w.mu.Unlock()
			w.stream().Add(numbered(11))
			synctest.Wait()
			require.Equal(t, 2, w.known())
		})
	})

	t.Run("a stream of what there is that is not answered gives way to a list", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			api := &fakeAPI{streams: true, answers: []listAnswer{nodes(10, 1)}}
			api.begin = func(ctx context.Context) error {
				if _, watches := api.asked(); watches > 1 {
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			}
			w := follow(t, api)
			defer w.stop()
			time.Sleep(4 * time.Minute)
			synctest.Wait()
			require.InDelta(t, 1, w.restarts(restartUnanswered), 0)
			require.Equal(t, 1, w.known())
			w.requireAsked(t, 1, 2)
		})
	})

	t.Run("whoever takes events slowly is not silence", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			source := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 10})
			g := NewGuard(GuardOptions{Clock: clock.RealClock{}}).over("nodes", &toolscache.ListWatch{
				WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return source, nil },
			})
			events, err := g.Watch(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			source.Add(numbered(1))
			time.Sleep(time.Hour)
			require.Equal(t, "node-1", name(<-events.ResultChan()))
			time.Sleep(2 * time.Minute)
			source.Add(numbered(2))
			require.Equal(t, "node-2", name(<-events.ResultChan()))
			events.Stop()
			events.Stop()
			_, open := <-events.ResultChan()
			require.False(t, open)
		})
	})
}

func name(event watch.Event) string { return event.Object.(metav1.Object).GetName() }

func TestI12AListThatDoesNotEndIsAskedForAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := follow(t, &fakeAPI{answers: []listAnswer{hangs, nodes(10, 1)}})
		defer w.stop()
		time.Sleep(119 * time.Second)
		synctest.Wait()
		w.requireAsked(t, 1, 0)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		w.requireAsked(t, 2, 1)
		require.Equal(t, 1, w.known())
	})
}

func TestSilenceIsShown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := follow(t, &fakeAPI{answers: []listAnswer{nodes(10, 1)}})
		defer w.stop()
		time.Sleep(42 * time.Second)
		require.NoError(t, testutil.GatherAndCompare(w.registry, strings.NewReader(`
			# HELP tollgate_cache_silence_seconds Time since the API server last sent an event or a bookmark on the watch of a resource, in seconds. It sends a bookmark about once a minute.
			# TYPE tollgate_cache_silence_seconds gauge
			tollgate_cache_silence_seconds{resource="nodes"} 42
		`), "tollgate_cache_silence_seconds"))
	})

	t.Run("for nothing that has not been asked for, or is not followed any more", func(t *testing.T) {
		t.Parallel()
		metrics := NewMetrics(nil)
		handler := toolscache.ResourceEventHandlerFuncs{}
		w := NewClaimWatch(fake.NewClientset(), handler, ignore, Guarded(NewGuard(GuardOptions{Clock: clock.RealClock{}, Metrics: metrics})))
		require.Zero(t, testutil.CollectAndCount(metrics))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.Run(ctx)
		}()
		<-w.Synced()
		require.Equal(t, 1, testutil.CollectAndCount(metrics))
		stop()
		<-ended
		require.Zero(t, testutil.CollectAndCount(metrics))
	})
}

func TestNoGuardChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := &fakeAPI{answers: []listAnswer{nodes(10, 1, 2, 3, 4), nodes(20)}}
		from := objects("nodes", api, api, ignore, []Option{Guarded(nil)})
		require.Nil(t, from.under)
		w := &watched{fakeAPI: api, informer: newShared(from, nil, keepNodes())}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.informer.RunWithContext(ctx)
		synctest.Wait()
		w.stream().Error(expired())
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Zero(t, w.known())
		w.requireAsked(t, 2, 2)
	})
}
