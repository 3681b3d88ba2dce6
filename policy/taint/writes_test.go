package taint

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/validation"
)

func TestWritesOfANodeSayWhatIsDoneToEachTaint(t *testing.T) {
	a := nodeTaint("a", "1", corev1.TaintEffectNoSchedule)
	a2 := nodeTaint("a", "2", corev1.TaintEffectNoSchedule)
	aExec := nodeTaint("a", "1", corev1.TaintEffectNoExecute)
	b := nodeTaint("b", "", corev1.TaintEffectNoExecute)
	yesterday := noon.Add(-24 * time.Hour)
	tests := map[string]struct {
		now, old []corev1.Taint
		want     []v1alpha1.TaintOperation
	}{
		"nothing":                             {nil, nil, []v1alpha1.TaintOperation{}},
		"the same":                            {[]corev1.Taint{a, b}, []corev1.Taint{a, b}, []v1alpha1.TaintOperation{}},
		"C23 the same in another order":       {[]corev1.Taint{b, a}, []corev1.Taint{a, b}, []v1alpha1.TaintOperation{}},
		"a new one":                           {[]corev1.Taint{a, b}, []corev1.Taint{b}, []v1alpha1.TaintOperation{v1alpha1.TaintAdd}},
		"one that goes":                       {[]corev1.Taint{b}, []corev1.Taint{a, b}, []v1alpha1.TaintOperation{v1alpha1.TaintRemove}},
		"C23 one that goes while others move": {[]corev1.Taint{b, aExec}, []corev1.Taint{a, aExec, b}, []v1alpha1.TaintOperation{v1alpha1.TaintRemove}},
		"another value":                       {[]corev1.Taint{a2}, []corev1.Taint{a}, []v1alpha1.TaintOperation{v1alpha1.TaintChange}},
		"another effect is another taint":     {[]corev1.Taint{aExec}, []corev1.Taint{a}, []v1alpha1.TaintOperation{v1alpha1.TaintAdd, v1alpha1.TaintRemove}},
		"a list that goes":                    {nil, []corev1.Taint{a, b}, []v1alpha1.TaintOperation{v1alpha1.TaintRemove, v1alpha1.TaintRemove}},
		"another time":                        {[]corev1.Taint{at(b, yesterday)}, []corev1.Taint{at(b, noon)}, []v1alpha1.TaintOperation{v1alpha1.TaintChange}},
		"a time that is lost":                 {[]corev1.Taint{b}, []corev1.Taint{at(b, noon)}, []v1alpha1.TaintOperation{v1alpha1.TaintChange}},
		"a time that Tollgate stamped":        {[]corev1.Taint{at(b, noon.Add(-time.Second))}, []corev1.Taint{b}, []v1alpha1.TaintOperation{}},
		"another value, and the time that Tollgate stamped": {[]corev1.Taint{at(a2, noon)}, []corev1.Taint{a}, []v1alpha1.TaintOperation{v1alpha1.TaintChange}},
		"a time of long ago for one that had none":          {[]corev1.Taint{at(b, yesterday)}, []corev1.Taint{b}, []v1alpha1.TaintOperation{v1alpha1.TaintChange}},
		"the same second": {[]corev1.Taint{at(b, noon.Add(time.Millisecond))}, []corev1.Taint{at(b, noon)}, []v1alpha1.TaintOperation{}},
		"a second one like the first, which is invalid": {[]corev1.Taint{a, a2}, []corev1.Taint{a}, []v1alpha1.TaintOperation{v1alpha1.TaintAdd}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, operations(NodeWrites(tt.now, tt.old, noon)))
		})
	}
}

func TestC23TheOrderOfTaintsIsNoChange(t *testing.T) {
	old := []corev1.Taint{
		nodeTaint("a", "", corev1.TaintEffectNoSchedule), nodeTaint("b", "x", corev1.TaintEffectNoExecute),
		at(nodeTaint("b", "y", corev1.TaintEffectNoSchedule), noon), nodeTaint("c", "", corev1.TaintEffectPreferNoSchedule),
	}
	permutations(old, func(now []corev1.Taint) {
		require.Empty(t, NodeWrites(now, old, noon))
		gone := NodeWrites(now[1:], old, noon)
		require.Len(t, gone, 1)
		require.Equal(t, OfNode(&now[0]), gone[0].Old)
		require.Equal(t, "spec.taints", gone[0].Path.String())
	})
}

