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
	caRenewal := renewal(fresh.ca.leaf)
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
		want       step
		again      time.Time
	}{
		"an empty Secret gets a CA": {
			state: &state{}, now: now, want: stepCreate,
		},
		"a lost Secret is restored from memory": {
			state: &state{}, now: now, remembered: fresh, want: stepRestore,
		},
		"an expired memory is not restored": {
			state: &state{}, now: fresh.serving.leaf.NotAfter, remembered: fresh, want: stepCreate,
		},
		"a fresh state waits for the serving certificate": {
			state: fresh, now: now, published: true, again: renewal(fresh.serving.leaf),
		},
		"a moment before two thirds of its life the serving certificate stays": {
			state: fresh, now: renewal(fresh.serving.leaf).Add(-time.Nanosecond), published: true,
			again: renewal(fresh.serving.leaf),
		},
		"at two thirds of its life the serving certificate is replaced": {
			state: fresh, now: renewal(fresh.serving.leaf), published: true, want: stepIssue,
		},
		"the serving certificate is replaced although the bundle is not published": {
			state: fresh, now: renewal(fresh.serving.leaf), want: stepIssue,
		},
		"a serving certificate for other hosts is replaced": {
			state: fresh, now: now, hosts: []string{testHost, "10.0.0.1"}, want: stepIssue,
		},
		"F02 a broken serving certificate is replaced": {
			state: change(fresh, func(s *state) { s.serving = nil }), now: now, want: stepIssue,
		},
		"at two thirds of its life the CA gets a successor": {
			state: mustApply(t, stepIssue, fresh, caRenewal), now: caRenewal, published: true,
			want: stepBeginRollOver,
		},
		"a CA gets a successor when asked for": {
			state: change(fresh, func(s *state) { s.rollOver = true }), now: now, published: true,
			want: stepBeginRollOver,
		},
		"a request for another CA waits until the roll-over is done": {
			state: change(noted, func(s *state) { s.rollOver = true }), now: caRenewal, published: true,
			again: caRenewal.Add(defaultBundleDelay),
		},
		"F02 a lost CA key is restored from memory": {
			state: change(fresh, func(s *state) { s.ca = nil }), now: now, remembered: fresh, want: stepRestore,
		},
		"F02 a lost CA key that nobody remembers begins a roll-over": {
			state: change(fresh, func(s *state) { s.ca = nil }), now: now, want: stepBeginRollOver,
		},
		"F04 a successor that is not published does not sign": {
			state: begun, now: caRenewal, again: renewal(begun.serving.leaf),
		},
		"F04 a successor seen in all configurations is noted": {
			state: begun, now: caRenewal, published: true, want: stepNotePublished,
		},
		"F04 a published successor waits for the delay": {
			state: noted, now: caRenewal.Add(defaultBundleDelay - time.Nanosecond), published: true,
			again: caRenewal.Add(defaultBundleDelay),
		},
		"F04 after the delay the successor signs": {
			state: noted, now: caRenewal.Add(defaultBundleDelay), published: true, want: stepFinishRollOver,
		},
		"F04 after the delay a bundle that was taken out again holds the successor back": {
			state: noted, now: caRenewal.Add(defaultBundleDelay), again: renewal(noted.serving.leaf),
		},
		"F04 the old CA stays in the bundle until it expires": {
			state: finished, now: finished.serving.leaf.NotBefore.Add(day), published: true,
			again: renewal(finished.serving.leaf),
		},
		"an expired CA leaves the bundle": {
			state: mustApply(t, stepIssue, finished, fresh.ca.leaf.NotAfter.Add(-time.Hour)),
			now:   fresh.ca.leaf.NotAfter, published: true,
			want: stepDropExpired,
		},
		"F03 when all has expired an unpublished successor signs at once": {
			state: begun, now: fresh.ca.leaf.NotAfter, want: stepFinishRollOver,
		},
		"F03 when all has expired and there is no successor a CA is created": {
			state: fresh, now: fresh.ca.leaf.NotAfter, want: stepCreate,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := testOptions()
			if tt.hosts != nil {
				o.Hosts = tt.hosts
			}
			got, again := plan(tt.state, tt.now, o, seen{published: tt.published, remembered: tt.remembered})
			require.Equal(t, tt.want, got)
			require.True(t, tt.again.Equal(again), "looks again at %s, not %s", again, tt.again)
		})
	}
}

