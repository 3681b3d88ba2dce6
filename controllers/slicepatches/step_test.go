package slicepatches

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/controllers/devicetaints"
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

const ofA100 = `{filter: {selectors: [{cel: {expression: 'device.attributes["gpu.example.com"].?model.orValue("") == "a100"'}}]}, `

func TestRules(t *testing.T) {
	for name, tt := range map[string]struct {
		patch  string
		shared bool
		rules  []string
		ready  string
	}{
		"without taints there are none": {
			patch: `{attributes: {example.com/slow: {bool: true}}}`, rules: []string{}, ready: "True InForce: 5 devices are selected.",
		},
		"of all devices there is one": {
			patch: `{taints: [{key: k, effect: NoSchedule}]}`, rules: []string{"*/*/* k=:NoSchedule"}, ready: "True InForce: 5 devices are selected.",
		},
		"of a driver there is one for each taint": {
			patch: `{filter: {driver: gpu.example.com}, taints: [{key: k, value: v, effect: NoExecute}, {key: l, effect: None}]}`,
			rules: []string{"gpu.example.com/*/* k=v:NoExecute", "gpu.example.com/*/* l=:None"}, ready: "True InForce: 5 devices are selected.",
		},
		"of a pool there is one, though nothing is in it yet": {
			patch: `{filter: {driver: gpu.example.com, pool: later}, taints: [{key: k, effect: NoExecute}]}`,
			rules: []string{"gpu.example.com/later/* k=:NoExecute"}, ready: "True InForce: No device is selected.",
		},
		"with an expression there is one for each device": {
			patch: ofA100 + `taints: [{key: k, effect: NoExecute}]}`,
			rules: []string{"gpu.example.com/one/a k=:NoExecute", "gpu.example.com/two/c k=:NoExecute"}, ready: "True InForce: 2 devices are selected.",
		},
		"with a class too": {
			patch: `{filter: {deviceClassName: h100, pool: two}, taints: [{key: k, effect: NoSchedule}]}`,
			rules: []string{"gpu.example.com/two/d k=:NoSchedule"}, ready: "True InForce: 1 device is selected.",
		},
		"taints of one key and effect each have one": {
			patch: `{taints: [{key: k, value: v, effect: None}, {key: k, value: w, effect: None}]}`,
			rules: []string{"*/*/* k=v:None", "*/*/* k=w:None"}, ready: "True InForce: 5 devices are selected.",
		},
		"where Kubernetes evicts too it is not to": {
			patch: `{taints: [{key: k, effect: NoExecute}, {key: l, effect: NoSchedule}, {key: m, effect: None}]}`, shared: true,
			rules: []string{"*/*/* k=:NoSchedule meant NoExecute", "*/*/* l=:NoSchedule", "*/*/* m=:None"}, ready: "True InForce: 5 devices are selected.",
		},
		"of a patch that is not valid there are none": {
			patch: `{attributes: {bare: {int: 1}}, taints: [{key: k, effect: NoSchedule}]}`, rules: []string{},
			ready: "False Invalid: no part of the patch is in force: ",
		},
		"with a class that is missing there are none": {
			patch: `{filter: {deviceClassName: none}, taints: [{key: k, effect: NoSchedule}]}`, rules: []string{},
			ready: "False DeviceClassNotFound: there is no DeviceClass none, so that no device is selected",
		},
		"a device on which an expression fails has none, and the others have theirs": {
			patch: `{filter: {pool: two, selectors: [{cel: {expression: 'device.attributes["gpu.example.com"].model != "b100"'}}]}, taints: [{key: k, effect: NoSchedule}]}`,
			rules: []string{"gpu.example.com/two/c k=:NoSchedule", "gpu.example.com/two/d k=:NoSchedule"},
			ready: "False ExpressionFailed: an expression failed on 1 device, which the patch leaves alone, the first is gpu.example.com/two/e: selectors[0]: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.shared = tt.shared
			w.slice("one", "a=a100", "b=h100")
			w.slice("two", "c=a100", "d=h100", "e")
			w.class("h100", `device.attributes["gpu.example.com"].?model.orValue("") == "h100"`)
			c := w.controller()
			w.patch("p", tt.patch)
			w.step(c, "p")
			require.Equal(t, tt.rules, w.ruleText())
			require.True(t, strings.HasPrefix(w.ready("p"), tt.ready), "%s", w.ready("p"))

			w.taken()
			w.step(c, "p")
			calls, events := w.taken()
			require.Empty(t, calls, "what is as it is to be is left alone")
			require.Empty(t, events)

			w.deletePatch("p")
			w.step(c, "p")
			require.Empty(t, w.ruleText())
		})
	}
}