// TestWritesTellOldFromNew replays random writes: what was there, without what was
// removed and with what was added and changed, is what is there.
func TestWritesTellOldFromNew(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	list := func() []corev1.Taint {
		var taints []corev1.Taint
		for range random.IntN(6) {
			taints = append(taints, at(nodeTaint(
				[]string{"a", "b", "c"}[random.IntN(3)], []string{"", "1", "2"}[random.IntN(3)],
				[]corev1.TaintEffect{"NoSchedule", "NoExecute"}[random.IntN(2)]), noon.Add(time.Duration(random.IntN(3))*time.Hour)))
		}
		return taints
	}
	count := func(taints []corev1.Taint) map[Taint]int {
		n := map[Taint]int{}
		for i := range taints {
			n[OfNode(&taints[i])]++
		}
		return n
	}
	for range 5000 {
		now, old := list(), list()
		got := count(old)
		for _, w := range NodeWrites(now, old, noon) {
			if w.Operation != v1alpha1.TaintAdd {
				got[w.Old]--
			}
			if w.Operation != v1alpha1.TaintRemove {
				got[w.New]++
			}
			if w.Operation == v1alpha1.TaintChange {
				require.Equal(t, w.Old.kind(), w.New.kind())
			}
		}
		for taint, n := range got {
			if n == 0 {
				delete(got, taint)
			}
		}
		require.Equal(t, count(now), got, "%v to %v", old, now)
	}
}

func device(name string, taints ...resourcev1.DeviceTaint) validation.Device {
	return validation.Device{Name: name, Taints: taints}
}

func TestWritesOfASliceAreCountedWhereDevicesChangeAlike(t *testing.T) {
	hot := resourcev1.DeviceTaint{Key: "example.com/hot", Effect: resourcev1.DeviceTaintEffectNoExecute}
	slow := resourcev1.DeviceTaint{Key: "example.com/slow", Effect: resourcev1.DeviceTaintEffectNoSchedule}
	var now, old []validation.Device
	for i := range 12 {
		now = append(now, device(fmt.Sprintf("gpu-%d", i), hot))
		old = append(old, device(fmt.Sprintf("gpu-%d", i)))
	}
	now[3].Taints = append(now[3].Taints, slow)
	writes := SliceWrites("gpu.example.com", now, old)
	require.Len(t, writes, 2)
	require.Equal(t, v1alpha1.TaintAdd, writes[0].Operation)
	require.Equal(t, 12, writes[0].Times)
	require.Equal(t, "spec.devices[0].taints[0]", writes[0].Path.String())
	require.Equal(t, "gpu.example.com", writes[0].New.Driver)
	require.Equal(t, 1, writes[1].Times)
	require.Equal(t, "spec.devices[3].taints[1]", writes[1].Path.String())
}

func TestC24ADeviceIsTheOneOfItsNameWhereverItStands(t *testing.T) {
	hot := resourcev1.DeviceTaint{Key: "example.com/hot", Effect: resourcev1.DeviceTaintEffectNoExecute}
	later := *hot.DeepCopy()
	later.TimeAdded = new(metav1.NewTime(noon))
	tests := map[string]struct {
		now, old []validation.Device
		want     []v1alpha1.TaintOperation
	}{
		"devices that swap places":            {[]validation.Device{device("b"), device("a", hot)}, []validation.Device{device("a", hot), device("b")}, []v1alpha1.TaintOperation{}},
		"names that swap":                     {[]validation.Device{device("b", hot), device("a")}, []validation.Device{device("a", hot), device("b")}, []v1alpha1.TaintOperation{v1alpha1.TaintAdd, v1alpha1.TaintRemove}},
		"a device that goes":                  {[]validation.Device{device("b")}, []validation.Device{device("a", hot), device("b")}, []v1alpha1.TaintOperation{v1alpha1.TaintRemove}},
		"a device by another name":            {[]validation.Device{device("c")}, []validation.Device{device("a", hot)}, []v1alpha1.TaintOperation{v1alpha1.TaintRemove}},
		"another time":                        {[]validation.Device{device("a", later)}, []validation.Device{device("a", hot)}, []v1alpha1.TaintOperation{v1alpha1.TaintChange}},
		"one of two that are the same goes":   {[]validation.Device{device("a", hot)}, []validation.Device{device("a", hot, hot)}, []v1alpha1.TaintOperation{v1alpha1.TaintRemove}},
		"a slice that is created":             {[]validation.Device{device("a", hot), device("b", hot)}, nil, []v1alpha1.TaintOperation{v1alpha1.TaintAdd}},
		"two devices of one name in what was": {[]validation.Device{device("a", hot)}, []validation.Device{device("a"), device("a", hot)}, []v1alpha1.TaintOperation{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			require.ElementsMatch(t, tt.want, operations(SliceWrites("gpu.example.com", tt.now, tt.old)))
		})
	}
}

