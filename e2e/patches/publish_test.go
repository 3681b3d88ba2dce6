package patches

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// TestADriverTakesWhatAdmissionWroteForItsOwn is why publish does nothing: values that a
// webhook writes into the ResourceSlices of a driver cannot be undone. The helper that
// drivers publish with takes what comes back for what it is to publish, so that no loop
// comes of it; and when the values are taken out again it writes them once more, as if
// they were the driver's.
func TestADriverTakesWhatAdmissionWroteForItsOwn(t *testing.T) {
	s := newSite(t)
	overriding := s.override(t, "model", "patched")
	var dropped atomic.Int64
	device := gpu("a", 0)
	device.Attributes["model"] = resourcev1.DeviceAttribute{StringValue: new("own")}
	driver, err := resourceslice.StartController(t.Context(), resourceslice.Options{
		DriverName: s.driver, KubeClient: s.client, SyncDelay: new(syncDelay),
		Resources: &resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
			"pool": {AllNodes: true, Slices: []resourceslice.Slice{{Devices: []resourcev1.Device{device}}}},
		}},
		ErrorHandler: func(_ context.Context, err error, _ string) {
			if _, ok := errors.AsType[*resourceslice.DroppedFieldsError](err); ok {
				dropped.Add(1)
			}
		},
	})
	require.NoError(t, err)
	t.Cleanup(driver.Stop)
	s.waitModel(t, "patched")
	eventually(t, "the driver is told that fields were dropped", func(context.Context) error {
		if dropped.Load() == 0 {
			return errors.New("it was not")
		}
		return nil
	})

	// The patch goes: nobody overrides any more, and what the driver had is written back.
	overriding.Store(false)
	updates := driver.GetStats().NumUpdates
	require.NoError(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		slice := s.onlySlice(t)
		slice.Spec.Devices[0].Attributes["model"] = resourcev1.DeviceAttribute{StringValue: new("own")}
		_, err := s.client.ResourceV1().ResourceSlices().Update(t.Context(), slice, metav1.UpdateOptions{})
		return err
	}))
	eventually(t, "the driver writes what was taken out", func(context.Context) error {
		if driver.GetStats().NumUpdates == updates {
			return errors.New("it has not written")
		}
		return nil
	})
	s.waitModel(t, "patched")
}

// override has a webhook give all devices of the site an attribute, while what is returned
// is true.
func (s *site) override(t *testing.T, attribute, value string) *atomic.Bool {
	t.Helper()
	overriding := &atomic.Bool{}
	overriding.Store(true)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		var slice resourcev1.ResourceSlice
		if json.NewDecoder(r.Body).Decode(&review) != nil || json.Unmarshal(review.Request.Object.Raw, &slice) != nil {
			http.Error(w, "not a review of a slice", http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		if overriding.Load() {
			patch := make([]map[string]any, 0, len(slice.Spec.Devices))
			for i := range slice.Spec.Devices {
				patch = append(patch, map[string]any{
					"op": "add", "path": fmt.Sprintf("/spec/devices/%d/attributes/%s", i, attribute), "value": map[string]string{"string": value},
				})
			}
			review.Response.Patch, _ = json.Marshal(patch)
			review.Response.PatchType = new(admissionv1.PatchTypeJSONPatch)
		}
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	webhooks := s.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "override." + s.driver,
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: new(server.URL + "/override"), CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"resource.k8s.io"}, APIVersions: []string{"v1"}, Resources: []string{"resourceslices"}},
			}},
			MatchConditions:         []admissionregistrationv1.MatchCondition{{Name: "own", Expression: `object.spec.driver == "` + s.driver + `"`}},
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
	_, err := webhooks.Create(t.Context(), configuration, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, webhooks.Delete(afterwards(t), configuration.Name, metav1.DeleteOptions{})) })
	s.waitOverridden(t)
	return overriding
}

// waitOverridden returns when the API server asks the webhook.
func (s *site) waitOverridden(t *testing.T) {
	t.Helper()
	eventually(t, "the webhook is asked", func(ctx context.Context) error {
		probe := &resourcev1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: s.namespace + "-probe"},
			Spec: resourcev1.ResourceSliceSpec{
				Driver: s.driver, AllNodes: new(true), Pool: resourcev1.ResourcePool{Name: "probe", ResourceSliceCount: 1},
				Devices: []resourcev1.Device{gpu("a", 0)},
			},
		}
		stored, err := s.client.ResourceV1().ResourceSlices().Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && *stored.Spec.Devices[0].Attributes["model"].StringValue != "patched" {
			err = errors.New("it is not")
		}
		return err
	})
}

func (s *site) onlySlice(t *testing.T) *resourcev1.ResourceSlice {
	t.Helper()
	list, err := s.client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{FieldSelector: "spec.driver=" + s.driver})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	return &list.Items[0]
}

// waitModel waits until the device of the site is published with a model.
func (s *site) waitModel(t *testing.T, want string) {
	t.Helper()
	eventually(t, "the model is "+want, func(ctx context.Context) error {
		list, err := s.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: "spec.driver=" + s.driver})
		switch {
		case err != nil:
			return err
		case len(list.Items) != 1:
			return fmt.Errorf("there are %d slices", len(list.Items))
		}
		if got := *list.Items[0].Spec.Devices[0].Attributes["model"].StringValue; got != want {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})
}