func TestStatusTellsOfDevices(t *testing.T) {
	w := newWorld(t)
	models := make([]string, 0, 20)
	for i := range 20 {
		models = append(models, fmt.Sprintf("gpu-%02d=a100", i))
	}
	w.slice("one", append(models, "x")...)
	w.patch("p", `{filter: {selectors: [{cel: {expression: 'device.attributes["gpu.example.com"].model == "a100"'}}]}, attributes: {example.com/slow: {bool: true}}}`)
	w.step(w.controller(), "p")
	status := w.status("p")
	require.Equal(t, int32(20), status.DevicesMatched)
	require.Equal(t, int32(1), status.DevicesFailed)
	require.Zero(t, status.DevicesLimited)
	require.Len(t, status.Matched, 8)
	require.Equal(t, "gpu.example.com/one/gpu-00", status.Matched[0])
	require.Len(t, status.Failed, 1)
	require.Equal(t, "gpu.example.com/one/x", status.Failed[0].Device)
	require.Contains(t, status.Failed[0].Message, "no such key: model")
	require.Equal(t, int64(1), status.ObservedGeneration)
	_, events := w.taken()
	require.Len(t, events, 1)
	require.Contains(t, events[0], "Warning ExpressionFailed p: an expression failed on 1 device")
}

func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.slice("one", "a")
		c := w.controller()
		w.patch("p", `{taints: [{key: k, effect: NoExecute}, {key: l, effect: NoSchedule, timeAdded: "2020-01-01T00:00:00Z"}]}`)
		began := time.Now().Truncate(time.Second)
		w.step(c, "p")
		calls, _ := w.taken()
		require.Equal(t, "status p", calls[0], "the time is recorded before a rule has it")
		times := func() map[string]time.Time {
			found := map[string]time.Time{}
			for _, object := range w.stored {
				found[object.Spec.Taint.Key+"="+object.Spec.Taint.Value] = object.Spec.Taint.TimeAdded.UTC()
			}
			return found
		}
		past := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
		require.Equal(t, map[string]time.Time{"k=": began.UTC(), "l=": past}, times())
		require.Len(t, w.status("p").Taints, 1, "one has its own")

		time.Sleep(time.Hour)
		w.patch("p", `{taints: [{key: k, value: v, effect: NoExecute}, {key: l, effect: NoSchedule, timeAdded: "2020-01-01T00:00:00Z"}]}`)
		w.step(w.controller(), "p")
		require.Equal(t, map[string]time.Time{"k=v": began.UTC(), "l=": past}, times(), "another value does not start the clock again")
		require.Len(t, w.ruleText(), 2)

		w.patch("p", `{taints: [{key: k, value: v, effect: NoSchedule}]}`)
		w.step(c, "p")
		require.Equal(t, map[string]time.Time{"k=v": time.Now().Truncate(time.Second).UTC()}, times(), "another effect does")
	})
}

func TestASecondTaintCountsFromItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.controller()
		w.patch("p", `{taints: [{key: k, value: a, effect: NoExecute}]}`)
		began := time.Now().Truncate(time.Second)
		w.step(c, "p")
		time.Sleep(time.Hour)
		w.patch("p", `{taints: [{key: k, value: a, effect: NoExecute}, {key: k, value: b, effect: NoExecute}]}`)
		w.step(c, "p")
		times := w.status("p").Taints
		require.Len(t, times, 2)
		require.True(t, began.Equal(times[0].TimeAdded.Time))
		require.True(t, began.Add(time.Hour).Equal(times[1].TimeAdded.Time))
	})
}

