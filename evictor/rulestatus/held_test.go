package rulestatus

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestEvictionHeld(t *testing.T) {
	t.Parallel()
	two := heldPods{pods: 2, reason: "BreakerTripped", why: "approve it"}
	was := stored(ConditionEvictionHeld, isTrue, "BreakerTripped", "2 pods are held: approve it.", 3, time.Hour)
	for sentence, c := range map[string]struct {
		in     given
		status metav1.ConditionStatus // empty for no condition
		says   string
		since  time.Duration
		write  bool
	}{
		"a rule of which nobody is held has no such condition": {
			given{rule: ruleWith(noExecute), told: true, stood: never, written: never}, "", "", 0, true,
		},
		"J01 pods that are held are told of, with what to do": {
			given{rule: ruleWith(noExecute), held: two, told: true, stood: never, written: never}, isTrue, "2 pods are held: approve it.", 0, true,
		},
		"one pod is held": {
			given{rule: ruleWith(noExecute), held: heldPods{1, "Paused", "it is paused"}, told: true, stood: never, written: never}, isTrue, "1 pod is held: it is paused.", 0, true,
		},
		"another number is no transition": {
			given{rule: ruleWith(noExecute, was), held: heldPods{3, "BreakerTripped", "approve it"}, told: true, stood: never, written: never}, isTrue, "3 pods are held: approve it.", time.Hour, true,
		},
		"once nobody is held the condition says so": {
			given{rule: ruleWith(noExecute, was), told: true, stood: never, written: never}, isFalse, "No pod is held that has to leave by now.", 0, true,
		},
		"a change waits for its turn, and what stands there stays": {
			given{rule: ruleWith(noExecute, was), held: heldPods{3, "BreakerTripped", "approve it"}, told: true, stood: never, written: time.Second}, isTrue, "2 pods are held: approve it.", time.Hour, false,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			v := c.in.conditions()
			require.Equal(t, c.write, v.write)
			got := meta.FindStatusCondition(v.conditions, ConditionEvictionHeld)
			if c.status == "" {
				require.Nil(t, got)
				return
			}
			require.NotNil(t, got)
			require.Equal(t, c.status, got.Status)
			require.Equal(t, c.says, got.Message)
			require.Equal(t, noon.Add(-c.since).Truncate(time.Second).UTC(), got.LastTransitionTime.UTC())
		})
	}
	t.Run("where somebody else writes EvictionInProgress, only this is written", func(t *testing.T) {
		t.Parallel()
		v := given{rule: ruleWith(noExecute), held: two, heldOnly: true, told: true, stood: never, written: never}.conditions()
		require.True(t, v.write)
		require.Len(t, v.conditions, 1)
		v = given{rule: ruleWith(noExecute), heldOnly: true, told: true, stood: never, written: never}.conditions()
		require.False(t, v.write)
	})
	t.Run("a rule that is full of the conditions of others is left alone", func(t *testing.T) {
		t.Parallel()
		var others []metav1.Condition
		for i := range resourcev1.DeviceTaintRuleStatusMaxConditions - 1 {
			others = append(others, stored("example.com/"+string(rune('a'+i)), isTrue, "Other", "", 3, 0))
		}
		v := given{rule: ruleWith(noExecute, others...), held: two, told: true, stood: never, written: never}.conditions()
		require.Nil(t, meta.FindStatusCondition(v.conditions, ConditionEvictionHeld))
		require.NotNil(t, meta.FindStatusCondition(v.conditions, resourcev1.DeviceTaintConditionEvictionInProgress))
	})
}
