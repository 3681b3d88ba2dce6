package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	resourcev1 "k8s.io/api/resource/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/webhook/review"
)

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
				TimeAdded: new(metav1.NewTime(time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC))),
			}}
		}
		slice.Spec.Devices = append(slice.Spec.Devices, device)
	}
	return slice
}

// sliceUpdate is the review of a slice in which one more device gets a taint.
func sliceUpdate(tb testing.TB, n int) []byte {
	tb.Helper()
	old, current := bigSlice(n), bigSlice(n)
	current.Spec.Devices[1].Taints = current.Spec.Devices[0].Taints
	review := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID:       "705ab4f5-6393-11e8-b7cc-42010a800002",
			Resource:  metav1.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: "resourceslices"},
			Operation: admissionv1.Update,
		},
	}
	review.Request.Object.Raw = encoded(tb, current)
	review.Request.OldObject.Raw = encoded(tb, old)
	return encoded(tb, review)
}

// TestASliceReviewAllocatesLittle is the gate on what the review of a large slice
// costs. Decoding it whole takes seven times as many.
func TestASliceReviewAllocatesLittle(t *testing.T) {
	body := sliceUpdate(t, 128)
	endpoint := Validate(testConfig())
	judge := func() {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/validate", bytes.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		endpoint.ServeHTTP(&discard{header: http.Header{}}, req)
	}
	judge()
	require.LessOrEqual(t, testing.AllocsPerRun(20, judge), float64(2_500))
}

// BenchmarkSliceReview measures the review of a large slice without network. What
// decodes both objects whole is there to compare with.
func BenchmarkSliceReview(b *testing.B) {
	whole := &admission.Webhook{Handler: admission.HandlerFunc(decodeWholeSlices)}
	for _, n := range []int{8, 64, 128} {
		body := sliceUpdate(b, n)
		for _, handler := range []struct {
			name  string
			serve http.Handler
		}{
			{"validate", Validate(testConfig())},
			{"mutate", Mutate(testConfig())},
			{"controller-runtime-decodes-the-slices", whole},
		} {
			b.Run(fmt.Sprintf("%s/%d devices", handler.name, n), func(b *testing.B) {
				benchmarkBody(b, handler.serve, body)
			})
		}
	}
}

func decodeWholeSlices(_ context.Context, req admission.Request) admission.Response {
	var current, old resourcev1.ResourceSlice
	if err := review.Unmarshal(req.Object.Raw, &current); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if err := review.Unmarshal(req.OldObject.Raw, &old); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	return admission.Allowed("")
}

// encoded returns value in JSON.
func encoded(tb testing.TB, value any) []byte {
	tb.Helper()
	data, err := json.Marshal(value)
	require.NoError(tb, err)
	return data
}

func benchmarkBody(b *testing.B, handler http.Handler, body []byte) {
	b.Helper()
	req := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/validate?timeout=3s", http.NoBody)
	req.Header.Set("Content-Type", "application/json")
	req.ContentLength = int64(len(body))
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		req.Body = io.NopCloser(bytes.NewReader(body))
		handler.ServeHTTP(&discard{header: http.Header{}}, req)
	}
}
