package patches

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
)

// devicesPerPool is how many devices publishGPUs publishes in each pool.
const devicesPerPool = 6

// gpu is a device with a name, an index, a model, a firmware and memory. It is not known
// of those with an even index whether they are shared.
func gpu(name string, index int64) resourcev1.Device {
	d := dra.Device(name)
	d.Attributes["index"] = resourcev1.DeviceAttribute{IntValue: &index}
	d.Attributes["model"] = resourcev1.DeviceAttribute{StringValue: new("A")}
	d.Attributes["firmware"] = resourcev1.DeviceAttribute{VersionValue: new("1.2.3")}
	if index%2 == 1 {
		d.Attributes["shared"] = resourcev1.DeviceAttribute{BoolValue: new(false)}
	}
	d.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("80Gi")}}
	return d
}

// publishGPUs publishes two pools of devices, all alike but for their index.
func (s *site) publishGPUs(t *testing.T) {
	t.Helper()
	for pool := range 2 {
		devices := make([]resourcev1.Device, devicesPerPool)
		for i := range devices {
			devices[i] = gpu("d"+strconv.Itoa(i), int64(pool*devicesPerPool+i))
		}
		s.publish(t, "p"+strconv.Itoa(pool), devices...)
	}
}

// What requests ask for. None of them fails where the attribute is missing, as one does
// that asks for it without a question mark.
const (
	modelA = `selectors: [{cel: {expression: 'device.attributes["DRIVER"].?model.orValue("") == "A"'}}]`
	modelB = `selectors: [{cel: {expression: 'device.attributes["DRIVER"].?model.orValue("") == "B"'}}]`
	modelC = `selectors: [{cel: {expression: 'device.attributes["DRIVER"].?model.orValue("") == "C"'}}]`
	gold   = `selectors: [{cel: {expression: 'device.attributes["example.com"].?tier.orValue("") == "gold"'}}]`
	memory = `capacity: {requests: {memory: 60Gi}}`
	// anything asks for any device.
	anything = `{}`
)

func everything(int, int) bool { return true }
func nothing(int, int) bool    { return false }
func inPool(want int) func(int, int) bool {
	return func(pool, _ int) bool { return pool == want }
}
func even(_, i int) bool { return i%2 == 0 }
func odd(_, i int) bool  { return i%2 == 1 }

