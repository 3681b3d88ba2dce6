package handlers

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/policy/validation"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// decodedWhole is what a decoder makes of a slice, without the errors of values of
// the wrong type in fields that are not looked at.
func decodedWhole(raw []byte) ([]validation.Device, error) {
	var object struct {
		Spec struct {
			Devices []struct {
				Name   string                   `json:"name"`
				Taints []resourcev1.DeviceTaint `json:"taints"`
			} `json:"devices"`
		} `json:"spec"`
	}
	if err := review.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	var found []validation.Device
	for _, d := range object.Spec.Devices {
		found = append(found, validation.Device{Name: d.Name, Taints: d.Taints})
	}
	return found, nil
}

// bigSlice is a slice of n devices with eight attributes and two capacities each, as
// drivers of accelerators publish them; one in four has a taint.
func bigSlice(n int) *resourcev1.ResourceSlice {
	slice := &resourcev1.ResourceSlice{
		TypeMeta:   metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceSlice"},
		ObjectMeta: metav1.ObjectMeta{Name: "node-1-gpu.example.com-x7z4q"},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: "gpu.example.com", NodeName: new("node-1"),
			Pool: resourcev1.ResourcePool{Name: "node-1", Generation: 1, ResourceSliceCount: 1},
		},
	}
	for i := range n {
		device := resourcev1.Device{
			Name:       fmt.Sprintf("gpu-%d", i),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{},
			Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{
				"memory": {Value: quantity.MustParse("80Gi")}, "multiprocessors": {Value: quantity.MustParse("132")},
			},
		}
		for a := range 8 {
			device.Attributes[resourcev1.QualifiedName(fmt.Sprintf("attribute-%d", a))] = resourcev1.DeviceAttribute{StringValue: new("GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c")}
		}
		if i%4 == 0 {
			device.Taints = []resourcev1.DeviceTaint{{
				Key: "gpu.example.com/unhealthy", Value: "xid-79", Effect: resourcev1.DeviceTaintEffectNoExecute,
				TimeAdded: new(metav1.NewTime(noon.Truncate(time.Second))),
			}}
		}
		slice.Spec.Devices = append(slice.Spec.Devices, device)
	}
	return slice
}

func TestDevicesAreFoundAsADecoderFindsThem(t *testing.T) {
	for _, n := range []int{0, 1, 128} {
		raw := marshal(t, bigSlice(n))
		want, err := decodedWhole(raw)
		require.NoError(t, err)
		var fields review.Fields
		got := readSlice(&fields, parsed(t, raw))
		require.NoError(t, fields.Err())
		require.Equal(t, want, got.devices)
	}
}

func FuzzSliceDevices(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `{"spec":null}`, sliceJSON(`[{"key":"k","value":"v","effect":"None","timeAdded":"2026-11-01T00:00:00Z"}]`),
		`{"spec":{"devices":[null,{"name":null,"taints":null}]}}`, `{"spec":{"devices":[{"name":"\ud800"}]}}`,
		`{"spec":{"devices":[{"name":"a","name":"b"}]}}`, `{"sp\u0065c":{"devices":[{"taints":[{}]}]}}`, `{"spec":{"devices":[`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, object string) {
		raw := []byte(object)
		v, err := review.Parse(raw)
		if err != nil || len(raw) > 10_000 {
			return // it is no part of a review
		}
		var fields review.Fields
		got := readSlice(&fields, v)
		err = fields.Err()
		want, wantErr := decodedWhole(raw)
		require.Equal(t, wantErr == nil, err == nil, "%v, a decoder says %v", err, wantErr)
		if err == nil {
			require.Equal(t, marshal(t, want), marshal(t, got.devices))
		}
	})
}
