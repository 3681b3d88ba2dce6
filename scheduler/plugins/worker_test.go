package plugins

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// trace is what a worker did, and when. Bubbles hand it over when they are idle.
type trace struct {
	began  time.Time
	did    []string
	answer func() (bool, error)
}

func (tr *trace) note(what string) {
	tr.did = append(tr.did, time.Since(tr.began).String()+" "+what)
}

func runWorker(t *testing.T, answer func() (bool, error), test func(*worker)) []string {
	t.Helper()
	var did []string
	synctest.Test(t, func(t *testing.T) {
		tr := &trace{began: time.Now(), answer: answer}
		w := newWorker(func() (bool, error) {
			tr.note("refresh")
			return tr.answer()
		}, func(context.Context) { tr.note("wake") })
		ctx, cancel := context.WithCancel(t.Context())
		go w.run(ctx)
		test(w)
		cancel()
		synctest.Wait()
		did = tr.did
	})
	return did
}

func TestWorker(t *testing.T) {
	t.Parallel()
	changed := func() (bool, error) { return true, nil }

	t.Run("wakes after lists see the change", func(t *testing.T) {
		t.Parallel()
		did := runWorker(t, changed, func(w *worker) {
			w.changed()
			time.Sleep(time.Minute)
		})
		require.Equal(t, []string{"0s refresh", "0s wake"}, did)
	})

	t.Run("does not wake for what changes nothing", func(t *testing.T) {
		t.Parallel()
		did := runWorker(t, func() (bool, error) { return false, nil }, func(w *worker) {
			w.changed()
			time.Sleep(time.Minute)
		})
		require.Equal(t, []string{"0s refresh"}, did)
	})

	t.Run("refreshes at once and wakes once a second, after the last change too", func(t *testing.T) {
		t.Parallel()
		did := runWorker(t, changed, func(w *worker) {
			for range 4 {
				w.changed()
				time.Sleep(400 * time.Millisecond)
			}
			time.Sleep(time.Minute)
			w.changed()
			time.Sleep(time.Minute)
		})
		require.Equal(t, []string{
			"0s refresh", "0s wake", "400ms refresh", "800ms refresh", "1s wake", "1.2s refresh", "2s wake",
			"1m1.6s refresh", "1m1.6s wake",
		}, did)
	})

	for name, failure := range map[string]error{
		"the patches are not known":     errNotSynced,
		"a refresh fails in other ways": errors.New("no classes"),
	} {
		t.Run("tries again while "+name, func(t *testing.T) {
			t.Parallel()
			failures := 2
			did := runWorker(t, func() (bool, error) {
				if failures--; failures >= 0 {
					return false, failure
				}
				return true, nil
			}, func(w *worker) {
				w.changed()
				time.Sleep(time.Minute)
			})
			require.Equal(t, []string{"0s refresh", "1s refresh", "2s refresh", "2s wake"}, did)
		})
	}

	t.Run("still wakes for a change when the next refresh fails", func(t *testing.T) {
		t.Parallel()
		answers := []error{nil, nil, errors.New("no classes"), nil}
		did := runWorker(t, func() (bool, error) {
			err := answers[0]
			answers = answers[1:]
			return len(answers) > 1, err
		}, func(w *worker) {
			for range 3 {
				w.changed()
				time.Sleep(100 * time.Millisecond)
			}
			time.Sleep(time.Minute)
		})
		require.Equal(t, []string{"0s refresh", "0s wake", "100ms refresh", "200ms refresh", "1s wake", "1.2s refresh"}, did)
	})
}
