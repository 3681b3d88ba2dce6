package handlers

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

const gpu0 = `{"devices":{"results":[{"request":"r","driver":"gpu.example.com","pool":"node-1","device":"gpu-0","tolerations":[{"key":"k","operator":"Exists"}]}]}}`

// claimWith returns a claim with an allocation, none if that is empty, and consumers
// of the UIDs, in JSON.
func claimWith(allocation string, uids ...string) string {
	consumers := make([]string, 0, len(uids))
	for _, uid := range uids {
		consumers = append(consumers, fmt.Sprintf(`{"resource":"pods","name":"pod-%s","uid":%q}`, uid, uid))
	}
	if allocation != "" {
		allocation = `"allocation":` + allocation + `,`
	}
	return `{"metadata":{"name":"c"},"status":{` + allocation + `"reservedFor":[` + strings.Join(consumers, ",") + `]}}`
}

// taintedDevices are two taints on the device gpu-0.
func taintedDevices() obstacles {
	id := device.ID{Driver: "gpu.example.com", Pool: "node-1", Name: "gpu-0"}
	return obstacles{found: []tracker.Obstacle{
		{Device: id, Taint: tracker.Taint{
			Key: "gpu.example.com/unhealthy", Value: "xid-79", Effect: corev1.TaintEffectNoExecute,
			Source: tracker.Source{Kind: tracker.SourceSlice, Name: "node-1-gpu-x7z4q"},
		}},
		{Device: id, Until: noon.Truncate(time.Second), Taint: tracker.Taint{
			Key: "admin.example.org/maintenance", Effect: corev1.TaintEffectNoExecute,
			Source: tracker.Source{Kind: tracker.SourceRule, Name: "maintenance", UID: "1"},
		}},
	}}
}

func TestAReservationOfATaintedDeviceIsRefused(t *testing.T) {
	tests := map[string]struct {
		old, new string
		denied   bool
	}{
		"a second pod joins":                         {old: claimWith(gpu0, "1"), new: claimWith(gpu0, "1", "2"), denied: true},
		"the first pod of a claim that stays":        {old: claimWith(gpu0), new: claimWith(gpu0, "1"), denied: true},
		"one pod takes the place of another":         {old: claimWith(gpu0, "1"), new: claimWith(gpu0, "2"), denied: true},
		"one of three is new":                        {old: claimWith(gpu0, "1", "3"), new: claimWith(gpu0, "1", "2", "3"), denied: true},
		"the same name with another UID":             {old: claimWith(gpu0, "1"), new: strings.ReplaceAll(claimWith(gpu0, "1"), `"uid":"1"`, `"uid":"2"`), denied: true},
		"the first allocation":                       {old: claimWith(""), new: claimWith(gpu0, "1")},
		"the first allocation, of a null":            {old: claimWith("null"), new: claimWith(gpu0, "1")},
		"a claim that had no status":                 {old: `{}`, new: claimWith(gpu0, "1")},
		"a pod leaves":                               {old: claimWith(gpu0, "1", "2"), new: claimWith(gpu0, "2")},
		"all pods leave":                             {old: claimWith(gpu0, "1", "2"), new: claimWith(gpu0)},
		"the claim is deallocated":                   {old: claimWith(gpu0, "1"), new: `{"status":{}}`},
		"the order changes":                          {old: claimWith(gpu0, "1", "2"), new: claimWith(gpu0, "2", "1")},
		"DE-06 another name with the same UID":       {old: claimWith(gpu0, "1"), new: strings.ReplaceAll(claimWith(gpu0, "1"), "pod-1", "pod-2")},
		"the status of the devices changes":          {old: claimWith(gpu0, "1"), new: strings.Replace(claimWith(gpu0, "1"), `"status":{`, `"status":{"devices":[{"driver":"d"}],`, 1)},
		"G11 the last of 256 consumers joins":        {old: claimWith(gpu0, manyUIDs(255)...), new: claimWith(gpu0, manyUIDs(256)...), denied: true},
		"G11 all but one of 256 consumers leave":     {old: claimWith(gpu0, manyUIDs(256)...), new: claimWith(gpu0, "u0")},
		"DE-08 a PodGroup joins, as a consumer does": {old: claimWith(gpu0), new: strings.ReplaceAll(claimWith(gpu0, "g"), `"resource":"pods"`, `"apiGroup":"scheduling.k8s.io","resource":"podgroups"`), denied: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			config := atNoon()
			review := deviceReview(t, "resourceclaims/status", "v1", tt.new, tt.old)
			require.True(t, judgeNode(t, Validate(config), review).Allowed, "device taints are not followed")
			config.DeviceTaints = obstacles{}
			require.True(t, judgeNode(t, Validate(config), review).Allowed, "nothing is in the way")
			config.DeviceTaints = taintedDevices()
			require.Equal(t, !tt.denied, judgeNode(t, Validate(config), review).Allowed)
		})
	}
}

func manyUIDs(n int) []string {
	uids := make([]string, n)
	for i := range uids {
		uids[i] = fmt.Sprintf("u%d", i)
	}
	return uids
}