func TestDevicesOfOneNameInWhatWasAreOne(t *testing.T) {
	hot := resourcev1.DeviceTaint{Key: "example.com/hot", Effect: resourcev1.DeviceTaintEffectNoExecute}
	slow := resourcev1.DeviceTaint{Key: "example.com/slow", Effect: resourcev1.DeviceTaintEffectNoSchedule}
	old := []validation.Device{device("a", hot), device("a", slow)}
	require.Empty(t, SliceWrites("gpu.example.com", []validation.Device{device("a", slow, hot)}, old))
	gone := SliceWrites("gpu.example.com", nil, old)
	require.Len(t, gone, 2)
	require.Equal(t, 1, gone[0].Times)
	require.Equal(t, 1, gone[1].Times)
}

func TestWritesOfARule(t *testing.T) {
	none := rule(driver("gpu"), "k", "v", resourcev1.DeviceTaintEffectNone)
	later := none.DeepCopy()
	later.Taint.TimeAdded = new(metav1.NewTime(noon.Add(time.Hour)))
	tests := map[string]struct {
		change RuleChange
		want   []v1alpha1.TaintOperation
		path   string
	}{
		"none":                      {RuleChange{}, []v1alpha1.TaintOperation{}, ""},
		"its creation adds":         {RuleChange{New: none}, []v1alpha1.TaintOperation{v1alpha1.TaintAdd}, "spec.taint"},
		"its end removes":           {RuleChange{Old: none}, []v1alpha1.TaintOperation{v1alpha1.TaintRemove}, "spec.taint"},
		"the same":                  {RuleChange{Old: none, New: none.DeepCopy()}, []v1alpha1.TaintOperation{}, ""},
		"another value changes":     {RuleChange{Old: none, New: rule(driver("gpu"), "k", "w", "None")}, []v1alpha1.TaintOperation{v1alpha1.TaintChange}, "spec.taint"},
		"another time changes":      {RuleChange{Old: none, New: later}, []v1alpha1.TaintOperation{v1alpha1.TaintChange}, "spec.taint"},
		"other devices change":      {RuleChange{Old: none, New: rule(driver("nic"), "k", "v", "None")}, []v1alpha1.TaintOperation{v1alpha1.TaintChange}, "spec.deviceSelector"},
		"every device changes":      {RuleChange{Old: none, New: rule(&resourcev1.DeviceTaintSelector{}, "k", "v", "None")}, []v1alpha1.TaintOperation{v1alpha1.TaintChange}, "spec.deviceSelector"},
		"C25 no device changes":     {RuleChange{Old: rule(&resourcev1.DeviceTaintSelector{}, "k", "v", "None"), New: rule(nil, "k", "v", "None")}, []v1alpha1.TaintOperation{v1alpha1.TaintChange}, "spec.deviceSelector"},
		"a field that is not known": {RuleChange{Old: none, New: none.DeepCopy(), Reselected: true}, []v1alpha1.TaintOperation{v1alpha1.TaintChange}, "spec.deviceSelector"},
		"another owner removes":     {RuleChange{Old: none, New: none.DeepCopy(), Adopted: true}, []v1alpha1.TaintOperation{v1alpha1.TaintRemove}, "metadata.ownerReferences"},
		"one that is created has the owners that it has": {RuleChange{New: none, Adopted: true}, []v1alpha1.TaintOperation{v1alpha1.TaintAdd}, "spec.taint"},
		"another effect is another":                      {RuleChange{Old: none, New: rule(driver("gpu"), "k", "v", "NoExecute")}, []v1alpha1.TaintOperation{v1alpha1.TaintRemove, v1alpha1.TaintAdd}, "spec.taint"},
		"another key is another":                         {RuleChange{Old: none, New: rule(driver("gpu"), "l", "v", "None")}, []v1alpha1.TaintOperation{v1alpha1.TaintRemove, v1alpha1.TaintAdd}, "spec.taint"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			writes := tt.change.Writes()
			require.Equal(t, tt.want, operations(writes))
			for _, w := range writes {
				require.Equal(t, tt.path, w.Path.String())
			}
		})
	}
}