func TestRulesArePutRight(t *testing.T) {
	begin := func(t *testing.T) (*world, *Controller, *resourcev1.DeviceTaintRule) {
		t.Helper()
		w := newWorld(t)
		w.slice("one", "a=a100", "b=h100")
		c := w.controller()
		w.patch("p", ofA100+`taints: [{key: k, effect: NoExecute}]}`)
		w.step(c, "p")
		require.Len(t, w.stored, 1)
		for _, object := range w.stored {
			w.taken()
			return w, c, object.DeepCopy()
		}
		return nil, nil, nil
	}
	right := []string{"gpu.example.com/one/a k=:NoExecute"}

	t.Run("that were edited", func(t *testing.T) {
		w, c, edited := begin(t)
		edited.Spec.Taint.Effect = resourcev1.DeviceTaintEffectNone
		edited.Spec.DeviceSelector = nil
		w.put(edited)
		w.step(c, "p")
		require.Equal(t, right, w.ruleText())
	})
	t.Run("that were deleted", func(t *testing.T) {
		w, c, deleted := begin(t)
		w.drop(deleted.Name)
		w.step(c, "p")
		require.Equal(t, right, w.ruleText())
	})
	t.Run("of an earlier patch of that name", func(t *testing.T) {
		w, c, _ := begin(t)
		w.deletePatch("p")
		w.patch("p", ofA100+`taints: [{key: k, effect: NoExecute}]}`).UID = "another"
		w.step(c, "p")
		require.Equal(t, right, w.ruleText())
		for _, object := range w.stored {
			require.Equal(t, "another", string(object.OwnerReferences[0].UID))
			require.Equal(t, "another", object.Labels[v1alpha1.LabelPatch])
		}
	})
	t.Run("when the mode of eviction has changed", func(t *testing.T) {
		w, _, _ := begin(t)
		w.shared = true
		w.step(w.controller(), "p")
		require.Equal(t, []string{"gpu.example.com/one/a k=:NoSchedule meant NoExecute"}, w.ruleText())
	})
	t.Run("when other devices are published", func(t *testing.T) {
		w, c, _ := begin(t)
		w.slice("one", "a=h100", "b=a100")
		w.step(c, "p")
		require.Equal(t, []string{"gpu.example.com/one/b k=:NoExecute"}, w.ruleText())
	})
	t.Run("one that the tracker does not know yet is not written twice", func(t *testing.T) {
		w, c, _ := begin(t)
		w.staleTracker = true
		w.slice("one", "a=a100", "b=a100")
		w.step(c, "p")
		w.step(c, "p")
		calls, _ := w.taken()
		require.Len(t, w.ruleText(), 2)
		require.Equal(t, 1, strings.Count(strings.Join(calls, "\n"), "create "))
		w.syncTracker()
		w.taken()
		w.step(c, "p")
		calls, _ = w.taken()
		require.Empty(t, calls)
	})
}

func TestRulesOfOthersAreLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.slice("one", "a")
	c := w.controller()
	patch := w.patch("p", `{taints: [{key: k, effect: NoSchedule}]}`)
	name := rulesOf(patch, []resourcev1.DeviceTaint{{Key: "k", Effect: resourcev1.DeviceTaintEffectNoSchedule}}, nil, false)[0].name
	w.put(&resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelPatch: string(patch.UID)}},
		Spec: resourcev1.DeviceTaintRuleSpec{
			DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: new("theirs")},
			Taint:          resourcev1.DeviceTaint{Key: "theirs", Effect: resourcev1.DeviceTaintEffectNone},
		},
	})
	for range 3 {
		w.step(c, "p")
	}
	require.Equal(t, []string{"theirs/*/* theirs=:None"}, w.ruleText())
	require.Equal(t, "False RuleExists: the DeviceTaintRule "+name+" cannot be written, because there is one of that name that is not of this patch; delete it", w.ready("p"))
	_, events := w.taken()
	require.Len(t, events, 1, "it is said once")

	w.deletePatch("p")
	w.step(c, "p")
	require.Len(t, w.ruleText(), 1)
}

