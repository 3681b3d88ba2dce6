package sliceview_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

const modelPatches = 6

// patchDice makes patches, classes, and slices whose devices have what those ask for.
type patchDice struct{ dice }

func (d patchDice) slice() *resourcev1.ResourceSlice {
	s := d.dice.slice()
	for i := range s.Spec.Devices {
		d.describe(s.Spec.Driver, &s.Spec.Devices[i])
	}
	return s
}

func (d patchDice) describe(driver string, device *resourcev1.Device) {
	if d.IntN(4) > 0 {
		name := d.one("n", driver+"/n")
		device.Attributes[resourcev1.QualifiedName(name)] = resourcev1.DeviceAttribute{IntValue: new(d.Int64N(3))}
	}
	if d.IntN(2) == 0 {
		device.Attributes["x/a"] = resourcev1.DeviceAttribute{IntValue: new(d.Int64N(3))}
	}
	if d.IntN(2) == 0 {
		device.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"c": {Value: *quantity.NewQuantity(d.Int64N(3), quantity.DecimalSI)}}
	}
}

func (d patchDice) patch() *v1alpha1.ResourceSlicePatch {
	name := "p" + strconv.Itoa(d.IntN(modelPatches))
	p := &v1alpha1.ResourceSlicePatch{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name + d.one("-first", "-second")), CreationTimestamp: metav1.NewTime(start.Add(time.Duration(d.IntN(2)) * time.Second)),
	}}
	p.Spec.Devices = v1alpha1.DevicePatch{
		Filter: d.filter(), Priority: d.Int32N(2),
		Attributes: map[resourcev1.QualifiedName]v1alpha1.NullableDeviceAttribute{},
		Capacity:   map[resourcev1.QualifiedName]v1alpha1.PatchedCapacity{},
	}
	for range d.IntN(3) {
		value := v1alpha1.NullableDeviceAttribute{NullValue: &v1alpha1.NullValue{}}
		if d.IntN(3) > 0 {
			value = v1alpha1.NullableDeviceAttribute{IntValue: new(d.Int64N(3))}
		}
		p.Spec.Devices.Attributes[resourcev1.QualifiedName(d.one("d/n", "e/n", "x/a", "x/b"))] = value
	}
	if d.IntN(3) == 0 {
		name := resourcev1.QualifiedName(d.one("d/c", "x/c"))
		p.Spec.Devices.Capacity[name] = v1alpha1.PatchedCapacity{Value: quantity.NewQuantity(d.Int64N(3), quantity.DecimalSI)}
	}
	if d.IntN(6) == 0 {
		for i := range 28 {
			p.Spec.Devices.Attributes[resourcev1.QualifiedName(fmt.Sprintf("y/n%d", i))] = v1alpha1.NullableDeviceAttribute{IntValue: new(int64(i))}
		}
	}
	if d.IntN(12) == 0 {
		p.Spec.Devices.Attributes["bare"] = v1alpha1.NullableDeviceAttribute{IntValue: new(int64(1))}
	}
	for range d.IntN(3) {
		p.Spec.Devices.Taints = append(p.Spec.Devices.Taints, v1alpha1.PatchedTaint{Key: d.one("p", "q"), Effect: "NoSchedule"})
	}
	return p
}

// rule may be one that was written out for a patch.
func (d patchDice) rule() *resourcev1.DeviceTaintRule {
	r := d.dice.rule()
	if d.IntN(2) == 0 {
		written := writtenFor(d.one("p0-first", "p1-first", "p2-second", "nobody", ""), r.Name, nil)
		r.Labels = written.Labels
		if d.IntN(4) > 0 {
			r.OwnerReferences = written.OwnerReferences
		}
	}
	return r
}

