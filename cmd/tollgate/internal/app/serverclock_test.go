package app

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
)

var start = time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC)

// server responds with the Date header of a clock that is ahead of the local one.
func server(t *testing.T, local *clocktesting.FakeClock, ahead *time.Duration) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", local.Now().Add(*ahead).UTC().Format(http.TimeFormat))
	}))
	t.Cleanup(s.Close)
	return s
}

func get(t *testing.T, c *serverClock, url string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: c.Wrap(http.DefaultTransport)}).Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
}

func TestH04LocalClockOff(t *testing.T) {
	for name, ahead := range map[string]time.Duration{
		"five minutes behind the server": 5 * time.Minute,
		"five minutes ahead of it":       -5 * time.Minute,
		"in step with it":                0,
	} {
		t.Run(name, func(t *testing.T) {
			local := clocktesting.NewFakeClock(start.Add(700 * time.Millisecond))
			s := server(t, local, &ahead)
			c := newServerClock(local)
			get(t, c, s.URL)
			require.WithinDuration(t, local.Now().Add(ahead), c.Now(), time.Second)
			require.False(t, c.Now().After(local.Now().Add(ahead)), "not ahead of the server")

			local.Step(3 * time.Hour)
			require.WithinDuration(t, local.Now().Add(ahead), c.Now(), time.Second, "counts on between answers")
		})
	}
}

func TestManyAnswersNarrowWhatIsKnown(t *testing.T) {
	ahead := 90 * time.Second
	local := clocktesting.NewFakeClock(start.Add(950 * time.Millisecond))
	s := server(t, local, &ahead)
	c := newServerClock(local)
	for range 40 {
		get(t, c, s.URL)
		require.False(t, c.Now().After(local.Now().Add(ahead)), "not ahead of the server")
		local.Step(1030 * time.Millisecond)
	}
	get(t, c, s.URL)
	require.WithinDuration(t, local.Now().Add(ahead), c.Now(), 50*time.Millisecond)
}

func TestH05ServerClockStepped(t *testing.T) {
	for name, step := range map[string]time.Duration{"forwards": time.Hour, "backwards": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			ahead := time.Duration(0)
			local := clocktesting.NewFakeClock(start)
			s := server(t, local, &ahead)
			c := newServerClock(local)
			get(t, c, s.URL)
			ahead = step
			get(t, c, s.URL)
			require.WithinDuration(t, start.Add(step), c.Now(), time.Second)
		})
	}
}

func TestAnAnswerWithoutAUsableDateTeachesNothing(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", "yesterday")
	}))
	t.Cleanup(s.Close)
	local := clocktesting.NewFakeClock(start)
	c := newServerClock(local)
	get(t, c, s.URL)
	require.Equal(t, start, c.Now())
}

func TestALocalClockThatMayBeRightIsBelieved(t *testing.T) {
	ahead := time.Duration(0)
	local := clocktesting.NewFakeClock(start.Add(900 * time.Millisecond))
	s := server(t, local, &ahead)
	c := newServerClock(local)
	get(t, c, s.URL)
	require.Equal(t, local.Now(), c.Now(), "the server's header says .0, which .9 does not contradict")
}

func TestBeforeTheFirstAnswerItIsTheLocalClock(t *testing.T) {
	c := newServerClock(clocktesting.NewFakeClock(start))
	require.Equal(t, start, c.Now())
	require.Equal(t, time.Minute, c.Since(start.Add(-time.Minute)))
}
