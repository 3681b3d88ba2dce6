package admission

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
		before[resource] = callsAbout(t, resource)
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
		"a claim without tolerations":             func() error { return create("resourceclaims", namespace, "new", claim, dryRun...) },
		"a claim without requests":                func() error { return create("resourceclaims", namespace, "new", "{devices: {}}", dryRun...) },
		"a template without tolerations": func() error {
			return create("resourceclaimtemplates", namespace, "new", "{spec: "+claim+"}", dryRun...)
		},
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
		require.Equal(t, before[resource], callsAbout(t, resource), resource)
	}
	t.Run("while what matters is", func(t *testing.T) {
		require.NoError(t, merge("resourceslices", "", "quiet", `{"spec":{"devices":[{"name":"d0","taints":[{"key":"example.com/k","effect":"NoSchedule"}]}]}}`))
		require.Equal(t, before["resourceslices"]+2, callsAbout(t, "resourceslices"), "to be stamped and to be judged")
		require.NoError(t, merge("devicetaintrules", "", "quiet", `{"spec":{"taint":{"effect":"NoSchedule"}}}`))
		require.Equal(t, before["devicetaintrules"]+2, callsAbout(t, "devicetaintrules"), "to be stamped and to be judged")
	})
}

// addDevice publishes one more device, without taints, in a new generation.
func addDevice(t *testing.T, name string) error {
	t.Helper()
	slices := clientOf(t).ResourceV1().ResourceSlices()
	slice, err := slices.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	added := slice.Spec.Devices[0].DeepCopy()
	added.Name, added.Taints = "added", nil
	slice.Spec.Devices = append(slice.Spec.Devices, *added)
	slice.Spec.Pool.Generation++
	_, err = slices.Update(t.Context(), slice, metav1.UpdateOptions{})
	return err
}