func (d patchDice) filter() *v1alpha1.DevicePatchFilter {
	if d.IntN(8) == 0 {
		return nil
	}
	names := only(d.one("-", "-", "d", "d", "e"), d.one("-", "-", "p", "p", "q"), d.one("-", "-", "-", "dev-0", "dev-1"))
	f := &v1alpha1.DevicePatchFilter{Driver: names.Driver, Pool: names.Pool, Device: names.Device}
	if d.IntN(3) == 0 {
		f.DeviceClassName = new(d.one("c0", "c1"))
	}
	for range d.IntN(3) {
		f.Selectors = append(f.Selectors, v1alpha1.PatchedDeviceSelector{CEL: &v1alpha1.CELDeviceSelector{Expression: d.expression()}})
	}
	return f
}

// expression is one that a patch may have.
func (d patchDice) expression() string {
	return d.one(
		`device.driver == "e"`, `"n" in device.attributes[device.driver]`, `device.attributes["d"].n == 1`, `device.attributes[device.driver].n == 2`,
		`device.attributes["x"].a == 1`, `device.capacity[device.driver].c.compareTo(quantity("1")) == 0`, `device.attributes[device.driver].model`)
}

func (d patchDice) class() *resourcev1.DeviceClass {
	c := deviceClass(d.one("c0", "c1"))
	for range d.IntN(3) {
		expression := d.expression()
		if d.IntN(40) == 0 {
			expression = exploding
		}
		c.Spec.Selectors = append(c.Spec.Selectors, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: expression}})
	}
	return c
}

const exploding = `[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, a + b + c + d > 0))))`

// write makes a random change to the objects and returns what tells a view of it.
func (d patchDice) write(o objects) func(v *sliceview.View) {
	switch d.IntN(10) {
	case 0:
		name := "s" + strconv.Itoa(d.IntN(modelSlices))
		delete(o.slices, name)
		return func(v *sliceview.View) { v.DeleteSlice(name) }
	case 1, 2, 3:
		s := d.slice()
		if old := o.slices[s.Name]; old != nil && d.IntN(2) == 0 {
			s = old.DeepCopy() // written again, with another taint perhaps
			if len(s.Spec.Devices) > 0 {
				s.Spec.Devices[0].Taints = []resourcev1.DeviceTaint{d.taint()}
			}
		}
		o.slices[s.Name] = s
		return func(v *sliceview.View) { v.SetSlice(s) }
	case 4:
		r := d.rule()
		o.rules[r.Name] = r
		return func(v *sliceview.View) { v.SetRule(r) }
	case 5:
		name := d.one("c0", "c1")
		if d.IntN(2) == 0 {
			delete(o.classes, name)
			return func(v *sliceview.View) { v.DeleteClass(name) }
		}
		c := d.class()
		o.classes[c.Name] = c
		return func(v *sliceview.View) { v.SetClass(c) }
	case 6:
		name := "p" + strconv.Itoa(d.IntN(modelPatches))
		delete(o.patches, name)
		return func(v *sliceview.View) { v.DeletePatch(name) }
	default:
		p := d.patch()
		if old := o.patches[p.Name]; old != nil && d.IntN(2) == 0 {
			p.Spec.Devices.Filter = old.Spec.Devices.Filter // other values for the same devices
		}
		o.patches[p.Name] = p
		return func(v *sliceview.View) { v.SetPatch(p) }
	}
}

func newObjects() objects {
	return objects{
		slices: map[string]*resourcev1.ResourceSlice{}, rules: map[string]*resourcev1.DeviceTaintRule{},
		patches: map[string]*v1alpha1.ResourceSlicePatch{}, classes: map[string]*resourcev1.DeviceClass{},
	}
}

// TestModelPatches makes random changes and compares what is listed, what handlers hold
// and what is reported with what is computed from scratch; and in the end with a view that
// was told of what is left in another order.
func TestModelPatches(t *testing.T) {
	t.Parallel()
	seed := number(t, seedEnv, rand.Uint64())
	operations := number(t, operationsEnv, modelOperations)
	t.Logf("%d operations, %s=%d", operations, seedEnv, seed)
	for made := uint64(0); made < operations; made += operationsAWorld {
		synctest.Test(t, func(t *testing.T) {
			modelPatchesWorld(t, patchDice{dice{rand.New(rand.NewPCG(seed, made))}})
		})
	}
}