func TestFaults(t *testing.T) {
	t.Run("nothing is written while too little is known", func(t *testing.T) {
		w := newWorld(t)
		w.patch("p", `{taints: [{key: k, effect: NoSchedule}]}`)
		w.synced = false
		again, err := w.controller().reconcile(t.Context(), "p")
		require.NoError(t, err)
		require.Equal(t, syncPause, again)
		require.Empty(t, w.calls)
	})
	t.Run("the view is waited for", func(t *testing.T) {
		w := newWorld(t)
		w.patch("p", `{taints: [{key: k, effect: NoSchedule}]}`)
		w.view.DeletePatch("p")
		again, err := w.controller().reconcile(t.Context(), "p")
		require.NoError(t, err)
		require.Equal(t, viewPause, again)
		require.Empty(t, w.calls)
	})
	t.Run("rules stay whose patch only the cache has lost", func(t *testing.T) {
		w := newWorld(t)
		c := w.controller()
		w.patch("p", `{taints: [{key: k, effect: NoSchedule}]}`)
		w.step(c, "p")
		c.Cache = newWorld(t)
		again, err := c.reconcile(t.Context(), "p")
		require.NoError(t, err)
		require.Equal(t, syncPause, again)
		require.Len(t, w.ruleText(), 1)
	})
	t.Run("one rule that is refused does not keep others from being written", func(t *testing.T) {
		w := newWorld(t)
		w.slice("one", "a=a100", "b=a100", "c=a100")
		patch := w.patch("p", ofA100+`taints: [{key: k, effect: NoSchedule}]}`)
		all := rulesOf(patch, []resourcev1.DeviceTaint{{Key: "k", Effect: resourcev1.DeviceTaintEffectNoSchedule}},
			[]device.ID{{Driver: "gpu.example.com", Pool: "one", Name: "b"}}, false)
		w.refused[all[0].name] = true
		w.step(w.controller(), "p")
		require.Equal(t, []string{"gpu.example.com/one/a k=:NoSchedule", "gpu.example.com/one/c k=:NoSchedule"}, w.ruleText())
		require.Contains(t, w.ready("p"), "False RulesRefused: create DeviceTaintRule "+all[0].name+": ")
	})
	t.Run("another answer is no verdict, and it is tried again", func(t *testing.T) {
		w := newWorld(t)
		w.fault = errors.New("the API server is away")
		w.patch("p", `{taints: [{key: k, effect: NoSchedule}]}`)
		c := w.controller()
		_, err := c.reconcile(t.Context(), "p")
		require.ErrorContains(t, err, "the API server is away")
		w.fault = nil
		w.step(c, "p")
		require.Len(t, w.ruleText(), 1)
		require.Equal(t, "True InForce: No device is selected.", w.ready("p"))
	})
	t.Run("where rules are not served the status says what that means", func(t *testing.T) {
		w := newWorld(t)
		w.fault = devicetaints.ErrNotServed
		w.patch("p", `{taints: [{key: k, effect: NoSchedule}]}`)
		w.step(w.controller(), "p")
		require.Equal(t, "False RulesNotServed: taints reach schedulers that apply patches only, and evict no pod: the API server does not serve DeviceTaintRules", w.ready("p"))
	})
	t.Run("where rules are not followed too", func(t *testing.T) {
		w := newWorld(t)
		c := w.controller()
		c.Rules.Index, c.Rules.Client = nil, nil
		w.patch("p", `{taints: [{key: k, effect: NoSchedule}]}`)
		w.step(c, "p")
		require.Contains(t, w.ready("p"), "False RulesNotServed: ")
		w.deletePatch("p")
		w.step(c, "p")
	})
	t.Run("publish is not in force, and says so", func(t *testing.T) {
		w := newWorld(t)
		w.patch("p", `{attributes: {example.com/slow: {bool: true}}}`).Spec.Publish = true
		w.step(w.controller(), "p")
		require.Contains(t, w.ready("p"), "False NotPublished: spec.publish does nothing: ")
	})
}

func TestItIsSaidWhenOneDeviceIsTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		models := make([]string, 0, maxRules+1)
		for i := range maxRules + 1 {
			models = append(models, fmt.Sprintf("gpu-%04d=a100", i))
		}
		w.slice("one", models...)
		c := w.controller()
		w.patch("p", ofA100+`taints: [{key: k, effect: NoSchedule}]}`)
		w.step(c, "p")
		require.Len(t, w.stored, maxRules)
		require.Contains(t, w.ready("p"), "False TooManyDevices: taints reach other schedulers, and evict pods, on the first 1000 of 1001 devices only: ")
	})
}

func TestNoMoreRulesThanThereMayBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for pool := range 12 {
			names := make([]string, 0, 100)
			for i := range 100 {
				names = append(names, fmt.Sprintf("gpu-%02d=a100", i))
			}
			w.slice(fmt.Sprintf("pool-%02d", pool), names...)
		}
		c := w.controller()
		w.patch("p", ofA100+`taints: [{key: k, effect: NoSchedule}, {key: l, effect: None}]}`)
		w.step(c, "p")
		require.Len(t, w.stored, 1000)
		require.Contains(t, w.ready("p"), "False TooManyDevices: taints reach other schedulers, and evict pods, on the first 500 of 1200 devices only: ")
		other := w.patch("other", ofA100+`}`)
		for i := range 3990 {
			id := device.ID{Driver: "d", Pool: "p", Name: fmt.Sprintf("gpu-%d", i)}
			w.put(new(rulesOf(other, []resourcev1.DeviceTaint{{Key: "k"}}, []device.ID{id}, false)[0]).object("resource.k8s.io/v1"))
		}
		w.patch("q", ofA100+`taints: [{key: k, effect: NoSchedule}]}`)
		w.step(c, "q")
		require.Len(t, w.stored, 5000)
		require.Contains(t, w.ready("q"), "on the first 10 of 1200 devices only")

		w.patch("p", `{filter: {driver: gpu.example.com}, taints: [{key: k, effect: NoSchedule}, {key: l, effect: None}]}`)
		w.step(c, "p")
		require.Len(t, w.stored, 4002, "by names alone it is one a taint")
		require.Equal(t, "True InForce: 1200 devices are selected.", w.ready("p"))
	})
}

// The clock does not advance during a step, so that only waits take time.
func TestCountingRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.controller()
		w.patch("p", `{}`)
		c.restUntil = time.Now().Add(300 * time.Millisecond)
		began := time.Now()
		w.step(c, "p")
		require.Zero(t, time.Since(began), "who has just written one does not wait")
		c.restUntil = time.Now().Add(300 * time.Millisecond)
		w.step(c, "p")
		require.Equal(t, 300*time.Millisecond, time.Since(began))
	})
}

func TestStatusIsNotWrittenAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.slice("one", "a")
		c := w.controller()
		w.patch("p", `{attributes: {example.com/slow: {bool: true}}}`)
		w.step(c, "p")
		w.taken()
		for i := range 600 {
			w.slice("one", "a", fmt.Sprintf("b-%d", i))
			w.step(c, "p")
			time.Sleep(100 * time.Millisecond)
		}
		calls, _ := w.taken()
		require.LessOrEqual(t, len(calls), 60/5+1)
		require.GreaterOrEqual(t, len(calls), 60/5-1)
	})
}

func TestItIsSaidThatNoSchedulerObeys(t *testing.T) {
	const values, none = `{attributes: {example.com/slow: {bool: true}}}`, "False NoScheduler: attributes and capacity change nothing, because no scheduler that applies patches runs: nobody renews the Lease kube-system/tollgate-patched-scheduler; docs/scheduler.md says how to run one"
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.controller()
		w.patch("p", values)
		w.step(c, "p")
		require.Equal(t, "True InForce: No device is selected.", w.ready("p"))
		time.Sleep(slicepatch.Duration)
		w.step(c, "p")
		require.Equal(t, none, w.ready("p"), "it is not renewed")
		w.schedule()
		time.Sleep(presencePause)
		w.step(c, "p")
		require.Equal(t, "True InForce: No device is selected.", w.ready("p"))

		w.lease = nil
		time.Sleep(presencePause)
		w.step(c, "p")
		require.Equal(t, none, w.ready("p"), "there is none")
		w.patch("p", `{taints: [{key: k, effect: NoSchedule}]}`)
		w.step(c, "p")
		require.Equal(t, "True InForce: No device is selected.", w.ready("p"), "taints need none")

		w.leaseFault = errors.New("not permitted")
		time.Sleep(presencePause)
		w.patch("p", values)
		w.step(c, "p")
		require.Equal(t, none, w.ready("p"), "what was seen last still holds")
		c = w.controller()
		w.step(c, "p")
		require.Equal(t, "True InForce: No device is selected.", w.ready("p"), "what could never be asked is not said")
	})
}

