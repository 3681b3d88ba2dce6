package devices

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// shown returns pool/device of what satisfies the filter.
func shown(t *testing.T, v *Inventory) []string {
	t.Helper()
	names := []string{}
	for d := range v.Devices(t.Context()) {
		names = append(names, d.Device.Pool+"/"+d.Device.Name)
	}
	return names
}

func TestFilters(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		filter Filter
		want   string
	}{
		"no filter shows all, of the newest generation": {Filter{}, "node-7/gpu-0 node-7/gpu-1 node-7/gpu-2 rack-1/nic-1 rack-1/nic-2"},
		"a driver":                              {Filter{Driver: "nic.example.com"}, "rack-1/nic-1 rack-1/nic-2"},
		"a pool":                                {Filter{Pool: "node-7"}, "node-7/gpu-0 node-7/gpu-1 node-7/gpu-2"},
		"a device":                              {Filter{Device: "nic-2"}, "rack-1/nic-2"},
		"a device of an old generation is none": {Filter{Device: "gpu-old"}, ""},
		"a class meets devices as they are patched":       {Filter{Class: "rack-7"}, "node-7/gpu-0 node-7/gpu-2"},
		"a class that fails on a device does not show it": {Filter{Class: "fast"}, "rack-1/nic-1"},
		"a class that there is not":                       {Filter{Class: "none"}, ""},
		"tainted by a driver, a patch or a rule":          {Filter{Tainted: true}, "node-7/gpu-0 node-7/gpu-1"},
		"patched, or where a patch failed":                {Filter{Patched: true}, "node-7/gpu-0 node-7/gpu-2 rack-1/nic-1 rack-1/nic-2"},
		"all that is asked for":                           {Filter{Driver: "gpu.example.com", Pool: "node-7", Device: "gpu-0", Class: "rack-7", Tainted: true, Patched: true}, "node-7/gpu-0"},
		"what cannot be at once":                          {Filter{Driver: "nic.example.com", Tainted: true}, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, strings.Join(shown(t, cluster(t, c.filter)), " "))
		})
	}
}

func TestNotes(t *testing.T) {
	t.Parallel()
	incomplete := "pool nic.example.com/rack-1 is incomplete, no scheduler allocates from it: generation 1 has 1 of 2 ResourceSlices"
	lost := "ResourceClaim ml/shared has device gpu.example.com/node-7/gpu-9, which the newest ResourceSlices of its pool did not publish when they were read"
	invalid := `not in force: ResourceSlicePatch misspelt: spec.devices.attributes[model]: Invalid value: "model": must have a domain, as in driver.example.com/model: for what a driver publishes without one, that is the name of the driver`
	for sentence, c := range map[string]struct {
		filter Filter
		want   []string
	}{
		"what does not count is said":           {Filter{}, []string{incomplete, lost, invalid}},
		"of what is filtered out nothing is":    {Filter{Pool: "node-7", Device: "gpu-0"}, []string{invalid}},
		"an unknown driver is said":             {Filter{Driver: "fpga.example.com"}, []string{"no devices found: there is no ResourceSlice of driver fpga.example.com", invalid}},
		"an unknown pool is said":               {Filter{Driver: "gpu.example.com", Pool: "node-8"}, []string{"no devices found: no ResourceSlice of driver gpu.example.com has pool node-8", invalid}},
		"an unknown device is said":             {Filter{Pool: "node-7", Device: "gpu-7"}, []string{"no devices found: none is called gpu-7", invalid}},
		"an unknown class is said":              {Filter{Pool: "node-7", Class: "slow"}, []string{"no devices found: none satisfies --pool node-7 --class slow", "there is no DeviceClass slow", lost, invalid}},
		"a class that fails is said":            {Filter{Pool: "node-7", Class: "fast"}, []string{"no devices found: none satisfies --pool node-7 --class fast", "DeviceClass fast: an expression failed on 3 devices, which are not shown; on gpu.example.com/node-7/gpu-0: no such key: speed", lost, invalid}},
		"that nothing satisfies it all is said": {Filter{Device: "nic-1", Tainted: true, Patched: true}, []string{"no devices found: none satisfies --device nic-1 --tainted --patched", incomplete, invalid}},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			v := cluster(t, c.filter)
			shown(t, v)
			require.Equal(t, c.want, v.Notes())
		})
	}
	require.Equal(t, []string{"no devices found: there is no ResourceSlice"}, NewTable(Filter{}).Notes())
	empty := NewTable(Filter{})
	empty.AddSlice(&resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{Pool: resourcev1.ResourcePool{ResourceSliceCount: 1}}})
	require.Equal(t, []string{"no devices found"}, empty.Notes())
}

