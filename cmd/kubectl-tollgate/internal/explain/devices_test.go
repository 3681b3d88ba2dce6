package explain

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

const (
	gpus = `
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: gpus}
spec:
  driver: gpu.example.com
  nodeName: n-1
  pool: {name: n-1, generation: 1, resourceSliceCount: 1}
  devices:
  - name: gpu-0
    attributes: {model: {string: A100}}
    taints: [{key: worn, effect: NoSchedule, timeAdded: "2026-03-01T11:00:00Z"}]
  - name: gpu-1
    attributes: {model: {string: H100}}
`
	gpuClass = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpus}
spec: {selectors: [{cel: {expression: "device.driver == 'gpu.example.com'"}}]}
`
	hot = `
apiVersion: resource.k8s.io/v1
kind: DeviceTaintRule
metadata: {name: hot, uid: hot-uid}
spec:
  deviceSelector: {driver: gpu.example.com, pool: n-1, device: gpu-1}
  taint: {key: hot, effect: NoExecute, timeAdded: "2026-03-01T11:59:00Z"}
`
)

// claim returns a claim for gpus, with more of its request and its status.
func claim(request, status string) string {
	return `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: gpu, namespace: ml, uid: gpu-uid}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpus, allocationMode: ExactCount, count: 1, ` + request + `}}]}}