func TestRulesThatCannotBeWrittenDoNotKeepOthersFromBeing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		models := make([]string, 0, 200)
		var ids []device.ID
		for i := range 200 {
			name := fmt.Sprintf("gpu-%03d", i)
			models = append(models, name+"=a100")
			ids = append(ids, device.ID{Driver: "gpu.example.com", Pool: "one", Name: name})
		}
		w.slice("one", models...)
		patch := w.patch("p", ofA100+`taints: [{key: k, effect: NoExecute}]}`)
		for _, r := range rulesOf(patch, []resourcev1.DeviceTaint{{Key: "k", Effect: resourcev1.DeviceTaintEffectNoExecute}}, ids[:120], false) {
			w.refused[r.name] = true
		}
		c := w.controller()
		w.step(c, "p")
		require.Len(t, w.stored, 80)
		require.Contains(t, w.ready("p"), "False RulesRefused: create DeviceTaintRule ")
		calls, _ := w.taken()
		require.Less(t, len(calls), 3*200)
		w.step(c, "p")
		calls, _ = w.taken()
		require.Empty(t, calls, "they are not tried again at once")
		time.Sleep(failurePause)
		w.refused = map[string]bool{}
		w.step(c, "p")
		require.Len(t, w.stored, 200)
		w.step(c, "p")
		require.Equal(t, "True InForce: 200 devices are selected.", w.ready("p"))
	})
}

func TestWhatIsWrongGoesFirst(t *testing.T) {
	w := newWorld(t)
	models := make([]string, 0, 60)
	for i := range 60 {
		models = append(models, fmt.Sprintf("gpu-%02d=%s", i, []string{"a100", "h100"}[i%2]))
	}
	w.slice("one", models...)
	c := w.controller()
	w.patch("p", ofA100+`taints: [{key: k, effect: NoExecute}]}`)
	w.step(c, "p")
	w.taken()
	w.patch("p", strings.Replace(ofA100, "a100", "h100", 1)+`taints: [{key: k, effect: NoExecute}]}`)
	w.step(c, "p")
	calls, _ := w.taken()
	calls = slices.DeleteFunc(calls, func(call string) bool { return strings.HasPrefix(call, "get ") || strings.HasPrefix(call, "status ") })
	require.Len(t, calls, 60)
	for i, call := range calls {
		require.Equal(t, i < 30, strings.HasPrefix(call, "delete "), "%d: %s", i, call)
	}
}

func TestNothingIsWrittenForWhatAPatchWas(t *testing.T) {
	const before, after = ofA100 + `taints: [{key: k, effect: NoExecute}]}`, `{filter: {pool: one}, taints: [{key: k, effect: NoSchedule}]}`
	t.Run("whose devices the view counts by a later version", func(t *testing.T) {
		w := newWorld(t)
		w.slice("one", "a=a100", "b=h100")
		c := w.controller()
		was := w.patch("p", before)
		w.patch("p", after)
		c.Cache = lagging{w, was}
		again, err := c.reconcile(t.Context(), "p")
		require.NoError(t, err)
		require.Equal(t, viewPause, again)
		require.Empty(t, w.ruleText())
	})
	t.Run("that changes while the view counts", func(t *testing.T) {
		w := newWorld(t)
		w.slice("one", "a=a100", "b=h100")
		c := w.controller()
		w.patch("p", before)
		c.Local = counting{c.Local, sync.OnceFunc(func() { w.patch("p", after) })}
		again, err := c.reconcile(t.Context(), "p")
		require.NoError(t, err)
		require.Equal(t, viewPause, again)
		require.Empty(t, w.ruleText())
	})
	t.Run("when the API server knows a later version", func(t *testing.T) {
		w := newWorld(t)
		w.slice("one", "a=a100", "b=h100")
		c := w.controller()
		was := w.patch("p", before)
		w.step(c, "p")
		was = was.DeepCopy()
		was.Status = w.status("p")
		for name := range w.stored {
			w.drop(name)
		}
		w.patch("p", after)
		w.view.SetPatch(was)
		c.Cache = lagging{w, was}
		again, err := c.reconcile(t.Context(), "p")
		require.NoError(t, err)
		require.Equal(t, viewPause, again)
		require.Empty(t, w.ruleText())
	})
	t.Run("nor is a time recorded for it", func(t *testing.T) {
		w := newWorld(t)
		c := w.controller()
		was := w.patch("p", before).DeepCopy()
		w.step(c, "p")
		c.Cache = lagging{w, was}
		w.view.SetPatch(was)
		_, err := c.reconcile(t.Context(), "p")
		require.True(t, apierrors.IsConflict(err), "%v", err)
	})
}

