package rulestatus

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

var noon = time.Date(2026, 8, 1, 12, 0, 0, 500_000_000, time.UTC)

// ruleWith returns a rule of generation 3 with conditions.
func ruleWith(effect resourcev1.DeviceTaintEffect, conditions ...metav1.Condition) *tracker.Rule {
	return &tracker.Rule{
		Name: "broken", UID: "1", Generation: 3, Created: noon.Add(-time.Hour).Truncate(time.Second),
		Taint: resourcev1.DeviceTaint{Key: "broken", Effect: effect}, Conditions: conditions,
	}
}

// stored returns a condition as it may be stored for some time.
func stored(kind string, status metav1.ConditionStatus, reason, message string, generation int64, ago time.Duration) metav1.Condition {
	return metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: generation,
		LastTransitionTime: metav1.NewTime(noon.Add(-ago).Truncate(time.Second)),
	}
}

// given is an input whose times are durations before now.
type given struct {
	rule                      *tracker.Rule
	tally                     tally
	evicted                   int
	held                      heldPods
	heldOnly                  bool
	told, unfinished          bool
	stood, written, previewed time.Duration
}

// conditions returns the conditions at noon, by a machine whose clock is wrong.
func (g given) conditions() verdict {
	local := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	before := func(ago time.Duration) time.Time {
		if ago == never {
			return time.Time{}
		}
		return local.Add(-ago)
	}
	return conditions(moment{server: noon, local: local}, &input{
		memory: &memory{told: g.told, unfinished: g.unfinished, seen: before(g.stood), written: before(g.written), previewed: before(g.previewed)},
		rule:   g.rule, tally: g.tally, evicted: g.evicted, held: g.held, heldOnly: g.heldOnly,
	})
}

func TestWhenToWrite(t *testing.T) {
	t.Parallel()
	const evicting = resourcev1.DeviceTaintConditionEvictionInProgress
	two := tally{pods: 2, namespaces: 1}
	said := summary(&tally{}) + " " + seePreview
	previewed := func(counts tally, ago time.Duration) metav1.Condition {
		return stored(ConditionEvictionPreview, isFalse, ReasonNoPods, summary(&counts), 3, ago)
	}
	for sentence, c := range map[string]struct {
		in    given
		write bool
		again time.Duration
	}{
		"DE-61 a generation that was not told of is written at once": {
			given{rule: ruleWith(noExecute, stored(evicting, isFalse, ReasonCompleted, "", 2, 0)), tally: two}, true, longestPause,
		},
		"DE-63 a change is not written before its time": {
			given{rule: ruleWith(noExecute, stored(evicting, isFalse, ReasonNotStarted, "", 3, 0)), tally: two, told: true, stood: never, written: 3 * time.Second}, false, 7 * time.Second,
		},
		"DE-63 a change is written when it is time": {
			given{rule: ruleWith(noExecute, stored(evicting, isFalse, ReasonNotStarted, "", 3, 0)), tally: two, told: true, stood: never, written: 10 * time.Second}, true, longestPause,
		},
		"DE-63 the end of an eviction that was told of is written at once": {
			given{rule: ruleWith(noExecute, stored(evicting, isTrue, ReasonPodsPendingEviction, "", 3, 0)), told: true, unfinished: true, stood: never, written: time.Second}, true, longestPause,
		},
		"DE-63 what somebody else has written is overruled when it is time": {
			given{rule: ruleWith(noExecute, stored(evicting, isTrue, ReasonPodsPendingEviction, "", 3, 0)), told: true, stood: never, written: time.Second}, false, 9 * time.Second,
		},
		"DE-64 what has not changed is not written": {
			given{rule: ruleWith(noExecute, stored(evicting, isTrue, ReasonPodsPendingEviction, pendingMessage(&two), 3, 0)), tally: two, told: true, stood: never, written: never}, false, longestPause,
		},
		"DE-64 another status is a change": {
			given{rule: ruleWith(noExecute, stored(evicting, isFalse, ReasonPodsPendingEviction, pendingMessage(&two), 3, 0)), tally: two, told: true, written: never}, true, longestPause,
		},
		"DE-64 another reason is a change": {
			given{rule: ruleWith(noExecute, stored(evicting, isTrue, "Other", pendingMessage(&two), 3, 0)), tally: two, told: true, written: never}, true, longestPause,
		},
		"DE-64 another message is a change": {
			given{rule: ruleWith(noExecute, stored(evicting, isTrue, ReasonPodsPendingEviction, "", 3, 0)), tally: two, told: true, written: never}, true, longestPause,
		},
		"DE-76 a rule that settles is looked at when it has": {
			given{rule: ruleWith(noExecute, stored(evicting, isTrue, ReasonSettling, settlingMessage, 3, 0)), told: true, stood: time.Second, written: never}, false, 4 * time.Second,
		},
		"a preview is not written before its time": {
			given{rule: ruleWith(none, stored(evicting, isFalse, ReasonNoEffect, said, 3, 0), previewed(two, 0)), told: true, written: 20 * time.Second, previewed: 20 * time.Second}, false, 40 * time.Second,
		},
		"a preview is not written right after something else": {
			given{rule: ruleWith(none, stored(evicting, isFalse, ReasonNoEffect, said, 3, 0), previewed(two, 0)), told: true, written: 2 * time.Second, previewed: never}, false, 8 * time.Second,
		},
		"a preview that is missing is not written right after something else": {
			given{rule: ruleWith(none, stored(evicting, isFalse, ReasonNoEffect, said, 3, 0)), told: true, written: 2 * time.Second, previewed: time.Second}, false, 8 * time.Second,
		},
		"a preview that is missing does not wait for a minute": {
			given{rule: ruleWith(none, stored(evicting, isFalse, ReasonNoEffect, said, 3, 0)), told: true, written: 10 * time.Second, previewed: 10 * time.Second}, true, longestPause,
		},
		"a preview that is right is not written": {
			given{rule: ruleWith(none, stored(evicting, isFalse, ReasonNoEffect, said, 3, 0), previewed(tally{}, 0)), told: true, written: never, previewed: never}, false, longestPause,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			v := c.in.conditions()
			require.Equal(t, c.write, v.write)
			require.Equal(t, c.again, v.again)
		})
	}
}