func TestNotesAreNoMoreThanPeopleRead(t *testing.T) {
	t.Parallel()
	v := NewTable(Filter{})
	for i := range 8 {
		v.AddRule(&resourcev1.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("rule-", 8-i)}}, []string{"selectors"})
	}
	require.Equal(t, []string{
		"no devices found: there is no ResourceSlice",
		"selects by more than names and is left out: DeviceTaintRule rule-1",
		"selects by more than names and is left out: DeviceTaintRule rule-2",
		"selects by more than names and is left out: DeviceTaintRule rule-3",
		"selects by more than names and is left out: DeviceTaintRule rule-4",
		"selects by more than names and is left out: DeviceTaintRule rule-5",
		"the same of 3 more rules",
	}, v.Notes())
}

func TestARuleWithAFieldThatIsNotKnownSelectsNothing(t *testing.T) {
	t.Parallel()
	v := cluster(t, Filter{Tainted: true})
	v.AddRule(&resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: "r"},
		Spec:       resourcev1.DeviceTaintRuleSpec{DeviceSelector: &resourcev1.DeviceTaintSelector{}, Taint: resourcev1.DeviceTaint{Key: "x", Effect: "None"}},
	}, []string{"deviceClassName"})
	require.Equal(t, []string{"node-7/gpu-0", "node-7/gpu-1"}, shown(t, v))
}

// TestTheNewestGenerationIsShownInWhateverOrderItComes compares with a look at all slices
// at once.
func TestTheNewestGenerationIsShownInWhateverOrderItComes(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		v, newest := NewTable(Filter{}), map[string]int64{}
		var all []*resourcev1.ResourceSlice
		for i := range random.IntN(8) {
			s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("s", i)}}
			s.Spec.Driver, s.Spec.Pool.Name = "d", fmt.Sprint("p", random.IntN(2))
			s.Spec.Pool.Generation, s.Spec.Pool.ResourceSliceCount = random.Int64N(3), 2
			s.Spec.Devices = []resourcev1.Device{{Name: s.Name}}
			all = append(all, s)
			newest[s.Spec.Pool.Name] = max(newest[s.Spec.Pool.Name], s.Spec.Pool.Generation)
			v.AddSlice(s)
		}
		want, count := []string{}, map[string]int{}
		for _, s := range all {
			if name := s.Spec.Pool.Name; s.Spec.Pool.Generation == newest[name] {
				want = append(want, name+"/"+s.Name)
				count[name]++
			}
		}
		slices.Sort(want)
		require.Equal(t, want, shown(t, v))
		incomplete := 0
		for _, n := range count {
			if n != 2 {
				incomplete++
			}
		}
		require.Len(t, v.incomplete(), incomplete)
	}
}

