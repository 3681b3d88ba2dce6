package handlers

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
)

// sliceJSON returns a slice of one device with the taints, in JSON.
func sliceJSON(taints string) string {
	return `{"metadata":{"name":"s"},"spec":{"driver":"d","devices":[{"name":"other","attributes":{"taints":{"string":"[{]}"}}},` +
		`{"name":"a","capacity":{"memory":{"value":"1"}},"taints":` + taints + `}]}}`
}

func deviceTaintsOf(t *testing.T, object string) []resourcev1.DeviceTaint {
	t.Helper()
	var slice resourcev1.ResourceSlice
	require.NoError(t, json.Unmarshal([]byte(object), &slice))
	return slice.Spec.Devices[len(slice.Spec.Devices)-1].Taints
}

func TestAV06TheTimeOfADeviceTaintOutlivesItsPublication(t *testing.T) {
	const since = `"2026-11-01T00:00:00Z"`
	const noonText = `"2026-11-20T12:00:00Z"`
	taint := func(time string) string {
		if time != "" {
			time = `,"timeAdded":` + time
		}
		return `[{"key":"b","effect":"None","timeAdded":` + since + `},{"key":"k","value":"v","effect":"NoExecute"` + time + `}]`
	}
	tests := map[string]struct {
		old, new string
		want     string
	}{
		"a new slice":                              {new: taint(""), want: noonText},
		"a new slice with the API server's time":   {new: taint(noonText), want: noonText},
		"published again without a time":           {old: taint(since), new: taint(""), want: since},
		"published again with the API server's":    {old: taint(since), new: taint(`"2026-11-20T11:59:59Z"`), want: since},
		"a taint that is new on an old device":     {old: `[]`, new: taint(""), want: noonText},
		"a taint where there was none":             {old: `null`, new: taint("null"), want: noonText},
		"a time that the driver moves":             {old: taint(since), new: taint(`"2026-11-10T00:00:00Z"`), want: `"2026-11-10T00:00:00Z"`},
		"a slice that is published as it stood":    {old: taint(since), new: taint(since), want: since},
		"a time in the future, which is the owner": {old: taint(since), new: taint(`"2027-01-01T00:00:00Z"`), want: `"2027-01-01T00:00:00Z"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			object, old := sliceJSON(tt.new), ""
			if tt.old != "" {
				old = sliceJSON(tt.old)
			}
			endpoint := Mutate(atNoon())
			stored := patched(t, object, judgeNode(t, endpoint, deviceReview(t, "resourceslices", "v1", object, old)))
			var want time.Time
			require.NoError(t, json.Unmarshal([]byte(tt.want), &want))
			taints := deviceTaintsOf(t, stored)
			require.True(t, taints[1].TimeAdded.Time.Equal(want), "%v", taints[1].TimeAdded)
			require.Equal(t, 1, taints[0].TimeAdded.Day())

			again := deviceReview(t, "resourceslices", "v1", stored, old)
			require.Empty(t, judgeNode(t, endpoint, again).Patches, "a second round changes nothing")
		})
	}
}

func TestATimeIsWrittenNowhereElse(t *testing.T) {
	object := sliceJSON(`[{"key":"k","effect":"NoExecute"}]`)
	response := judgeNode(t, Mutate(atNoon()), deviceReview(t, "resourceslices", "v1", object, ""))
	require.Equal(t, []string{
		"test /spec/devices/1/name a", "test /spec/devices/1/taints/0/key k", "add /spec/devices/1/taints/0/timeAdded 2026-11-20T12:00:00Z",
	}, operations(response))
}

func TestTheMutatorLeavesInvalidSlicesToTheAPIServer(t *testing.T) {
	for _, object := range []string{
		`{}`, `{"spec":null}`, `{"spec":{"devices":null}}`, `{"spec":{"devices":[]}}`, `{"spec":{"devices":[{}]}}`,
		`{"spec":{"devices":[{"taints":[{"key":"k","effect":"None"}]}]}}`,
		`{"spec":{"devices":[{"name":"a","taints":[{}]}]}}`,
		`{"spec":{"devices":[{"name":"a","taints":[{"key":"k","effect":"x","timeAdded":null}]},{"name":"a"}]}}`,
	} {
		patched(t, object, judgeNode(t, Mutate(atNoon()), deviceReview(t, "resourceslices", "v1", object, "")))
	}
}

func TestASliceIsJudged(t *testing.T) {
	seventeen := `[` + strings.Repeat(`{"key":"example.com/k","effect":"None"},`, 16) + `{"key":"example.com/k","effect":"None"}]`
	tests := map[string]struct {
		old, new string
		denied   string
		warned   int
	}{
		"AV-01 17 taints":                       {new: sliceJSON(seventeen), denied: "spec.devices[1].taints: Too many: 17: must have at most 16 items"},
		"AV-02 65 devices, one with a taint":    {new: manyDevices(65, "example.com/k"), denied: "spec.devices: Too many: 65: must have at most 64 items"},
		"AV-02 64 devices, one with a taint":    {new: manyDevices(64, "example.com/k")},
		"AV-03 an effect of a later version":    {new: sliceJSON(`[{"key":"example.com/k","effect":"PreferNoSchedule"}]`)},
		"AV-04 a taint twice":                   {new: sliceJSON(`[{"key":"example.com/k","effect":"None"},{"key":"example.com/k","effect":"None"}]`)},
		"AV-05 what stood there":                {old: sliceJSON(seventeen), new: sliceJSON(seventeen)},
		"a key without a domain":                {new: sliceJSON(`[{"key":"k","effect":"None"}]`), warned: 1},
		"64 devices with a key without one":     {new: manyDevices(64, "k"), warned: 1},
		"a name with escapes is read all right": {new: `{"sp\u0065c":{"devices":[{"name":"\u0061","taints":[{"key":"no key","effect":"None"}]}]}}`, denied: "spec.devices[0].taints[0].key", warned: 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			response := judgeNode(t, Validate(atNoon()), deviceReview(t, "resourceslices", "v1", tt.new, tt.old))
			require.Equal(t, tt.denied == "", response.Allowed)
			require.Len(t, response.Warnings, tt.warned, "%v", response.Warnings)
			if tt.denied != "" {
				require.Contains(t, response.Result.Message, tt.denied)
			}
		})
	}
}

// manyDevices returns a slice of n devices, each but the first with a taint, in JSON.
func manyDevices(n int, key string) string {
	devices := make([]string, 0, n)
	for i := range n {
		devices = append(devices, fmt.Sprintf(`{"name":"d%d","taints":[{"key":%q,"effect":"None"}]}`, i, key))
	}
	devices[0] = `{"name":"d0"}`
	return `{"spec":{"devices":[` + strings.Join(devices, ",") + `]}}`
}

func TestASliceThatNoAPIServerWouldSendIsNotJudged(t *testing.T) {
	tests := map[string]struct{ object, problem string }{
		"a spec that is none":           {`{"spec":1}`, "spec: not an object"},
		"devices that are no list":      {`{"spec":{"devices":{}}}`, "spec.devices: not a list"},
		"a device that is no object":    {`{"spec":{"devices":[1]}}`, "spec.devices[0]: not an object"},
		"a name that is a number":       {`{"spec":{"devices":[{"name":1}]}}`, "spec.devices[0].name: not a string"},
		"taints that are no list":       {`{"spec":{"devices":[{"name":"a"},{"taints":1}]}}`, "spec.devices[1].taints: "},
		"two specs":                     {`{"spec":{},"spec":{}}`, `duplicate field "spec"`},
		"two names for a device":        {`{"spec":{"devices":[{"name":"a","n\u0061me":"b"}]}}`, `duplicate field "name"`},
		"two keys in a taint":           {`{"spec":{"devices":[{"taints":[{"key":"a","key":"b"}]}]}}`, "duplicate"},
		"more devices than are read":    {`{"spec":{"devices":[{}` + strings.Repeat(`,{}`, 10_000) + `]}}`, "there are more than 10000"},
		"more in taints than is read":   {`{"spec":{"devices":[{"taints":[{}` + strings.Repeat(`,{"key":"aaaaaaaa"}`, 30_000) + `]}]}}`, "more than 50000 values"},
		"more in all taints than is so": {`{"spec":{"devices":[{}` + strings.Repeat(`,{"taints":[{"key":"aaaaaaaa"},{"key":"aaaaaaaa"},{"key":"aaaaaaaa"}]}`, 8_000) + `]}}`, "more than 50000 values"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, endpoint := range []*Endpoint{Mutate(atNoon()), Validate(atNoon())} {
				for _, review := range []struct{ object, old string }{{tt.object, ""}, {`{}`, tt.object}} {
					req, err := readRequest(marshal(t, deviceReview(t, "resourceslices", "v1", review.object, review.old)))
					if err != nil {
						require.ErrorContains(t, err, "duplicate")
						continue
					}
					_, err = answer(t.Context(), endpoint.Review, req)
					var bad *badReviewError
					require.ErrorAs(t, err, &bad)
					require.ErrorContains(t, err, tt.problem)
				}
			}
		})
	}
}