func TestPodsGetTheDevicesThatPatchesMakeFitAndNeverOthers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		// class is the selector of DRIVER-class.
		class string
		// patches are spec.devices of patches.
		patches []string
		request string
		// want says which devices are given to pods, by pool and number.
		want func(pool, i int) bool
	}{
		"those to which a patch gives an attribute": {
			patches: []string{`{filter: {driver: DRIVER, pool: p1}, attributes: {DRIVER/model: {string: B}}}`},
			request: modelB, want: inPool(1),
		},
		"not those that have lost it by that": {
			patches: []string{`{filter: {driver: DRIVER, pool: p1}, attributes: {DRIVER/model: {string: B}}}`},
			request: modelA, want: inPool(0),
		},
		"not one from which a patch removes it": {
			patches: []string{`{filter: {driver: DRIVER, pool: p0, device: d3}, attributes: {DRIVER/model: {"null": {}}}}`},
			request: modelA, want: func(pool, i int) bool { return pool != 0 || i != 3 },
		},
		"of a pool in which a patch raises a version": {
			patches: []string{`{filter: {driver: DRIVER, pool: p1}, attributes: {DRIVER/firmware: {version: 2.0.0}}}`},
			request: `selectors: [{cel: {expression: 'device.attributes["DRIVER"].firmware.isGreaterThan(semver("1.99.0"))'}}]`,
			want:    inPool(1),
		},
		"those to which it gives an attribute of its own": {
			class:   `device.driver == "DRIVER" && device.attributes["DRIVER"].index % 2 == 0`,
			patches: []string{`{filter: {deviceClassName: DRIVER-class}, attributes: {example.com/tier: {string: gold}}}`},
			request: gold, want: even,
		},
		"not those whose capacity it lowers": {
			patches: []string{`{filter: {driver: DRIVER, selectors: [{cel: {expression: 'device.attributes["DRIVER"].index % 2 == 0'}}]}, capacity: {DRIVER/memory: {value: 40Gi}}}`},
			request: memory, want: odd,
		},
		"not those whose capacity it takes away, asked for by an expression": {
			patches: []string{`{filter: {driver: DRIVER, pool: p0}, capacity: {DRIVER/memory: {value: 0}}}`},
			request: `selectors: [{cel: {expression: 'device.capacity["DRIVER"].memory.isGreaterThan(quantity("60Gi"))'}}]`,
			want:    inPool(1),
		},
		"those whose capacity it raises": {
			patches: []string{`{filter: {driver: DRIVER, pool: p0}, capacity: {DRIVER/memory: {value: 160Gi}}}`},
			request: `capacity: {requests: {memory: 100Gi}}`, want: inPool(0),
		},
		"not those that it taints": {
			patches: []string{`{filter: {driver: DRIVER, pool: p1}, taints: [{key: example.com/broken, effect: NoSchedule}]}`},
			request: anything, want: inPool(0),
		},
		"not those that it taints to evict": {
			patches: []string{`{filter: {driver: DRIVER, pool: p0}, taints: [{key: example.com/broken, effect: NoExecute}]}`},
			request: anything, want: inPool(1),
		},
		"tainted ones if they tolerate that": {
			patches: []string{`{filter: {driver: DRIVER, pool: p1}, taints: [{key: example.com/broken, effect: NoSchedule}]}`},
			request: `tolerations: [{key: example.com/broken, operator: Exists, effect: NoSchedule}]`, want: everything,
		},
		"those with a taint that has no effect": {
			patches: []string{`{filter: {driver: DRIVER}, taints: [{key: example.com/broken, effect: None}]}`},
			request: anything, want: everything,
		},
		"as the patch of the higher priority says": {
			patches: []string{
				`{filter: {driver: DRIVER}, priority: -1, attributes: {DRIVER/model: {string: C}}}`,
				`{filter: {driver: DRIVER, pool: p1}, priority: 5, attributes: {DRIVER/model: {string: B}}}`,
				`{filter: {driver: DRIVER}, priority: 1, attributes: {DRIVER/model: {string: A}}}`,
			},
			request: modelB, want: inPool(1),
		},
		"not those from which the higher one removes what the lower one gives": {
			patches: []string{
				`{filter: {driver: DRIVER}, attributes: {DRIVER/model: {string: B}}}`,
				`{filter: {driver: DRIVER, pool: p1}, priority: 1, attributes: {DRIVER/model: {"null": {}}}}`,
			},
			request: modelB, want: inPool(0),
		},
		"as patches say that change different things": {
			patches: []string{
				`{filter: {driver: DRIVER, pool: p1}, attributes: {DRIVER/model: {string: B}}}`,
				`{filter: {driver: DRIVER, selectors: [{cel: {expression: 'device.attributes["DRIVER"].index % 2 == 0'}}]}, attributes: {example.com/tier: {string: gold}}}`,
			},
			request: `selectors: [{cel: {expression: 'device.attributes["DRIVER"].model == "B" && "tier" in device.attributes["example.com"]'}}]`,
			want:    func(pool, i int) bool { return pool == 1 && i%2 == 0 },
		},
		"as patches say whose filters see published devices": {
			patches: []string{
				`{filter: {driver: DRIVER}, attributes: {DRIVER/model: {string: B}}}`,
				`{filter: {driver: DRIVER, selectors: [{cel: {expression: 'device.attributes["DRIVER"].model == "A"'}}]}, attributes: {example.com/tier: {string: gold}}}`,
			},
			request: gold, want: everything,
		},
		"not as patches say whose filters would have to see patched ones": {
			patches: []string{
				`{filter: {driver: DRIVER}, attributes: {DRIVER/model: {string: B}}}`,
				`{filter: {driver: DRIVER, selectors: [{cel: {expression: 'device.attributes["DRIVER"].model == "B"'}}]}, attributes: {example.com/tier: {string: gold}}}`,
			},
			request: gold, want: nothing,
		},
		"as published where a patch's expression fails": {
			patches: []string{`{filter: {driver: DRIVER, selectors: [{cel: {expression: '!device.attributes["DRIVER"].shared'}}]}, attributes: {DRIVER/model: {string: B}}}`},
			request: modelA, want: even,
		},
		"as patched where it does not fail": {
			patches: []string{`{filter: {driver: DRIVER, selectors: [{cel: {expression: '!device.attributes["DRIVER"].shared'}}]}, attributes: {DRIVER/model: {string: B}}}`},
			request: modelB, want: odd,
		},
		"as published while there is no class that the patch names": {
			patches: []string{`{filter: {deviceClassName: DRIVER-none}, attributes: {DRIVER/model: {string: B}}}`},
			request: modelA, want: everything,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.publishGPUs(t)
			if tt.class != "" {
				s.class(t, "DRIVER-class", tt.class)
			}
			for i, patch := range tt.patches {
				s.patch(t, strconv.Itoa(i), patch)
			}
			s.settle(t)
			s.requireOnly(t, tt.request, tt.want)
		})
	}
}