func TestClaimsOfADevice(t *testing.T) {
	t.Parallel()
	claim := func(namespace, name, results string) *resourcev1.ResourceClaim {
		c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		c.Status.Allocation = parsed[resourcev1.AllocationResult](t, []byte(`{devices: {results: [`+results+`]}}`))
		c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: name + "-pod"}, {APIGroup: "x", Resource: "pods", Name: "other"}}
		return c
	}
	v := cluster(t, Filter{Driver: "nic.example.com", Device: "nic-1"})
	on := `{driver: nic.example.com, pool: rack-1, device: nic-1}`
	watching := `{driver: nic.example.com, pool: rack-1, device: nic-1, adminAccess: true}`
	v.AddClaim(claim("b", "first", on))
	v.AddClaim(claim("a", "second", watching))
	v.AddClaim(claim("b", "first", watching+","+on))
	v.AddClaim(claim("b", "elsewhere", `{driver: nic.example.com, pool: rack-1, device: nic-2}`))
	for d := range v.Devices(t.Context()) {
		require.Equal(t, []Claim{
			{Namespace: "a", Name: "second", AdminAccess: true, Consumers: []string{"second-pod", "pods/other"}},
			{Namespace: "b", Name: "first", Consumers: []string{"first-pod", "pods/other"}},
		}, d.Claims)
	}
	require.Len(t, v.claims, 1, "of other devices nothing is kept")
}

func TestJSONSaysWhatYAMLSays(t *testing.T) {
	t.Parallel()
	for _, filter := range []Filter{{}, {Device: "none"}} {
		var asYAML, asJSON bytes.Buffer
		v := cluster(t, filter)
		require.NoError(t, v.WriteYAML(t.Context(), &asYAML))
		require.NoError(t, v.WriteJSON(t.Context(), &asJSON))
		converted, err := yaml.YAMLToJSON(asYAML.Bytes())
		require.NoError(t, err)
		require.JSONEq(t, string(converted), asJSON.String())
		var indented bytes.Buffer
		require.NoError(t, json.Indent(&indented, asJSON.Bytes(), "", "    "))
		require.Equal(t, indented.String(), asJSON.String())
	}
}

// Other tools read the List, and what is under devices does not keep them from it.
func TestTheDocumentIsAListOfKubernetes(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, cluster(t, Filter{}).WriteYAML(t.Context(), &out))
	var list corev1.List
	require.NoError(t, yaml.Unmarshal(out.Bytes(), &list))
	require.Len(t, list.Items, 2)
	for _, item := range list.Items {
		slice := parsed[resourcev1.ResourceSlice](t, item.Raw)
		require.Equal(t, "ResourceSlice", slice.Kind)
		require.NotEmpty(t, slice.Spec.Devices)
	}
}

func TestLookedIsToldOfEachPool(t *testing.T) {
	t.Parallel()
	v := cluster(t, Filter{Tainted: true})
	var told []int
	v.Looked = func(devices int) { told = append(told, devices) }
	shown(t, v)
	require.Equal(t, []int{3, 5}, told)
}

func TestARuleThatWasWrittenOutForAPatchIsNotShownBesideIt(t *testing.T) {
	t.Parallel()
	written := resourcev1.DeviceTaint{Key: "ops.example.com/degraded", Effect: "NoSchedule"}
	for sentence, c := range map[string]struct {
		uid  string
		want []string
	}{
		"the patch is known":                    {"memory-uid", []string{"degraded:NoSchedule"}},
		"a patch of that name was there before": {"older-uid", []string{"degraded:NoSchedule", "degraded:NoSchedule"}},
		"the patch is not in force":             {"misspelt-uid", []string{"degraded:NoSchedule", "degraded:NoSchedule"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			v := cluster(t, Filter{Device: "gpu-0"})
			v.AddRule(&resourcev1.DeviceTaintRule{
				ObjectMeta: metav1.ObjectMeta{Name: "memory-1a2b", Labels: map[string]string{v1alpha1.LabelPatch: c.uid}, OwnerReferences: []metav1.OwnerReference{{
					APIVersion: v1alpha1.GroupVersion.String(), Kind: "ResourceSlicePatch", Name: "memory", UID: types.UID(c.uid), Controller: new(true),
				}}},
				Spec: resourcev1.DeviceTaintRuleSpec{DeviceSelector: &resourcev1.DeviceTaintSelector{}, Taint: written},
			}, nil)
			for d := range v.Devices(t.Context()) {
				require.Equal(t, append([]string{"overheating:NoExecute"}, c.want...), d.taints(false))
			}
		})
	}
}
