package certs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const day = 24 * time.Hour

func TestPlan(t *testing.T) {
	t.Parallel()
	now := start()
	fresh := freshState(t, now)
	caRenewal := renewal(fresh.ca.cert)
	// During a roll-over the serving certificate is new.
	begun := mustApply(t, stepBeginRollOver, mustApply(t, stepIssue, fresh, caRenewal), caRenewal)
	noted := mustApply(t, stepNotePublished, begun, caRenewal)
	finished := mustApply(t, stepFinishRollOver, noted, caRenewal.Add(defaultBundleDelay))
	change := func(s *state, f func(*state)) *state {
		out := *s
		f(&out)
		return &out
	}

	tests := map[string]struct {
		state      *state
		now        time.Time
		hosts      []string
		published  bool
		remembered *state
		want       action
	}{
		"an empty Secret gets a CA": {
			state: &state{}, now: now, want: action{step: stepCreate},
		},
		"a lost Secret is restored from memory": {
			state: &state{}, now: now, remembered: fresh, want: action{step: stepRestore},
		},
		"an expired memory is not restored": {
			state: &state{}, now: fresh.serving.leaf.NotAfter, remembered: fresh, want: action{step: stepCreate},
		},
		"a fresh state waits for the serving certificate": {
			state: fresh, now: now, published: true, want: action{again: renewal(fresh.serving.leaf)},
		},
		"a moment before two thirds of its life the serving certificate stays": {
			state: fresh, now: renewal(fresh.serving.leaf).Add(-time.Nanosecond), published: true,
			want: action{again: renewal(fresh.serving.leaf)},
		},
		"at two thirds of its life the serving certificate is replaced": {
			state: fresh, now: renewal(fresh.serving.leaf), published: true, want: action{step: stepIssue},
		},
		"the serving certificate is replaced although the bundle is not published": {
			state: fresh, now: renewal(fresh.serving.leaf), want: action{step: stepIssue},
		},
		"a serving certificate for other hosts is replaced": {
			state: fresh, now: now, hosts: []string{testHost, "10.0.0.1"}, want: action{step: stepIssue},
		},
		"F02 a broken serving certificate is replaced": {
			state: change(fresh, func(s *state) { s.serving = nil }), now: now, want: action{step: stepIssue},
		},
		"at two thirds of its life the CA gets a successor": {
			state: mustApply(t, stepIssue, fresh, caRenewal), now: caRenewal, published: true,
			want: action{step: stepBeginRollOver},
		},
		"a CA gets a successor when asked for": {
			state: change(fresh, func(s *state) { s.rollOver = true }), now: now, published: true,
			want: action{step: stepBeginRollOver},
		},
		"a request for another CA waits until the roll-over is done": {
			state: change(noted, func(s *state) { s.rollOver = true }), now: caRenewal, published: true,
			want: action{again: caRenewal.Add(defaultBundleDelay)},
		},
		"F02 a lost CA key is restored from memory": {
			state: change(fresh, func(s *state) { s.ca = nil }), now: now, remembered: fresh, want: action{step: stepRestore},
		},
		"F02 a lost CA key that nobody remembers begins a roll-over": {
			state: change(fresh, func(s *state) { s.ca = nil }), now: now, want: action{step: stepBeginRollOver},
		},
		"F04 a successor that is not published does not sign": {
			state: begun, now: caRenewal, want: action{again: renewal(begun.serving.leaf)},
		},
		"F04 a successor seen in all configurations is noted": {
			state: begun, now: caRenewal, published: true, want: action{step: stepNotePublished},
		},
		"F04 a published successor waits for the delay": {
			state: noted, now: caRenewal.Add(defaultBundleDelay - time.Nanosecond), published: true,
			want: action{again: caRenewal.Add(defaultBundleDelay)},
		},
		"F04 after the delay the successor signs": {
			state: noted, now: caRenewal.Add(defaultBundleDelay), published: true, want: action{step: stepFinishRollOver},
		},
		"F04 after the delay a bundle that was taken out again holds the successor back": {
			state: noted, now: caRenewal.Add(defaultBundleDelay), want: action{again: renewal(noted.serving.leaf)},
		},
		"F04 the old CA stays in the bundle until it expires": {
			state: finished, now: finished.serving.leaf.NotBefore.Add(day), published: true,
			want: action{again: renewal(finished.serving.leaf)},
		},
		"an expired CA leaves the bundle": {
			state: mustApply(t, stepIssue, finished, fresh.ca.cert.NotAfter.Add(-time.Hour)),
			now:   fresh.ca.cert.NotAfter, published: true,
			want: action{step: stepDropExpired},
		},
		"F03 when all has expired an unpublished successor signs at once": {
			state: begun, now: fresh.ca.cert.NotAfter, want: action{step: stepFinishRollOver},
		},
		"F03 when all has expired and there is no successor a CA is created": {
			state: fresh, now: fresh.ca.cert.NotAfter, want: action{step: stepCreate},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := testWanted()
			if tt.hosts != nil {
				w.hosts = tt.hosts
			}
			got := plan(tt.state, tt.now, w, seen{published: tt.published, remembered: tt.remembered})
			require.Equal(t, tt.want.step.String(), got.step.String())
			require.True(t, tt.want.again.Equal(got.again), "looks again at %s, not %s", got.again, tt.want.again)
		})
	}
}

