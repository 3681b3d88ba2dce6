package tracker

import (
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
)

func TestDE15TolerationsOfAnAllocation(t *testing.T) {
	tolerations := func(keys ...string) []resourcev1.DeviceToleration {
		var list []resourcev1.DeviceToleration
		for _, key := range keys {
			list = append(list, resourcev1.DeviceToleration{Key: key, Operator: resourcev1.DeviceTolerationOpExists})
		}
		return list
	}
	requests := []resourcev1.DeviceRequest{
		{Name: "other", Exactly: &resourcev1.ExactDeviceRequest{Tolerations: tolerations("other")}},
		{Name: "exact", Exactly: &resourcev1.ExactDeviceRequest{Tolerations: tolerations("requested", "too")}},
		{Name: "plain", Exactly: &resourcev1.ExactDeviceRequest{}},
		{Name: "any", FirstAvailable: []resourcev1.DeviceSubRequest{
			{Name: "large", Tolerations: tolerations("large")},
			{Name: "small", Tolerations: tolerations("small")},
		}},
	}
	for name, tt := range map[string]struct {
		request string
		copied  []resourcev1.DeviceToleration
		want    []resourcev1.DeviceToleration
	}{
		"are those that were copied":                              {"exact", tolerations("copied"), tolerations("copied")},
		"are those of the request where none were copied":         {"exact", nil, tolerations("requested", "too")},
		"are those of the alternative that was chosen":            {"any/small", nil, tolerations("small")},
		"are none where the request has none":                     {"plain", nil, nil},
		"are none where it is not said which alternative it was":  {"any", nil, nil},
		"are none where there is no such alternative":             {"any/huge", nil, nil},
		"are none where an exact request is said to have had one": {"exact/small", nil, nil},
		"are none where there is no such request":                 {"gone", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			devices := AllocatedDevices(requests, []resourcev1.DeviceRequestAllocationResult{{
				Request: tt.request, Driver: "gpu.example.com", Pool: "node-1", Device: "gpu-0", Tolerations: tt.copied,
			}})
			require.Len(t, devices, 1)
			require.Equal(t, tt.want, devices[0].Tolerations)
			require.Equal(t, "gpu.example.com/node-1/gpu-0", devices[0].ID.String())
		})
	}
}
