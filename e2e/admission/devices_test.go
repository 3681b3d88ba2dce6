package admission

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/e2e/suite"
)

// resourceAPI is the API group of devices.
const resourceAPI = "resource.k8s.io"

// ofDevices returns a client of a resource of resource.k8s.io, in a version of it; the
// namespace is empty for what has none. Warnings go to heard, which may be nil.
func ofDevices(t *testing.T, version, resource, namespace string, heard *warnings) dynamic.ResourceInterface {
	t.Helper()
	config := shared.RESTConfig()
	config.WarningHandler = rest.NoWarnings{}
	if heard != nil {
		config.WarningHandler = heard
	}
	if resource == "resourceslices" {
		config.Impersonate = driver
	}
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	of := client.Resource(schema.GroupVersionResource{Group: resourceAPI, Version: version, Resource: resource})
	if namespace == "" {
		return of
	}
	return of.Namespace(namespace)
}

// driver is who publishes slices. What a driver says of its devices is not held up,
// unlike what others do.
var driver = rest.ImpersonationConfig{
	UserName: "system:serviceaccount:drivers:driver",
	Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:drivers", "system:authenticated", "system:masters"},
}

// kindOf are the kinds of the resources that are judged.
var kindOf = map[string]string{
	"resourceslices": "ResourceSlice", "devicetaintrules": "DeviceTaintRule",
	"resourceclaims": "ResourceClaim", "resourceclaimtemplates": "ResourceClaimTemplate",
}

// deviceObject returns an object of resource.k8s.io; spec is YAML.
func deviceObject(t *testing.T, version, resource, name, spec string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetAPIVersion(resourceAPI + "/" + version)
	object.SetKind(kindOf[resource])
	object.SetName(name)
	var content map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(spec), &content), spec)
	object.Object["spec"] = content
	return object
}

// deleteAfter deletes an object when the test is over.
func deleteAfter(t *testing.T, client dynamic.ResourceInterface, name string) {
	t.Helper()
	t.Cleanup(func() { require.NoError(t, client.Delete(afterwards(t), name, metav1.DeleteOptions{})) })
}

// taintedSlice is the spec of a slice with one device and its taints, as the version
// of the API has it.
func taintedSlice(version, driver, taints string) string {
	device := "{name: d0, taints: [" + taints + "]}"
	if version == "v1beta1" {
		device = "{name: d0, basic: {taints: [" + taints + "]}}"
	}
	return "{driver: " + driver + ", pool: {name: p, generation: 1, resourceSliceCount: 1}, allNodes: true, devices: [" + device + "]}"
}

// sliceTime returns the time of the only taint of the only device of a slice.
func sliceTime(t *testing.T, name string) time.Time {
	t.Helper()
	slice, err := clientOf(t).ResourceV1().ResourceSlices().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Len(t, slice.Spec.Devices, 1)
	require.Len(t, slice.Spec.Devices[0].Taints, 1)
	require.NotNil(t, slice.Spec.Devices[0].Taints[0].TimeAdded)
	return slice.Spec.Devices[0].Taints[0].TimeAdded.Time
}

func TestAV06TheTimeOfADeviceTaintOutlivesItsRepublication(t *testing.T) {
	since := hoursAgo(2).UTC().Format(time.RFC3339)
	for _, version := range []string{"v1", "v1beta2", "v1beta1"} {
		t.Run(version, func(t *testing.T) {
			name := "republished-" + version
			slices := ofDevices(t, version, "resourceslices", "", nil)
			// publish writes the whole slice, as a driver without the helper does.
			publish := func(t *testing.T, taint string) {
				t.Helper()
				object := deviceObject(t, version, "resourceslices", name, taintedSlice(version, name+".example.com", taint))
				old, err := slices.Get(t.Context(), name, metav1.GetOptions{})
				require.NoError(t, err)
				object.SetResourceVersion(old.GetResourceVersion())
				_, err = slices.Update(t.Context(), object, metav1.UpdateOptions{})
				require.NoError(t, err)
			}
			before := time.Now()
			_, err := slices.Create(t.Context(), deviceObject(t, version, "resourceslices", name,
				taintedSlice(version, name+".example.com", "{key: example.com/k, value: v, effect: NoSchedule}")), metav1.CreateOptions{})
			require.NoError(t, err)
			deleteAfter(t, slices, name)
			requireNow(t, sliceTime(t, name), before)

			publish(t, "{key: example.com/k, value: v, effect: NoSchedule, timeAdded: '"+since+"'}")
			require.Equal(t, since, sliceTime(t, name).UTC().Format(time.RFC3339), "a time that is given stands")
			publish(t, "{key: example.com/k, value: v, effect: NoSchedule}")
			require.Equal(t, since, sliceTime(t, name).UTC().Format(time.RFC3339), "published again without a time")
			applied, err := json.Marshal(deviceObject(t, version, "resourceslices", name, taintedSlice(version, name+".example.com", "{key: example.com/k, value: v, effect: NoSchedule}")))
			require.NoError(t, err)
			_, err = slices.Patch(t.Context(), name, types.ApplyPatchType, applied, metav1.PatchOptions{FieldManager: "test", Force: new(true)})
			require.NoError(t, err)
			require.Equal(t, since, sliceTime(t, name).UTC().Format(time.RFC3339), "applied without a time")
			publish(t, "{key: example.com/k, value: w, effect: NoSchedule}")
			requireNow(t, sliceTime(t, name), before)
		})
	}
}

