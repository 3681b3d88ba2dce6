package tracker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

func TestPublishedEvicting(t *testing.T) {
	evicting := func(key string) resourcev1.DeviceTaint {
		return resourcev1.DeviceTaint{Key: key, Effect: resourcev1.DeviceTaintEffectNoExecute}
	}
	state := New()
	require.Empty(t, state.PublishedEvicting())
	set := func(name, driver, pool string, generation int64, devices ...Device) {
		state.SetSlice(Slice{Name: name, UID: "uid-of-slice", ResourceVersion: "1", Driver: driver, Pool: pool, Generation: generation, Devices: devices}, time.Unix(0, 0))
	}
	set("old", "a", "p", 1, Device{Name: "gone", Taints: []resourcev1.DeviceTaint{evicting("k")}})
	set("new", "a", "p", 2,
		Device{Name: "d1", Taints: []resourcev1.DeviceTaint{evicting("z"), {Key: "k", Effect: resourcev1.DeviceTaintEffectNoSchedule}, evicting("k")}},
		Device{Name: "d0", Taints: []resourcev1.DeviceTaint{evicting("k")}}, Device{Name: "d2"})
	set("other", "b", "p", 1, Device{Name: "d0", Taints: []resourcev1.DeviceTaint{evicting("k")}})
	state.SetRule(RuleOf(&resourcev1.DeviceTaintRule{Spec: resourcev1.DeviceTaintRuleSpec{
		DeviceSelector: &resourcev1.DeviceTaintSelector{}, Taint: evicting("rule"),
	}}), time.Unix(0, 0))

	published := func(driver, name, key, slice string) Published {
		return Published{Device: device.ID{Driver: driver, Pool: "p", Name: name}, Taint: evicting(key), Slice: slice, SliceUID: "uid-of-slice"}
	}
	require.Equal(t, []Published{
		published("a", "d0", "k", "new"), published("a", "d1", "k", "new"), published("a", "d1", "z", "new"), published("b", "d0", "k", "other"),
	}, state.PublishedEvicting(), "DE-16 slices of the newest generation, and no rules")
}