func TestARefusedReservationSaysWhatIsInTheWay(t *testing.T) {
	config := atNoon()
	config.DeviceTaints = taintedDevices()
	review := deviceReview(t, "resourceclaims/status", "v1", claimWith(gpu0, "1", "2", "3", "4", "5", "6"), claimWith(gpu0, "1"))
	response := judgeNode(t, Validate(config), review)
	require.Equal(t, int32(http.StatusForbidden), response.Result.Code)
	const who = "status.reservedFor[1] (pods/pod-2, pods/pod-3, pods/pod-4, and 2 more): device gpu.example.com/node-1/gpu-0 has the taint "
	const remedy = "; more pods can use the claim once the taint is gone. An allocation keeps its devices and its tolerations: a claim with others has to be allocated anew"
	require.Equal(t,
		who+"admin.example.org/maintenance:NoExecute from DeviceTaintRule maintenance, which the claim tolerated until 2026-11-20T12:00:00Z"+remedy+"; "+
			who+"gpu.example.com/unhealthy=xid-79:NoExecute from ResourceSlice node-1-gpu-x7z4q, which the claim does not tolerate"+remedy,
		response.Result.Message)
}

func TestARefusedReservationNamesThePatchThatARuleIsWrittenOutFor(t *testing.T) {
	config := atNoon()
	config.DeviceTaints = obstacles{found: []tracker.Obstacle{{
		Device: device.ID{Driver: "gpu.example.com", Pool: "node-1", Name: "gpu-0"},
		Taint: tracker.Taint{
			Key: "admin.example.org/broken", Effect: "NoExecute", Source: tracker.Source{Kind: tracker.SourceRule, Name: "gpu-broken-x7z4q", UID: "1"},
			Patch: tracker.PatchRef{Name: "gpu-broken", UID: "2"},
		},
	}}}
	response := judgeNode(t, Validate(config), deviceReview(t, "resourceclaims/status", "v1", claimWith(gpu0, "1", "2"), claimWith(gpu0, "1")))
	require.Contains(t, response.Result.Message,
		"device gpu.example.com/node-1/gpu-0 has the taint admin.example.org/broken:NoExecute from ResourceSlicePatch gpu-broken, which the claim does not tolerate")
}

func TestDE15TheDevicesOfTheAllocationAreAskedAbout(t *testing.T) {
	const uncopied = `{"devices":{"results":[{"request":"r","driver":"gpu.example.com","pool":"node-1","device":"gpu-0"}]}}`
	const spec = `{"spec":{"devices":{"requests":[{"name":"r","exactly":{"tolerations":[{"key":"requested","operator":"Exists"}]}}]}},`
	for name, tt := range map[string]struct{ allocation, key string }{
		"with the tolerations of the allocation":                {gpu0, "k"},
		"with those of the request, where it was given no copy": {uncopied, "requested"},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []tracker.AllocatedDevice
			config := atNoon()
			config.DeviceTaints = obstacles{asked: &asked}
			claim := func(uids ...string) string { return strings.Replace(claimWith(tt.allocation, uids...), "{", spec, 1) }
			require.True(t, judgeNode(t, Validate(config), deviceReview(t, "resourceclaims/status", "v1", claim("1"), claim())).Allowed)
			require.Equal(t, []tracker.AllocatedDevice{{
				ID:          device.ID{Driver: "gpu.example.com", Pool: "node-1", Name: "gpu-0"},
				Tolerations: []resourcev1.DeviceToleration{{Key: tt.key, Operator: resourcev1.DeviceTolerationOpExists}},
			}}, asked)
		})
	}
}

func TestDE53NothingIsDecidedWhileTheDevicesAreNotKnown(t *testing.T) {
	config := atNoon()
	config.DeviceTaints = obstacles{unknown: true}
	for name, tt := range map[string]struct {
		old, new string
		known    bool
	}{
		"a reservation":         {old: claimWith(gpu0, "1"), new: claimWith(gpu0, "1", "2")},
		"the first allocation":  {old: claimWith(""), new: claimWith(gpu0, "1"), known: true},
		"a pod leaves a device": {old: claimWith(gpu0, "1"), new: claimWith(gpu0), known: true},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := readRequest(marshal(t, deviceReview(t, "resourceclaims/status", "v1", tt.new, tt.old)))
			require.NoError(t, err)
			_, err = Validate(config).Review(t.Context(), req)
			if tt.known {
				require.NoError(t, err)
				return
			}
			require.Error(t, err, "the failurePolicy decides, not a verdict")
			require.NotErrorAs(t, err, new(*badReviewError))
		})
	}
}

func TestAReservationThatNoAPIServerWouldSendIsNotJudged(t *testing.T) {
	config := atNoon()
	config.DeviceTaints = obstacles{}
	for name, tt := range map[string]struct{ old, new string }{
		"consumers that are no list":       {old: claimWith(gpu0), new: `{"status":{"reservedFor":{}}}`},
		"old consumers that are no list":   {old: `{"status":{"allocation":{},"reservedFor":{}}}`, new: claimWith(gpu0)},
		"an allocation that is no object":  {old: claimWith("[]"), new: claimWith(gpu0, "1")},
		"a status that is no object":       {old: claimWith(gpu0), new: `{"status":1}`},
		"a consumer with two UIDs":         {old: claimWith(gpu0), new: `{"status":{"reservedFor":[{"uid":"1","uid":"2"}]}}`},
		"a consumer that takes all memory": {old: claimWith(gpu0), new: `{"status":{"reservedFor":[{}` + strings.Repeat(`,{"uid":"aaaaaaaa"}`, 80_000) + `]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := readRequest(marshal(t, deviceReview(t, "resourceclaims/status", "v1", tt.new, tt.old)))
			require.NoError(t, err)
			_, err = answer(t.Context(), Validate(config).Review, req)
			var bad *badReviewError
			require.ErrorAs(t, err, &bad)
		})
	}
}