func TestAV17TheTimeOfARuleFollowsItsEffect(t *testing.T) {
	since := hoursAgo(2).UTC().Format(time.RFC3339)
	for _, version := range []string{"v1", "v1beta2", "v1alpha3"} {
		t.Run(version, func(t *testing.T) {
			name := "effect-" + version
			rules := ofDevices(t, version, "devicetaintrules", "", nil)
			write := func(t *testing.T, patch string) time.Time {
				t.Helper()
				stored, err := rules.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
				require.NoError(t, err)
				text, _, err := unstructured.NestedString(stored.Object, "spec", "taint", "timeAdded")
				require.NoError(t, err)
				at, err := time.Parse(time.RFC3339, text)
				require.NoError(t, err)
				return at
			}
			_, err := rules.Create(t.Context(), deviceObject(t, version, "devicetaintrules", name,
				"{deviceSelector: {driver: none.example.com}, taint: {key: admin.example.org/k, effect: None, timeAdded: '"+since+"'}}"), metav1.CreateOptions{})
			require.NoError(t, err)
			deleteAfter(t, rules, name)
			require.Equal(t, since, write(t, `{"spec":{"taint":{"value":"v"}}}`).UTC().Format(time.RFC3339), "another value")
			require.Equal(t, since, write(t, `{"spec":{"deviceSelector":{"pool":"p"}}}`).UTC().Format(time.RFC3339), "another selector")
			before := time.Now()
			requireNow(t, write(t, `{"spec":{"taint":{"effect":"NoSchedule"}}}`), before)
			require.Equal(t, since, write(t, `{"spec":{"taint":{"effect":"None","timeAdded":"`+since+`"}}}`).UTC().Format(time.RFC3339), "a time that is given with the effect")
		})
	}
}

// seventeen are more tolerations than a request may have.
const seventeen = "[" + sixteen + ", {key: k, operator: Exists}]"

const sixteen = "{key: k, operator: Exists}, {key: k, operator: Exists}, {key: k, operator: Exists}, {key: k, operator: Exists}, " +
	"{key: k, operator: Exists}, {key: k, operator: Exists}, {key: k, operator: Exists}, {key: k, operator: Exists}, " +
	"{key: k, operator: Exists}, {key: k, operator: Exists}, {key: k, operator: Exists}, {key: k, operator: Exists}, " +
	"{key: k, operator: Exists}, {key: k, operator: Exists}, {key: k, operator: Exists}, {key: k, operator: Exists}"