func TestDating(t *testing.T) {
	t.Parallel()
	const evicting = resourcev1.DeviceTaintConditionEvictionInProgress
	then, now := metav1.NewTime(noon.Add(-time.Hour).Truncate(time.Second)), metav1.NewTime(noon.Truncate(time.Second))
	said := summary(&tally{}) + " " + seePreview
	preview := stored(ConditionEvictionPreview, isFalse, ReasonNoPods, summary(&tally{}), 3, time.Hour)

	t.Run("DE-63 the transition is that of the last change, be it only the message", func(t *testing.T) {
		t.Parallel()
		rule := ruleWith(noExecute, stored(evicting, isTrue, ReasonPodsPendingEviction, "5 pods need to be evicted in 1 namespace.", 3, time.Hour))
		v := given{rule: rule, tally: tally{pods: 5, namespaces: 1}, told: true, written: never}.conditions()
		require.Equal(t, then, v.conditions[0].LastTransitionTime)
		v = given{rule: rule, tally: tally{pods: 4, namespaces: 1}, told: true, written: never}.conditions()
		require.Equal(t, now, v.conditions[0].LastTransitionTime)
	})

	t.Run("a preview that changes leaves the date of what was said once", func(t *testing.T) {
		t.Parallel()
		rule := ruleWith(none, stored(evicting, isFalse, ReasonNoEffect, said, 3, time.Hour), preview)
		v := given{rule: rule, tally: tally{pods: 1, namespaces: 1}, told: true, written: never, previewed: never}.conditions()
		require.True(t, v.write)
		require.True(t, v.previews)
		require.Equal(t, then, v.conditions[0].LastTransitionTime)
		require.Equal(t, now, v.conditions[1].LastTransitionTime)
	})

	t.Run("a preview whose time has not come stays as it is when something else is written", func(t *testing.T) {
		t.Parallel()
		rule := ruleWith(none, stored(evicting, isFalse, ReasonNoEffect, said, 3, time.Hour), preview)
		v := given{rule: rule, tally: tally{pods: 1, namespaces: 1}, evicted: 1, told: true, written: 30 * time.Second, previewed: 30 * time.Second}.conditions()
		require.True(t, v.write)
		require.False(t, v.previews)
		require.Equal(t, said+" 1 pod evicted so far.", v.conditions[0].Message)
		require.Equal(t, preview, v.conditions[1])
	})
}

func TestRecall(t *testing.T) {
	t.Parallel()
	const evicting = resourcev1.DeviceTaintConditionEvictionInProgress
	local := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	now := moment{server: noon, local: local}
	ago := func(m *memory) [3]time.Duration {
		return [3]time.Duration{now.since(m.seen), now.since(m.written), now.since(m.previewed)}
	}

	t.Run("a rule that has no status is new", func(t *testing.T) {
		t.Parallel()
		m := recall(ruleWith(noExecute), nil, 0, now)
		require.False(t, m.told)
		require.Equal(t, [3]time.Duration{0, never, never}, ago(m))
	})

	t.Run("the first generation was seen when the rule was created", func(t *testing.T) {
		t.Parallel()
		rule := ruleWith(noExecute)
		rule.Generation = 1
		require.Equal(t, time.Hour-time.Second+500*time.Millisecond, now.since(recall(rule, nil, 0, now).seen))
	})

	t.Run("the last write is the last of both conditions, and of an older generation too", func(t *testing.T) {
		t.Parallel()
		m := recall(ruleWith(none,
			stored(evicting, isFalse, ReasonNoEffect, "", 2, time.Hour), stored(ConditionEvictionPreview, isFalse, ReasonNoPods, "", 2, time.Minute)), nil, 0, now)
		require.False(t, m.told)
		require.Equal(t, [3]time.Duration{0, 59500 * time.Millisecond, 59500 * time.Millisecond}, ago(m))
		m = recall(ruleWith(none,
			stored(evicting, isFalse, ReasonNoEffect, "", 3, time.Minute), stored(ConditionEvictionPreview, isFalse, ReasonNoPods, "", 3, time.Hour)), nil, 0, now)
		require.True(t, m.told)
		require.Equal(t, [3]time.Duration{59500 * time.Millisecond, 59500 * time.Millisecond, time.Hour - 500*time.Millisecond}, ago(m))
	})

	t.Run("what is dated in the future was just now", func(t *testing.T) {
		t.Parallel()
		m := recall(ruleWith(noExecute, stored(evicting, isTrue, ReasonSettling, "", 3, -time.Hour)), nil, 0, now)
		require.Equal(t, [3]time.Duration{0, 0, never}, ago(m))
	})
}
