package informer

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/watch"
)

// TestI10AListThatHasLostMostIsConfirmed has an informer that knows six nodes list anew.
func TestI10AListThatHasLostMostIsConfirmed(t *testing.T) {
	t.Parallel()
	six := []int{1, 2, 3, 4, 5, 6}
	for name, test := range map[string]struct {
		before []int
		// answers are those to the lists after the first one.
		answers []listAnswer
		// known is what is known when all have been given, and lists how many were asked
		// for.
		known, lists int
		outcome      string
	}{
		"a list that a second one contradicts is not believed": {
			before: six, answers: []listAnswer{nodes(20), nodes(21, six...)}, known: 6, lists: 3, outcome: doubtContradicted,
		},
		"a list that a second one confirms is believed": {
			before: six, answers: []listAnswer{nodes(20), nodes(21)}, known: 0, lists: 3, outcome: doubtConfirmed,
		},
		"of two lists that have both lost most the one with more is taken": {
			before: six, answers: []listAnswer{nodes(20), nodes(21, 1, 2)}, known: 2, lists: 3, outcome: doubtConfirmed,
		},
		"a second list that has even less is not taken": {
			before: six, answers: []listAnswer{nodes(20, 1, 2), nodes(21)}, known: 2, lists: 3, outcome: doubtConfirmed,
		},
		"a list that cannot be confirmed changes nothing, and is asked for again": {
			before: six, answers: []listAnswer{nodes(20), fails(errors.New("no answer")), nodes(22, six...)}, known: 6, lists: 4, outcome: doubtUnanswered,
		},
		"half of all is no doubt": {
			before: six, answers: []listAnswer{nodes(20, 1, 2, 3)}, known: 3, lists: 2,
		},
		"the loss of the only object is doubted": {
			before: []int{1}, answers: []listAnswer{nodes(20), nodes(21, 1)}, known: 1, lists: 3, outcome: doubtContradicted,
		},
		"the loss of the only object is believed when confirmed": {
			before: []int{1}, answers: []listAnswer{nodes(20), nodes(21)}, known: 0, lists: 3, outcome: doubtConfirmed,
		},
		"the loss of three objects is doubted": {
			before: []int{1, 2, 3}, answers: []listAnswer{nodes(20), nodes(21, 1, 2, 3)}, known: 3, lists: 3, outcome: doubtContradicted,
		},
		"where nothing was known nothing is lost": {
			before: nil, answers: []listAnswer{nodes(20)}, known: 0, lists: 2,
		},
		"all pages of a list count": {
			before: six, answers: []listAnswer{page(20, "more", 1), page(20, "still more", 2), nodes(20, 3)}, known: 3, lists: 4,
		},
		"a loss in pages is confirmed by pages": {
			before: six, answers: []listAnswer{page(20, "more", 1), nodes(20, 2), page(21, "more", 1), nodes(21, 2)},
			known: 2, lists: 5, outcome: doubtConfirmed,
		},
		"pages that are contradicted are asked for anew as one list": {
			before: six, answers: []listAnswer{page(20, "more", 1), nodes(20), nodes(21, six...), nodes(22, six...)},
			known: 6, lists: 5, outcome: doubtContradicted,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := follow(t, &fakeAPI{answers: append([]listAnswer{nodes(10, test.before...)}, test.answers...)})
				defer w.stop()
				require.Equal(t, len(test.before), w.known())
				w.stream().Error(expired())
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Equal(t, test.known, w.known())
				w.requireAsked(t, test.lists, 2)
				for _, outcome := range []string{doubtConfirmed, doubtContradicted, doubtUnanswered} {
					want := 0.0
					if outcome == test.outcome {
						want = 1
					}
					require.InDelta(t, want, testutil.ToFloat64(w.metrics.doubted.WithLabelValues("nodes", outcome)), 0, outcome)
				}
			})
		})
	}
}

func TestI10NothingIsGoneWhileALossIsInDoubt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := follow(t, &fakeAPI{answers: []listAnswer{nodes(10, 1, 2, 3, 4, 5, 6), nodes(20), hangs, nodes(21, 1, 2, 3, 4, 5)}})
		defer w.stop()
		w.stream().Error(expired())
		time.Sleep(30 * time.Second)
		synctest.Wait()
		w.requireAsked(t, 3, 1)
		require.Equal(t, 6, w.known())
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		require.Equal(t, 5, w.known())
	})
}

// TestI10AStreamThatHasLostMostIsConfirmed is about API servers that send what there is
// as the beginning of a watch.
func TestI10AStreamThatHasLostMostIsConfirmed(t *testing.T) {
	t.Parallel()
	six := []int{1, 2, 3, 4, 5, 6}
	send := func(stream *watch.FakeWatcher, version int, numbers ...int) {
		for _, i := range numbers {
			stream.Add(numbered(i))
		}
		stream.Action(watch.Bookmark, bookmark(version, true))
	}
	for name, test := range map[string]struct {
		sent           []int
		answers        []listAnswer
		known          int
		lists, watches int
		outcome        string
	}{
		"a stream without a loss needs no list": {
			sent: []int{1, 2, 3}, answers: []listAnswer{nodes(0)}, known: 3, watches: 2,
		},
		"a stream that a list confirms is believed": {
			sent: nil, answers: []listAnswer{nodes(21)}, known: 0, lists: 1, watches: 2, outcome: doubtConfirmed,
		},
		"a stream that a list contradicts is dropped, and a list is taken": {
			sent: []int{1}, answers: []listAnswer{nodes(21, six...)}, known: 6, lists: 2, watches: 3, outcome: doubtContradicted,
		},
		"a stream that no list confirms is dropped": {
			sent: nil, answers: []listAnswer{fails(errors.New("no answer")), nodes(22, six...)}, known: 6, lists: 2, watches: 3, outcome: doubtUnanswered,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := follow(t, &fakeAPI{streams: true, answers: test.answers})
				defer w.stop()
				send(w.stream(), 10, six...)
				synctest.Wait()
				require.Equal(t, 6, w.known())
				w.stream().Error(expired())
				time.Sleep(10 * time.Second)
				synctest.Wait()
				require.Equal(t, 6, w.known())
				send(w.stream(), 20, test.sent...)
				time.Sleep(20 * time.Second)
				synctest.Wait()
				require.Equal(t, test.known, w.known())
				w.requireAsked(t, test.lists, test.watches)
				if test.outcome != "" {
					require.InDelta(t, 1, testutil.ToFloat64(w.metrics.doubted.WithLabelValues("nodes", test.outcome)), 0)
				}
			})
		})
	}
}

func TestWhatALossIsSaidToBe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := follow(t, &fakeAPI{answers: []listAnswer{nodes(10, 1, 2, 3, 4), nodes(20), nodes(21)}})
		w.stream().Error(expired())
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.NoError(t, testutil.GatherAndCompare(w.registry, strings.NewReader(`
			# HELP tollgate_relists_doubted_total Lists without more than half of the known objects, by resource and the outcome of a second list (confirmed, contradicted, unanswered).
			# TYPE tollgate_relists_doubted_total counter
			tollgate_relists_doubted_total{outcome="confirmed",resource="nodes"} 1
		`), "tollgate_relists_doubted_total"))
		w.stop()
	})
}
