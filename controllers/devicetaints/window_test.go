package devicetaints

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
)

func TestWindowsNeedTwins(t *testing.T) {
	w := newWorld(t)
	w.window = true
	c := w.controller()
	w.give()
	w.windows("degraded")
	w.put(rule("broken", "gpu-0", "degraded", noExecute))
	w.put(rule("other", "gpu-0", "other", noExecute))
	w.put(rule("calm", "gpu-0", "degraded", noSchedule))
	for _, name := range []string{"broken", "other", "calm"} {
		w.step(c, name)
	}
	require.Equal(t, []string{"broken-noschedule gpu.example.com/*/gpu-0 degraded=v:NoSchedule of broken"}, w.pairs())

	w.SetSlice(slice("s", map[string][]resourcev1.DeviceTaint{"gpu-1": {{Key: "degraded", Effect: noExecute}}}), time.Unix(0, 0))
	w.step(c, "")
	require.Len(t, w.pairs(), 2, "what drivers publish as well")

	t.Run("another policy that gives claims the same changes nothing", func(t *testing.T) {
		w.give("degraded")
		w.windows("degraded")
		w.step(c, "broken")
		require.Len(t, w.pairs(), 2)
		w.give("degraded")
		w.step(c, "broken")
		w.step(c, "")
		require.Len(t, w.pairs(), 2, "the twin stays while one of both needs it")
	})
	t.Run("they go with the window", func(t *testing.T) {
		w.give()
		w.windows()
		w.step(c, "broken")
		w.step(c, "")
		require.Empty(t, w.pairs())
	})
}

func TestWindowsNeedNoTwinsInAnotherMode(t *testing.T) {
	w := newWorld(t)
	c := w.controller()
	w.give()
	w.windows("degraded")
	w.put(rule("broken", "gpu-0", "degraded", noExecute))
	w.step(c, "broken")
	require.Empty(t, w.pairs())
}