// requireOnly creates one pod more than there are devices to be given to them, and fails
// unless all of these devices are, and no others.
func (s *site) requireOnly(t *testing.T, request string, want func(pool, i int) bool) {
	t.Helper()
	var devices []string
	for pool := range 2 {
		for i := range devicesPerPool {
			if want(pool, i) {
				devices = append(devices, "p"+strconv.Itoa(pool)+"/d"+strconv.Itoa(i))
			}
		}
	}
	s.runMany(t, "pod", len(devices)+1, request)
	require.Equal(t, devices, s.requirePods(t, "pod", len(devices), 1))
}

func TestEachTimeAPatchMovesPodsMoveWithIt(t *testing.T) {
	t.Parallel()
	const pools, pods = 4, 20
	s := newSite(t)
	for pool := range pools {
		devices := make([]resourcev1.Device, pods)
		for i := range devices {
			devices[i] = gpu("d"+string(rune('a'+i)), int64(i))
		}
		s.publish(t, "p"+strconv.Itoa(pool), devices...)
	}
	s.patch(t, "moving", `{filter: {driver: DRIVER, pool: none}, attributes: {DRIVER/model: {string: B}}}`)
	start := time.Now()
	for pool := range pools {
		name := "p" + strconv.Itoa(pool)
		s.editPatch(t, "moving", `{filter: {driver: DRIVER, pool: `+name+`}, attributes: {DRIVER/model: {string: B}}}`)
		s.settle(t)
		s.runMany(t, "pod-"+name, pods, modelB)
		var want []string
		for i := range pods {
			want = append(want, name+"/d"+string(rune('a'+i)))
		}
		require.Equal(t, want, s.requirePods(t, "pod-"+name, pods, 0))
	}
	t.Logf("%d pods on devices of %d pools in %.1f s", pools*pods, pools, time.Since(start).Seconds())
	s.run(t, "late", modelB)
	s.requireWaiting(t, "late")
}

func TestDevicesBehindAnExtendedResourceAreGivenAsPatchesSay(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	resourceName := corev1.ResourceName(s.driver + "/gpu")
	class := dra.Class(s.driver + "-extended")
	class.Spec.Selectors[0].CEL.Expression = s.text(`device.driver == "DRIVER" && device.attributes["DRIVER"].?model.orValue("") == "A"`)
	class.Spec.ExtendedResourceName = new(string(resourceName))
	_, err := s.client.ResourceV1().DeviceClasses().Create(t.Context(), class, metav1.CreateOptions{})
	require.NoError(t, err)
	s.publish(t, "pool", gpu("a", 0), gpu("b", 1), gpu("c", 2))
	s.patch(t, "b", `{filter: {driver: DRIVER, device: b}, attributes: {DRIVER/model: {string: B}}}`)
	s.patch(t, "c", `{filter: {driver: DRIVER, device: c}, taints: [{key: example.com/broken, effect: NoSchedule}]}`)
	s.settle(t)
	for _, name := range []string{"pod-0", "pod-1"} {
		pod := dra.Pod(name)
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{resourceName: resource.MustParse("1")}
		_, err := s.client.CoreV1().Pods(s.namespace).Create(t.Context(), pod, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	s.requirePods(t, "pod", 1, 1)
	require.Equal(t, []string{"pool/a"}, s.givenDevices(t))
	s.deletePatch(t, "b")
	s.requirePods(t, "pod", 2, 0)
	require.Equal(t, []string{"pool/a", "pool/b"}, s.givenDevices(t))
}

// givenDevices are the devices of all claims, sorted: those that the scheduler makes for
// extended resources too.
func (s *site) givenDevices(t *testing.T) []string {
	t.Helper()
	claims, err := s.client.ResourceV1().ResourceClaims(s.namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var devices []string
	for i := range claims.Items {
		require.NotNil(t, claims.Items[i].Status.Allocation)
		for _, result := range claims.Items[i].Status.Allocation.Devices.Results {
			devices = append(devices, result.Pool+"/"+result.Device)
		}
	}
	slices.Sort(devices)
	return devices
}
