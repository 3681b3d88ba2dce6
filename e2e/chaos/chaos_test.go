package chaos

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/e2e/history"
)

// How old what is known may be, at most, when a pod is evicted. The carrier of the taint
// is read anew; policies are watched, by a connection that takes its time to come back.
const (
	staleness       = 5 * time.Second
	policyStaleness = 10 * time.Second
)

// settings are what the environment says.
type settings struct {
	seed      uint64
	schedules int
	duration  time.Duration
	length    time.Duration
}

func readSettings(t *testing.T) settings {
	t.Helper()
	s := settings{seed: uint64(rand.Uint32()), schedules: 3, length: 30 * time.Second}
	read := func(name string, set func(string) error) {
		if value := os.Getenv(name); value != "" {
			require.NoError(t, set(value), name)
		}
	}
	read("TOLLGATE_CHAOS_SEED", func(v string) (err error) { s.seed, err = strconv.ParseUint(v, 10, 64); return err })
	read("TOLLGATE_CHAOS_SCHEDULES", func(v string) (err error) { s.schedules, err = strconv.Atoi(v); return err })
	read("TOLLGATE_CHAOS_DURATION", func(v string) (err error) { s.duration, err = time.ParseDuration(v); return err })
	read("TOLLGATE_CHAOS_LENGTH", func(v string) (err error) { s.length, err = time.ParseDuration(v); return err })
	return s
}

func (s settings) more(i int, began time.Time) bool {
	if s.duration > 0 {
		return time.Since(began) < s.duration
	}
	return i < s.schedules
}

func TestChaos(t *testing.T) {
	s := readSettings(t)
	began := time.Now()
	for i := 0; s.more(i, began); i++ {
		seed := s.seed + uint64(i)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { play(t, newSchedule(seed, s.length)) })
	}
}

// play runs one schedule and fails when its history shows a violation.
func play(t *testing.T, s *schedule) {
	t.Helper()
	ctx := t.Context()
	began := time.Now()
	st, err := newStage(ctx, s)
	require.NoError(t, err)
	defer st.clear(t)
	for _, r := range st.replicas {
		require.NoError(t, r.start(ctx))
	}
	require.NoError(t, st.run(ctx))
	require.NoError(t, st.calm(ctx))
	h, err := st.settle(ctx)
	require.NoError(t, err)
	violations := history.Check(h)
	t.Logf("seed %d: %s, policies: %t, %s: %d violations", s.seed, time.Since(began).Round(time.Second), s.policed, tally(h), len(violations))
	require.NoError(t, st.unwanted)
	if len(violations) == 0 {
		return
	}
	report := fmt.Sprintf("seed %d\n\n%s\n\nWhat was done:\n%s\n\nWrites and versions:\n%s\n", s.seed, lines(violations), st.story(), history.Tell(h, nil))
	path := st.keep(report)
	for _, v := range violations[:min(len(violations), 3)] {
		t.Logf("%s\n%s", v, history.Tell(h, v.Objects))
	}
	t.Errorf("seed %d: %d violations; all of it is in %s\n%s", s.seed, len(violations), path, lines(violations))
}

func lines(violations []history.Violation) string {
	var texts []string
	for _, v := range violations {
		texts = append(texts, v.String())
	}
	return strings.Join(texts, "\n")
}

// tally says in a few words what a history is about.
func tally(h *history.History) string {
	evictions, refused, lost := 0, 0, 0
	for i := range h.Writes {
		w := &h.Writes[i]
		if w.Resource != "pods" || w.Verb != "delete" && w.Subresource != "eviction" {
			continue
		}
		switch {
		case w.Status/100 == 2:
			evictions++
		case w.Forwarded.IsZero():
			lost++
		default:
			refused++
		}
	}
	held := map[string]int{}
	for reason, n := range h.Shown.Held {
		if n > 0 {
			held[reason] = n
		}
	}
	return fmt.Sprintf("%d versions, %d writes, %d evictions (%d of them held against policies, %d refused, %d lost), %d steps, held in the end %v",
		len(h.Versions), len(h.Writes), evictions, history.Policed(h), refused, lost, len(h.Steps), held)
}