func TestPlanDoesNotShortenCertificatesTowardsTheEndOfTheCA(t *testing.T) {
	t.Parallel()
	s := freshState(t, start())
	end := s.ca.leaf.NotAfter
	s = mustApply(t, stepIssue, s, end.Add(-day))
	require.True(t, s.serving.leaf.NotAfter.Equal(end))
	s = mustApply(t, stepBeginRollOver, s, end.Add(-day))
	// Without a published bundle the next CA cannot sign, and a certificate of the old CA
	// would expire with the current one.
	got, again := plan(s, end.Add(-time.Hour), testOptions(), seen{})
	require.Empty(t, got)
	require.Equal(t, end, again)
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
		require.True(t, finished.trusts(fresh.ca.leaf))
		require.NoError(t, finished.serving.leaf.CheckSignatureFrom(begun.next.leaf))
	})
	t.Run("a serving certificate ends with its CA", func(t *testing.T) {
		t.Parallel()
		s := mustApply(t, stepIssue, fresh, fresh.ca.leaf.NotAfter.Add(-day))
		require.True(t, s.serving.leaf.NotAfter.Equal(fresh.ca.leaf.NotAfter))
	})
	t.Run("a replacement before its time keeps the hosts of the other replicas", func(t *testing.T) {
		t.Parallel()
		o := testOptions()
		o.Hosts = []string{"192.0.2.7", "other.example.com"}
		s, _, err := apply(stepIssue, fresh, now, o, seen{})
		require.NoError(t, err)
		require.True(t, s.serving.covers([]string{testHost, "192.0.2.7", "other.example.com"}))
		s, _, err = apply(stepIssue, s, renewal(s.serving.leaf), o, seen{})
		require.NoError(t, err)
		require.False(t, s.serving.covers([]string{testHost}))
		require.True(t, s.serving.covers(o.Hosts))
	})
	t.Run("a new CA leaves what was trusted in the bundle", func(t *testing.T) {
		t.Parallel()
		lost := *fresh
		lost.ca = nil
		s := mustApply(t, stepCreate, &lost, now)
		require.True(t, s.trusts(fresh.ca.leaf))
		require.Len(t, s.bundle, 2)
	})
	t.Run("the bundle is bounded and keeps what is in use", func(t *testing.T) {
		t.Parallel()
		s := fresh
		for i := range 2 * maxBundle {
			s = mustApply(t, stepBeginRollOver, s, now.Add(time.Duration(i)*time.Hour))
		}
		require.Len(t, s.bundle, maxBundle)
		require.True(t, s.trusts(s.ca.leaf))
		require.True(t, s.trusts(s.next.leaf))
		require.True(t, s.trusts(s.serving.issuer))
	})
}

func TestF04WaitUntil(t *testing.T) {
	t.Parallel()
	now := start()
	old, young := freshState(t, now), freshState(t, now)
	again := mustApply(t, stepIssue, old, now)
	c := &ownCA{publisher: &publisher{Options: testOptions()}}

	require.Zero(t, c.waitUntil(nil, young.serving), "nothing else works")
	require.Zero(t, c.waitUntil(old.serving, again.serving), "whoever trusts the one trusts the other")
	require.Equal(t, old.serving.leaf.NotAfter.Add(-time.Minute), c.waitUntil(old.serving, young.serving), "not trusted as far as is known")

	c.see(young.bundle, now)
	require.Equal(t, now.Add(defaultBundleDelay), c.waitUntil(old.serving, young.serving))
	c.see(young.bundle, now.Add(time.Hour))
	require.Equal(t, now.Add(defaultBundleDelay), c.waitUntil(old.serving, young.serving), "the first sight counts")
	c.see(old.bundle, now.Add(2*time.Hour))
	c.see(young.bundle, now.Add(3*time.Hour))
	require.Equal(t, now.Add(3*time.Hour+defaultBundleDelay), c.waitUntil(old.serving, young.serving), "it was away in between")
}