// counting is a clock that runs a function when a report begins.
type counting struct {
	clock.WithTicker

	meanwhile func()
}

// Now implements clock.WithTicker.
func (c counting) Now() time.Time {
	c.meanwhile()
	return c.WithTicker.Now()
}

// lagging is a cache that lags behind.
type lagging struct {
	*world

	was *v1alpha1.ResourceSlicePatch
}

// Get implements reader.
func (r lagging) Get(ctx context.Context, key client.ObjectKey, obj client.Object, options ...client.GetOption) error {
	if patch, ok := obj.(*v1alpha1.ResourceSlicePatch); ok {
		r.was.DeepCopyInto(patch)
		return nil
	}
	return r.world.Get(ctx, key, obj, options...)
}

func TestTimesThatRulesCannotHave(t *testing.T) {
	w := newWorld(t)
	c := w.controller()
	w.patch("p", `{taints: [{key: k, effect: NoExecute, timeAdded: "2020-01-01T00:00:00.5Z"}, {key: l, effect: NoExecute, timeAdded: "0001-01-01T00:00:00Z"}]}`)
	w.step(c, "p")
	w.step(c, "p")
	w.taken()
	w.step(c, "p")
	calls, _ := w.taken()
	require.Empty(t, calls, "it is settled")
	require.True(t, c.Written(&tracker.Rule{Name: "p", UID: "uid-of-p", Generation: 1}))
	require.Len(t, w.status("p").Taints, 1, "the beginning of time is no time")
}

func TestWritten(t *testing.T) {
	w := newWorld(t)
	w.slice("one", "a=a100")
	c := w.controller()
	p := w.patch("p", ofA100+`taints: [{key: k, effect: NoExecute}]}`)
	require.False(t, c.Written(&tracker.Rule{Name: "p", UID: p.UID, Generation: 1}))
	w.fault = errors.New("the API server is away")
	_, err := c.reconcile(t.Context(), "p")
	require.Error(t, err)
	require.False(t, c.Written(&tracker.Rule{Name: "p", UID: p.UID, Generation: 1}))
	w.fault, w.staleTracker = nil, true
	w.step(c, "p")
	require.False(t, c.Written(&tracker.Rule{Name: "p", UID: p.UID, Generation: 1}), "it is not known yet")
	w.syncTracker()
	w.step(c, "p")
	require.True(t, c.Written(&tracker.Rule{Name: "p", UID: p.UID, Generation: 1}))
	require.False(t, c.Written(&tracker.Rule{Name: "p", UID: "another", Generation: 1}))
	w.patch("p", ofA100+`taints: [{key: l, effect: NoExecute}]}`)
	require.False(t, c.Written(&tracker.Rule{Name: "p", UID: p.UID, Generation: 2}))
	w.step(c, "p")
	w.step(c, "p")
	require.True(t, c.Written(&tracker.Rule{Name: "p", UID: p.UID, Generation: 2}))
}

func TestNamesOfRules(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("a-", 126) + "b"
	taints := []resourcev1.DeviceTaint{{Key: "k"}, {Key: "k"}, {Key: "l"}, {Key: "k", Effect: resourcev1.DeviceTaintEffectNone}}
	ids := []device.ID{{Driver: "d", Pool: "p", Name: "a"}, {Driver: "d", Pool: "p", Name: "b"}, {Driver: "d", Pool: "pa", Name: ""}}
	seen := map[string]bool{}
	for _, name := range []string{"p", "p-b", long} {
		patch := w.patch(name, ofA100+`}`)
		for _, r := range rulesOf(patch, taints, ids, false) {
			require.False(t, seen[r.name], r.name)
			seen[r.name] = true
			require.LessOrEqual(t, len(r.name), 253)
		}
	}
	require.Equal(t, "p-a032701cbf68321a", ruleName("p", &resourcev1.DeviceTaintSelector{}, [2]string{"k", "NoExecute"}, 0), "names are the same in every version")
}