func TestPlanDoesNotShortenCertificatesTowardsTheEndOfTheCA(t *testing.T) {
	t.Parallel()
	s := freshState(t, start())
	end := s.ca.cert.NotAfter
	s = mustApply(t, stepIssue, s, end.Add(-day))
	require.True(t, s.serving.leaf.NotAfter.Equal(end))
	s = mustApply(t, stepBeginRollOver, s, end.Add(-day))
	// Without a published bundle the next CA cannot sign, and a certificate of the old CA
	// would expire with the current one.
	got := plan(s, end.Add(-time.Hour), testWanted(), seen{})
	require.Equal(t, action{again: end}, got)
}

func TestApply(t *testing.T) {
	t.Parallel()
	now := start()
	fresh := freshState(t, now)

	t.Run("a roll-over keeps the old CA trusted and drops its key", func(t *testing.T) {
		t.Parallel()
		begun := mustApply(t, stepBeginRollOver, fresh, now)
		require.Len(t, begun.bundle, 2)
		require.Same(t, fresh.ca, begun.ca)
		require.Same(t, fresh.serving, begun.serving)
		finished := mustApply(t, stepFinishRollOver, begun, now)
		require.Same(t, begun.next, finished.ca)
		require.Nil(t, finished.next)
		require.Len(t, finished.bundle, 2)
		require.True(t, finished.trusts(fresh.ca.cert))
		require.NoError(t, finished.serving.leaf.CheckSignatureFrom(begun.next.cert))
	})
	t.Run("a serving certificate ends with its CA", func(t *testing.T) {
		t.Parallel()
		s := mustApply(t, stepIssue, fresh, fresh.ca.cert.NotAfter.Add(-day))
		require.True(t, s.serving.leaf.NotAfter.Equal(fresh.ca.cert.NotAfter))
	})
	t.Run("a replacement before its time keeps the hosts of the other replicas", func(t *testing.T) {
		t.Parallel()
		w := testWanted()
		w.hosts = []string{"192.0.2.7", "other.example.com"}
		s, _, err := apply(stepIssue, fresh, now, w, seen{})
		require.NoError(t, err)
		require.True(t, s.serving.covers([]string{testHost, "192.0.2.7", "other.example.com"}))
		s, _, err = apply(stepIssue, s, renewal(s.serving.leaf), w, seen{})
		require.NoError(t, err)
		require.False(t, s.serving.covers([]string{testHost}))
		require.True(t, s.serving.covers(w.hosts))
	})
	t.Run("a new CA leaves what was trusted in the bundle", func(t *testing.T) {
		t.Parallel()
		lost := *fresh
		lost.ca = nil
		s := mustApply(t, stepCreate, &lost, now)
		require.True(t, s.trusts(fresh.ca.cert))
		require.Len(t, s.bundle, 2)
	})
	t.Run("the bundle is bounded and keeps what is in use", func(t *testing.T) {
		t.Parallel()
		s := fresh
		for i := range 2 * maxBundle {
			s = mustApply(t, stepBeginRollOver, s, now.Add(time.Duration(i)*time.Hour))
		}
		require.Len(t, s.bundle, maxBundle)
		require.True(t, s.trusts(s.ca.cert))
		require.True(t, s.trusts(s.next.cert))
		require.True(t, s.trusts(s.serving.issuer))
	})
	t.Run("an unknown step is an error", func(t *testing.T) {
		t.Parallel()
		_, _, err := apply(step(99), fresh, now, testWanted(), seen{})
		require.EqualError(t, err, "step 99 is unknown")
	})
}
