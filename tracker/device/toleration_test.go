package device_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

func TestOneToleration(t *testing.T) {
	t.Parallel()
	const noExecute, noSchedule = resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoSchedule
	for _, test := range []struct {
		name       string
		toleration resourcev1.DeviceToleration
		key, value string
		effect     resourcev1.DeviceTaintEffect
		tolerates  bool
	}{
		{"TR-11 equal key, value and effect", resourcev1.DeviceToleration{Key: "k", Operator: "Equal", Value: "v", Effect: noExecute}, "k", "v", noExecute, true},
		{"TR-11 no operator is Equal", resourcev1.DeviceToleration{Key: "k", Value: "v"}, "k", "v", noExecute, true},
		{"TR-11 another value", resourcev1.DeviceToleration{Key: "k", Operator: "Equal", Value: "w"}, "k", "v", noExecute, false},
		{"TR-11 another key", resourcev1.DeviceToleration{Key: "l", Operator: "Exists"}, "k", "v", noExecute, false},
		{"TR-11 another effect", resourcev1.DeviceToleration{Key: "k", Operator: "Exists", Effect: noSchedule}, "k", "v", noExecute, false},
		{"TR-11 no effect is every effect", resourcev1.DeviceToleration{Key: "k", Operator: "Exists"}, "k", "v", noSchedule, true},
		{"TR-11 Exists asks for no value", resourcev1.DeviceToleration{Key: "k", Operator: "Exists", Value: "w"}, "k", "v", noExecute, true},
		{"TR-12 no key and Equal is every key with that value", resourcev1.DeviceToleration{Operator: "Equal", Value: "v"}, "k", "v", noExecute, true},
		{"TR-12 no key and Equal is not every value", resourcev1.DeviceToleration{Operator: "Equal", Value: "v"}, "k", "w", noExecute, false},
		{"TR-12 an effect alone tolerates what has no value", resourcev1.DeviceToleration{Effect: noExecute}, "k", "", noExecute, true},
		{"TR-12 an effect alone does not tolerate what has one", resourcev1.DeviceToleration{Effect: noExecute}, "k", "v", noExecute, false},
		{"TR-13 there is no Lt", resourcev1.DeviceToleration{Key: "k", Operator: "Lt", Value: "2"}, "k", "1", noExecute, false},
		{"TR-13 there is no Gt", resourcev1.DeviceToleration{Key: "k", Operator: "Gt", Value: "1"}, "k", "2", noExecute, false},
		{"TR-11 an operator is not known by another case", resourcev1.DeviceToleration{Key: "k", Operator: "exists"}, "k", "v", noExecute, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, tolerated := device.Toleration([]resourcev1.DeviceToleration{test.toleration}, test.key, test.value, test.effect)
			require.Equal(t, test.tolerates, tolerated)
		})
	}
}

func TestToleration(t *testing.T) {
	t.Parallel()
	const noExecute, noSchedule = resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoSchedule
	of := func(effect resourcev1.DeviceTaintEffect, seconds *int64) resourcev1.DeviceToleration {
		return resourcev1.DeviceToleration{Key: "k", Operator: "Exists", Effect: effect, TolerationSeconds: seconds}
	}
	other := of(noExecute, new(int64(1)))
	other.Key = "l"
	for _, test := range []struct {
		name        string
		tolerations []resourcev1.DeviceToleration
		seconds     *int64
		tolerated   bool
	}{
		{"DE-23 nothing tolerates", nil, nil, false},
		{"DE-23 what tolerates another taint does not count", []resourcev1.DeviceToleration{other}, nil, false},
		{"DE-23 without seconds is for ever", []resourcev1.DeviceToleration{of(noExecute, nil)}, nil, true},
		{"DE-23 of several with seconds the fewest count, before more", []resourcev1.DeviceToleration{of(noExecute, new(int64(20))), of(noExecute, new(int64(30))), other}, new(int64(20)), true},
		{"DE-23 of several with seconds the fewest count, behind more", []resourcev1.DeviceToleration{of(noExecute, new(int64(30))), of(noExecute, new(int64(20)))}, new(int64(20)), true},
		{"DE-23 one without seconds is enough, before others", []resourcev1.DeviceToleration{of(noExecute, nil), of(noExecute, new(int64(20)))}, nil, true},
		{"DE-23 one without seconds is enough, behind others", []resourcev1.DeviceToleration{of(noExecute, new(int64(20))), of(noExecute, nil)}, nil, true},
		{"DE-24 the seconds of a toleration of every effect mean nothing", []resourcev1.DeviceToleration{of(noExecute, new(int64(20))), of("", new(int64(10)))}, nil, true},
		{"DE-24 a toleration of another effect does not count", []resourcev1.DeviceToleration{of(noSchedule, nil)}, nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			seconds, tolerated := device.Toleration(test.tolerations, "k", "v", noExecute)
			require.Equal(t, test.tolerated, tolerated)
			require.Equal(t, test.seconds, seconds)
		})
	}
}
