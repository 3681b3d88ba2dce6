package webhook

import (
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"

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

func TestDevicesAreFoundAsADecoderFindsThem(t *testing.T) {
	for _, n := range []int{0, 1, 128} {
		raw := encoded(t, bigSlice(n))
		want, err := decodedWhole(raw)
		require.NoError(t, err)
		got, err := decodeSlice(parsed(t, raw))
		require.NoError(t, err)
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
		got, err := decodeSlice(v)
		if err != nil {
			var bad *badReviewError
			require.ErrorAs(t, err, &bad)
		}
		want, wantErr := decodedWhole(raw)
		require.Equal(t, wantErr == nil, err == nil, "%v, a decoder says %v", err, wantErr)
		if err == nil {
			require.Equal(t, marshal(t, want), marshal(t, got.devices))
		}
	})
}
