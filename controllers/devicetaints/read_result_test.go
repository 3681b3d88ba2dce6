package devicetaints

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestThatANameIsTakenIsSaidOnce(t *testing.T) {
	w := newWorld(t)
	c := w.controller()
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	c.Local = clock
	w.give("degraded")
	w.SetSlice(slice("s", map[string][]resourcev1.DeviceTaint{"gpu-0": {{Key: "degraded", Effect: noExecute}}}), time.Unix(0, 0))
	w.step(c, "")
	require.Len(t, w.pairs(), 1)
	name, _, _ := strings.Cut(w.pairs()[0], " ")
	w.drop(name)
	w.put(rule(name, "gpu-7", "mine", noSchedule))
	w.taken()

	w.step(c, "")
	calls, events := w.taken()
	require.Equal(t, []string{"get " + name}, calls)
	require.Len(t, events, 1)
	w.step(c, "")
	calls, events = w.taken()
	require.Empty(t, calls)
	require.Empty(t, events)
	clock.Step(recheck)
	w.step(c, "")
	calls, events = w.taken()
	require.Equal(t, []string{"get " + name}, calls)
	require.Empty(t, events)

	w.drop(name)
	w.step(c, "")
	require.Len(t, w.pairs(), 1, "the name is free")
}

func TestAReplacedOwnerIsTheOwner(t *testing.T) {
	t.Run("of a rule", func(t *testing.T) {
		w := newWorld(t)
		c := w.controller()
		w.give("degraded")
		w.put(rule("broken", "gpu-0", "degraded", noExecute))
		w.step(c, "broken")
		pairedRule := w.stored["broken-noschedule"].UID
		w.drop("broken")
		w.put(rule("broken", "gpu-0", "degraded", noExecute))
		w.step(c, "broken")
		require.Equal(t, w.stored["broken"].UID, w.stored["broken-noschedule"].OwnerReferences[0].UID)
		require.Equal(t, pairedRule, w.stored["broken-noschedule"].UID, "meanwhile it held")
		w.drop("broken")
		w.put(rule("broken", "gpu-1", "degraded", noExecute))
		w.step(c, "broken")
		require.Equal(t, []string{"broken-noschedule gpu.example.com/*/gpu-1 degraded=v:NoSchedule of broken"}, w.pairs())
		require.Equal(t, w.stored["broken"].UID, w.stored["broken-noschedule"].OwnerReferences[0].UID)
	})
	t.Run("of what a driver publishes", func(t *testing.T) {
		w := newWorld(t)
		c := w.controller()
		w.give("degraded")
		published := slice("s", map[string][]resourcev1.DeviceTaint{"gpu-0": {{Key: "degraded", Effect: noExecute}}})
		w.SetSlice(published, time.Unix(0, 0))
		w.step(c, "")
		w.step(c, "")
		w.DeleteSlice("s", "s")
		published.UID = "another"
		w.SetSlice(published, time.Unix(1, 0))
		w.step(c, "")
		name, _, _ := strings.Cut(w.pairs()[0], " ")
		require.Equal(t, types.UID("another"), w.stored[name].OwnerReferences[0].UID)
	})
}