status: {` + status + `}
`
}

// has1 is the status of a claim that has gpu-1, and is reserved for pod p.
func has1(tolerations string) string {
	return `
  reservedFor: [{resource: pods, name: p, uid: p-uid}],
  allocation: {devices: {results: [{request: r, driver: gpu.example.com, pool: n-1, device: gpu-1, tolerations: [` + tolerations + `]}]}}`
}

const usesGPU = `resourceClaims: [{name: g, resourceClaimName: gpu}]`

func TestPodNamesTheDeviceBecauseOfWhichItWaitsOrLeaves(t *testing.T) {
	t.Parallel()
	cannot := unschedulable("0/1 nodes are available: 1 cannot allocate all claims. still not schedulable, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.")
	base := []string{node("n-1", "1", ""), gpus, gpuClass}
	for name, test := range map[string]struct {
		world  []string
		state  State
		kind   CauseKind
		answer string
	}{
		"all devices are tainted, by the driver and by a rule": {
			[]string{hot, claim("", ""), pod("p", usesGPU, cannot)},
			Pending, CauseClaim,
			"Pending: claim gpu cannot be allocated: request r asks for 1 of 2 devices (DeviceClass gpus), of which 2 have taints that it does not tolerate: hot:NoExecute (DeviceTaintRule hot; 1 device), worn:NoSchedule (its driver in ResourceSlice gpus; 1 device).",
		},
		"one is tainted, and the other taken": {
			[]string{`
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: theirs, namespace: other}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpus}}]}}
status: {allocation: {devices: {results: [{request: r, driver: gpu.example.com, pool: n-1, device: gpu-1}]}}}
`, claim("", ""), pod("p", usesGPU, cannot)},
			Pending, CauseClaim,
			"Pending: claim gpu cannot be allocated: request r asks for 1 of 2 devices (DeviceClass gpus), of which 1 has taints that it does not tolerate: worn:NoSchedule (its driver in ResourceSlice gpus; 1 device) and 1 is allocated to other claims.",
		},
		"the toleration has another value": {
			[]string{claim(`selectors: [{cel: {expression: "device.attributes['gpu.example.com'].model == 'A100'"}}], tolerations: [{key: worn, value: b, effect: NoSchedule}]`, ""), pod("p", usesGPU, cannot)},
			Pending, CauseClaim,
			"Pending: claim gpu cannot be allocated: request r asks for 1 of 1 device (DeviceClass gpus), of which 1 has taints that it does not tolerate: worn:NoSchedule (its driver in ResourceSlice gpus, the toleration worn=b:NoSchedule has another value; 1 device).",
		},
		"nothing is selected": {
			[]string{claim(`selectors: [{cel: {expression: "device.attributes['gpu.example.com'].model == 'B200'"}}]`, ""), pod("p", usesGPU, cannot)},
			Pending, CauseClaim, "Pending: claim gpu cannot be allocated: no device is what request r asks for (DeviceClass gpus).",
		},
		"what only the scheduler knows": {
			[]string{claim("", ""), pod("p", usesGPU, cannot)}, Pending, CauseScheduler, "Pending: the scheduler says: 1 cannot allocate all claims.",
		},
		"the claim is missing": {
			[]string{pod("p", usesGPU, unschedulable(`0/1 nodes are available: resourceclaim "gpu" not found. no new claims to deallocate`))},
			Pending, CauseClaim, "Pending: claim gpu does not exist.",
		},
		"the claim was allocated before the taint": {
			[]string{hot, claim("", has1("")), pod("p", usesGPU, "")},
			Pending, CauseClaim,
			"Pending: claim gpu has a device with a taint that it does not tolerate: hot:NoExecute of gpu.example.com/n-1/gpu-1 (DeviceTaintRule hot).",
		},
		"it has to leave because of a rule": {
			[]string{hot, claim("", has1("")), pod("p", onN+", "+usesGPU, running)},
			Due, CauseDeviceTaint,
			"Has to leave node n-1 now (due 60s ago): taint hot:NoExecute of device gpu.example.com/n-1/gpu-1, from DeviceTaintRule hot is not tolerated.",
		},
		"it has to leave later": {
			[]string{hot, claim("", has1(`{key: hot, operator: Exists, effect: NoExecute, tolerationSeconds: 300}`)), pod("p", onN+", "+usesGPU, running)},
			Leaving, CauseDeviceTaint,
			"Has to leave node n-1 in 4m1s: taint hot:NoExecute of device gpu.example.com/n-1/gpu-1, from DeviceTaintRule hot is tolerated for a while, which ends then (toleration hot:NoExecute for 300s of claim gpu).",
		},
		"its claim tolerates it for ever": {
			[]string{hot, claim("", has1(`{operator: Exists}`)), pod("p", onN+", "+usesGPU, running)},
			Staying, CauseTolerated,
			"Stays on node n-1: it tolerates for ever what would make it leave: hot:NoExecute of device gpu.example.com/n-1/gpu-1 (DeviceTaintRule hot; toleration every taint of claim gpu).",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := worldOf(t, append(base, test.world...)...).Pod(t.Context(), "ml", "p")
			require.NoError(t, err)
			require.Equal(t, test.answer, got.Answer)
			require.Equal(t, test.state, got.State)
			require.Len(t, got.Causes, 1)
			require.Equal(t, test.kind, got.Causes[0].Kind)
		})
	}
}

func TestClaimSaysWhatItsDevicesMean(t *testing.T) {
	t.Parallel()
	w := worldOf(t, node("n-1", "1", ""), gpus, gpuClass, hot, claim("", has1("")))
	got, err := w.Claim(t.Context(), "ml", "gpu")
	require.NoError(t, err)
	require.Equal(t, "It has 1 device, with taints that it does not tolerate: hot:NoExecute of gpu.example.com/n-1/gpu-1 (DeviceTaintRule hot).", got.Answer)
	require.Equal(t, []string{"pods/p"}, got.ReservedFor)
	require.NotNil(t, got.Devices[0].Taints[0].Leaves)

	got, err = w.Claim(t.Context(), "ml", "none")
	require.NoError(t, err)
	require.Equal(t, "Not found: namespace ml has no ResourceClaim none.", got.Answer)

	got, err = worldOf(t, gpus, gpuClass, claim("", "")).Claim(t.Context(), "ml", "gpu")
	require.NoError(t, err)
	require.Equal(t, "It is not allocated: nothing is known here that is against it, and the scheduler allocates it for the first pod that uses it.", got.Answer)
	require.Equal(t, &Candidates{Selected: 2, Tainted: 1, Free: 1, Taints: []string{"worn:NoSchedule (its driver in ResourceSlice gpus; 1 device)"}}, got.Requests[0].Candidates)
}

func TestDeviceSaysWhatItsTaintsMean(t *testing.T) {
	t.Parallel()
	w := worldOf(t, node("n-1", "1", ""), gpus, gpuClass, hot, claim("", has1("")), pod("p", onN+", "+usesGPU, running))
	got := w.Device(t.Context(), device.ID{Driver: "gpu.example.com", Pool: "n-1", Name: "gpu-1"})
	require.Equal(t, "Taint hot:NoExecute (DeviceTaintRule hot) evicts who does not tolerate it: 1 pod has to leave now.", got.Answer)
	require.Equal(t, []string{"model=H100"}, got.Attributes)
	got = w.Device(t.Context(), device.ID{Driver: "gpu.example.com", Pool: "n-1", Name: "gpu-0"})
	require.Equal(t, "Taint worn:NoSchedule (its driver in ResourceSlice gpus) keeps claims off that do not tolerate it: no pod uses it.", got.Answer)
	got = w.Device(t.Context(), device.ID{Driver: "gpu.example.com", Pool: "n-1", Name: "gpu-7"})
	require.Equal(t, "Not found: no ResourceSlice publishes device gpu.example.com/n-1/gpu-7.", got.Answer)
}