func modelPatchesWorld(t *testing.T, d patchDice) {
	t.Helper()
	w, o := newWorld(t), newObjects()
	recorders := []*recorder{w.subscribe()}
	w.synced()
	for made := range operationsAWorld {
		d.write(o)(w.view)
		switch d.IntN(20) {
		case 0:
			if len(recorders) < modelSubscribers {
				recorders = append(recorders, w.subscribe())
			}
		case 1:
			w.view.Get("s" + strconv.Itoa(d.IntN(modelSlices)))
		case 2:
			synctest.Wait()
		}
		if made%(2*operationsARound) == 0 {
			right(t, w.view, o)
			for _, r := range recorders {
				r.holds(w)
			}
		}
	}
	again := sliceview.New()
	for _, tell := range d.tellings(o) {
		tell(again)
	}
	right(t, again, o)
}

// right requires a view to show and to report what it has to.
func right(tb testing.TB, v *sliceview.View, o objects) {
	tb.Helper()
	want := o.expected()
	require.Equal(tb, want.devices, shown(v.List()))
	for name, counts := range want.reports {
		r, found := v.Report(name, 1)
		require.True(tb, found)
		require.Equal(tb, [3]int{r.Matched, r.Failed, r.Limited}, counts, name)
		require.Len(tb, r.FirstMatched, min(1, r.Matched))
		require.Len(tb, r.FirstFailed, min(1, r.Failed))
		require.Len(tb, r.FirstLimited, min(1, r.Limited))
	}
}

// holds requires the recorder to hold just what the view lists.
func (r *recorder) holds(w *world) {
	w.tb.Helper()
	synctest.Wait()
	r.mutex.Lock()
	defer r.mutex.Unlock()
	require.Empty(w.tb, r.problems)
	require.Equal(w.tb, shown(w.view.List()), shown(slices.Collect(maps.Values(r.held))))
}

// tellings returns what tells a view of all objects, in a random order.
func (d patchDice) tellings(o objects) []func(*sliceview.View) {
	var all []func(*sliceview.View)
	for _, s := range o.slices {
		all = append(all, func(v *sliceview.View) { v.SetSlice(s) })
	}
	for _, r := range o.rules {
		all = append(all, func(v *sliceview.View) { v.SetRule(r) })
	}
	for _, p := range o.patches {
		all = append(all, func(v *sliceview.View) { v.SetPatch(p) })
	}
	for _, c := range o.classes {
		all = append(all, func(v *sliceview.View) { v.SetClass(c) })
	}
	d.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// The model would prove little if its patches met nothing.
func TestModelPatchesMeet(t *testing.T) {
	t.Parallel()
	d, o := patchDice{dice{rand.New(rand.NewPCG(1, 2))}}, newObjects()
	var sum [3]int
	for range 1000 {
		d.write(o)
		for _, counts := range o.expected().reports {
			for i := range sum {
				sum[i] += counts[i]
			}
		}
	}
	for i, least := range []int{5000, 500, 200} {
		require.Greater(t, sum[i], least, "%v", sum)
	}
}

// TestPatchesConcurrently has all kinds of events, readers and handlers on goroutines of
// their own, as real informers do.
func TestPatchesConcurrently(t *testing.T) {
	t.Parallel()
	seed := number(t, seedEnv, rand.Uint64())
	t.Logf("%s=%d", seedEnv, seed)
	for round := range uint64(4) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			recorders := []*recorder{w.subscribe(), w.subscribe()}
			var writers sync.WaitGroup
			for i := range uint64(4) {
				writers.Go(func() {
					d, own := patchDice{dice{rand.New(rand.NewPCG(seed, round*4+i))}}, newObjects()
					for range 100 {
						d.write(own)(w.view)
						w.view.List()
						w.view.Report("p0", 2)
					}
				})
			}
			w.synced()
			writers.Wait()
			for _, r := range recorders {
				r.holds(w)
			}
		})
	}
}