func TestAV11EveryVersionOfAClaimIsJudged(t *testing.T) {
	namespace := namespaceOf(t, "versions-")
	requests := map[string]string{
		"v1":      "{name: r, exactly: {deviceClassName: c, tolerations: %}}",
		"v1beta2": "{name: r, exactly: {deviceClassName: c, tolerations: %}}",
		"v1beta1": "{name: r, deviceClassName: c, tolerations: %}",
	}
	alternatives := "{name: r, firstAvailable: [{name: s, deviceClassName: c}, {name: t, deviceClassName: c, tolerations: %}]}"
	tests := map[string]struct{ tolerations, refused string }{
		"AV-11 16 tolerations":         {"[" + sixteen + "]", ""},
		"AV-11 17 tolerations":         {seventeen, "tolerations: Too many: 17: must have at most 16 items"},
		"AV-12 an empty key and Equal": {"[{operator: Equal, value: v}]", "tolerations[0].operator: Invalid value"},
		"AV-12 an empty key":           {"[{value: v}]", "tolerations[0].operator: Invalid value"},
	}
	for version, exactly := range requests {
		for where, request := range map[string]string{"exactly": exactly, "firstAvailable": alternatives} {
			for name, tt := range tests {
				t.Run(version+" "+where+" "+name, func(t *testing.T) {
					spec := "{devices: {requests: [" + strings.Replace(request, "%", tt.tolerations, 1) + "]}}"
					for resource, shape := range map[string]string{"resourceclaims": spec, "resourceclaimtemplates": "{spec: " + spec + "}"} {
						_, err := ofDevices(t, version, resource, namespace, nil).Create(t.Context(),
							deviceObject(t, version, resource, "c", shape), metav1.CreateOptions{DryRun: dryRun})
						if tt.refused == "" {
							require.NoError(t, err)
							continue
						}
						require.ErrorContains(t, err, tt.refused)
						require.ErrorContains(t, err, where)
					}
				})
			}
		}
	}
}

func TestWhatIsLegalAndProbablyNotMeantIsWarnedOf(t *testing.T) {
	namespace := namespaceOf(t, "warned-")
	ahead := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	tests := map[string]struct {
		resource, spec string
		warned         string
	}{
		"DE-20 a rule over every device":   {"devicetaintrules", "{deviceSelector: {}, taint: {key: a.example.org/k, effect: None}}", "spec.deviceSelector: is empty: EVERY device"},
		"DE-20 a rule over none":           {"devicetaintrules", "{taint: {key: a.example.org/k, effect: None}}", "spec.deviceSelector: is not set: no device is selected"},
		"a rule with the driver's key":     {"devicetaintrules", "{deviceSelector: {driver: gpu.example.com}, taint: {key: example.com/k, effect: None}}", "is in the domain of driver"},
		"a key without a domain":           {"devicetaintrules", "{deviceSelector: {pool: p}, taint: {key: k, effect: None}}", "has no domain"},
		"DE-29 a time ahead":               {"devicetaintrules", "{deviceSelector: {pool: p}, taint: {key: a.example.org/k, effect: None, timeAdded: '" + ahead + "'}}", "ahead"},
		"a slice with a key of Kubernetes": {"resourceslices", taintedSlice("v1", "d", "{key: k8s.io/k, effect: None}"), "reserved for Kubernetes"},
		"AV-12 seconds that do not count":  {"resourceclaims", "{devices: {requests: [{name: r, exactly: {deviceClassName: c, tolerations: [{key: k, tolerationSeconds: 5}]}}]}}", "tolerationSeconds: is ignored"},
		"a rule as it should be":           {"devicetaintrules", "{deviceSelector: {pool: nobody-has-it}, taint: {key: a.example.org/k, effect: None}}", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			heard, in := &warnings{}, ""
			if strings.HasPrefix(tt.resource, "resourceclaim") {
				in = namespace
			}
			_, err := ofDevices(t, "v1", tt.resource, in, heard).Create(t.Context(),
				deviceObject(t, "v1", tt.resource, "warned", tt.spec), metav1.CreateOptions{DryRun: dryRun})
			require.NoError(t, err)
			texts := strings.Join(heard.take(), "\n")
			if tt.warned == "" {
				require.Empty(t, texts)
				return
			}
			require.Contains(t, texts, tt.warned)
		})
	}
}

// callsAbout returns how often Tollgate has been asked about a resource.
func callsAbout(ctx context.Context, t *testing.T, resource string) int {
	t.Helper()
	_, body, err := suite.Fetch(ctx, tollgate.MetricsURL)
	require.NoError(t, err)
	calls := 0
	for line := range strings.SplitSeq(body, "\n") {
		if !strings.HasPrefix(line, "tollgate_admission_requests_total{") || !strings.Contains(line, `resource="`+resource+`"`) {
			continue
		}
		n, err := strconv.Atoi(line[strings.LastIndexByte(line, ' ')+1:])
		require.NoError(t, err, line)
		calls += n
	}
	return calls
}
