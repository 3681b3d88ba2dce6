package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/e2e/install"
)

func TestWhatDoesNotMatterForTaintsOfDevicesIsNotSentToTollgate(t *testing.T) {
	namespace := namespaceOf(t, "quiet-")
	judged := []string{"resourceslices", "devicetaintrules", "resourceclaims", "resourceclaimtemplates", "resourceclaims/status"}
	create := func(resource, in, name, spec string, options ...string) error {
		_, err := ofDevices(t, "v1", resource, in, nil).Create(t.Context(), deviceObject(t, "v1", resource, name, spec), metav1.CreateOptions{DryRun: options})
		return err
	}
	merge := func(resource, in, name, patch string, subresources ...string) error {
		_, err := ofDevices(t, "v1", resource, in, nil).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
		return err
	}
	const claim = "{devices: {requests: [{name: r, exactly: {deviceClassName: c}}]}}"
	const counters = "{driver: quiet.example.com, pool: {name: c, generation: 1, resourceSliceCount: 1}, allNodes: true, " +
		"sharedCounters: [{name: c, counters: {memory: {value: '1'}}}]}"
	require.NoError(t, create("resourceslices", "", "quiet", taintedSlice("v1", "quiet.example.com", "{key: example.com/k, effect: None}")))
	deleteAfter(t, ofDevices(t, "v1", "resourceslices", "", nil), "quiet")
	require.NoError(t, create("devicetaintrules", "", "quiet", "{deviceSelector: {pool: quiet}, taint: {key: example.com/k, effect: None}}"))
	deleteAfter(t, ofDevices(t, "v1", "devicetaintrules", "", nil), "quiet")
	require.NoError(t, create("resourceclaims", namespace, "tolerant",
		"{devices: {requests: [{name: r, exactly: {deviceClassName: c, tolerations: [{operator: Exists}]}}]}}"))

	before := map[string]int{}
	for _, resource := range judged {
		before[resource] = callsAbout(t.Context(), t, resource)
	}
	const label = `{"metadata":{"labels":{"example.com/a":"b"}}}`
	const seen = `{"status":{"conditions":[{"type":"example.com/Seen","status":"True","reason":"Seen","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
	writes := map[string]func() error{
		"a slice without taints":                  func() error { return create("resourceslices", "", "new", manySpec(128, ""), dryRun...) },
		"a slice with counters and no devices":    func() error { return create("resourceslices", "", "new", counters, dryRun...) },
		"a label of a slice with taints":          func() error { return merge("resourceslices", "", "quiet", label) },
		"a device without taints beside one with": func() error { return addDevice(t, "quiet") },
		"a label of a rule":                       func() error { return merge("devicetaintrules", "", "quiet", label) },
		"the status of a rule":                    func() error { return merge("devicetaintrules", "", "quiet", seen, "status") },
		"a claim without requests":                func() error { return create("resourceclaims", namespace, "new", "{devices: {}}", dryRun...) },
		"a template without requests": func() error {
			return create("resourceclaimtemplates", namespace, "new", "{spec: {devices: {}}}", dryRun...)
		},
		"a label of a claim":                          func() error { return merge("resourceclaims", namespace, "tolerant", label) },
		"the status of a claim that is not allocated": func() error { return merge("resourceclaims", namespace, "tolerant", label, "status") },
	}
	for name, write := range writes {
		t.Run(name, func(t *testing.T) { require.NoError(t, write()) })
	}
	for _, resource := range judged {
		require.Equal(t, before[resource], callsAbout(t.Context(), t, resource), resource)
	}
	t.Run("while claims with requests are, to be given what policies give", func(t *testing.T) {
		require.NoError(t, create("resourceclaims", namespace, "new", claim, dryRun...))
		require.Equal(t, before["resourceclaims"]+1, callsAbout(t.Context(), t, "resourceclaims"))
		require.NoError(t, create("resourceclaimtemplates", namespace, "new", "{spec: "+claim+"}", dryRun...))
		require.Equal(t, before["resourceclaimtemplates"]+1, callsAbout(t.Context(), t, "resourceclaimtemplates"))
	})
	t.Run("while what matters is", func(t *testing.T) {
		for resource, effect := range map[string]string{
			"resourceslices":   `{"spec":{"devices":[{"name":"d0","taints":[{"key":"example.com/k","effect":"%s"}]}]}}`,
			"devicetaintrules": `{"spec":{"taint":{"effect":"%s"}}}`,
		} {
			// Where the API server finds that the object was written since it read it, it asks
			// again, so not every write will do.
			effects := []string{"NoSchedule", "None"}
			eventually(t.Context(), t, "a write of "+resource+" is sent to be stamped and to be judged", func(ctx context.Context) error {
				before := callsAbout(ctx, t, resource)
				require.NoError(t, merge(resource, "", "quiet", fmt.Sprintf(effect, effects[0])))
				slices.Reverse(effects)
				calls := callsAbout(ctx, t, resource) - before
				require.GreaterOrEqual(t, calls, 2)
				if calls > 2 {
					return fmt.Errorf("it was sent %d times", calls)
				}
				return nil
			})
		}
	})
}

// addDevice publishes one more device, without taints, in a new generation.
func addDevice(t *testing.T, name string) error {
	t.Helper()
	return rewrite(t, name, func(spec *resourcev1.ResourceSliceSpec) {
		spec.Devices = append(spec.Devices, resourcev1.Device{Name: "added"})
		spec.Pool.Generation++
	})
}

// rewrite writes a slice with a change, and with the times that its taints have.
func rewrite(t *testing.T, name string, change func(spec *resourcev1.ResourceSliceSpec), options ...string) error {
	t.Helper()
	config := shared.RESTConfig()
	config.Impersonate = driver
	slices := clientFor(t, config).ResourceV1().ResourceSlices()
	slice, err := slices.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	change(&slice.Spec)
	_, err = slices.Update(t.Context(), slice, metav1.UpdateOptions{DryRun: options})
	return err
}

// deadEnd has the API server call nobody, under the conditions of the webhook that
// judges slices, about those with a label that is the name, and before it validates
// them itself: it has the limit on devices too, which is not tried for its own sake.
func deadEnd(t *testing.T, name string) {
	t.Helper()
	client := clientOf(t).AdmissionregistrationV1()
	installed, err := client.ValidatingWebhookConfigurations().Get(t.Context(), install.Name, metav1.GetOptions{})
	require.NoError(t, err)
	at := slices.IndexFunc(installed.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool { return w.Name == "device-drivers.tollgate.dev" })
	require.GreaterOrEqual(t, at, 0)
	of := &installed.Webhooks[at]
	_, err = client.MutatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: name + ".example.com", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")},
			Rules: of.Rules, MatchConditions: of.MatchConditions, MatchPolicy: of.MatchPolicy,
			ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"example.com/test": name}},
			FailurePolicy:  new(admissionregistrationv1.Fail), SideEffects: of.SideEffects, AdmissionReviewVersions: of.AdmissionReviewVersions,
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, client.MutatingWebhookConfigurations().Delete(afterwards(t), name, metav1.DeleteOptions{}))
	})
}

func TestAV02ASliceThatOutgrowsTheLimitOfTaintsIsSentToTollgate(t *testing.T) {
	const name, called = "outgrown", `failed calling webhook "outgrown.example.com"`
	labelled := func(name string, devices int, taints string) *unstructured.Unstructured {
		object := deviceObject(t, "v1", "resourceslices", name, manySpec(devices, taints))
		object.SetLabels(map[string]string{"example.com/test": "outgrown"})
		return object
	}
	published := ofDevices(t, "v1", "resourceslices", "", nil)
	for name, slice := range map[string]*unstructured.Unstructured{
		name:              labelled(name, 60, "{key: example.com/k, effect: None}"),
		name + "-healthy": labelled(name+"-healthy", 60, ""),
	} {
		_, err := published.Create(t.Context(), slice, metav1.CreateOptions{})
		require.NoError(t, err)
		deleteAfter(t, published, name)
	}
	deadEnd(t, name)
	eventually(t.Context(), t, "the conditions are in force", func(ctx context.Context) error {
		_, err := published.Create(ctx, labelled("new", 1, "{key: example.com/k, effect: None}"), metav1.CreateOptions{DryRun: dryRun})
		if err == nil {
			return errors.New("a slice with taints is let in")
		}
		require.ErrorContains(t, err, called)
		return nil
	})

	to := func(n int) func(*resourcev1.ResourceSliceSpec) {
		return func(spec *resourcev1.ResourceSliceSpec) {
			for i := len(spec.Devices); i < n; i++ {
				spec.Devices = append(spec.Devices, resourcev1.Device{Name: fmt.Sprintf("d%d", i)})
			}
		}
	}
	require.NoError(t, rewrite(t, name, to(64), dryRun...), "the limit is kept")
	for _, n := range []int{65, 100} {
		require.ErrorContains(t, rewrite(t, name, to(n), dryRun...), called, "%d devices", n)
	}
	require.NoError(t, rewrite(t, name+"-healthy", to(100), dryRun...), "without taints there may be more")
	require.ErrorContains(t, rewrite(t, name, func(spec *resourcev1.ResourceSliceSpec) {
		spec.Devices[0].Taints = nil
	}, dryRun...), called, "who may take a taint away is judged, too")
}
