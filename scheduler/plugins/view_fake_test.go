package plugins

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

// cluster is what the view reads. It is written and read under its lock.
type cluster struct {
	lock     sync.Mutex
	unsynced bool
	slices   map[string]*resourcev1.ResourceSlice
	classes  map[string]*resourcev1.DeviceClass
	patches  map[string]*v1alpha1.ResourceSlicePatch
}

func newCluster() *cluster {
	return &cluster{
		slices:  map[string]*resourcev1.ResourceSlice{},
		classes: map[string]*resourcev1.DeviceClass{},
		patches: map[string]*v1alpha1.ResourceSlicePatch{},
	}
}

func (c *cluster) do(change func(*cluster)) {
	c.lock.Lock()
	defer c.lock.Unlock()
	change(c)
}

func (c *cluster) ListWithDeviceTaintRules() ([]*resourcev1.ResourceSlice, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	return slices.Collect(maps.Values(c.slices)), nil
}

func (c *cluster) HasSynced() bool {
	c.lock.Lock()
	defer c.lock.Unlock()
	return !c.unsynced
}

func (c *cluster) List() []*v1alpha1.ResourceSlicePatch {
	c.lock.Lock()
	defer c.lock.Unlock()
	return slices.Collect(maps.Values(c.patches))
}

// classLister is the cluster's classes: two Lists do not fit on one type.
type classLister struct{ *cluster }

func (l classLister) Get(name string) (*resourcev1.DeviceClass, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if class, found := l.classes[name]; found {
		return class, nil
	}
	return nil, apierrors.NewNotFound(resourcev1.Resource("deviceclasses"), name)
}

func (l classLister) List() ([]*resourcev1.DeviceClass, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	return slices.Collect(maps.Values(l.classes)), nil
}

// A patch of these tests gives every device of the driver that it is named after an
// attribute. Its label says which; with the annotation "class" the value is that of
// the class's label, and without such a class it does nothing.
const (
	valueLabel      = "value"
	classAnnotation = "class"
)

func patch(name string, generation int64, value string) *v1alpha1.ResourceSlicePatch {
	return &v1alpha1.ResourceSlicePatch{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID("uid-" + name), Generation: generation,
		Labels: map[string]string{valueLabel: value},
	}}
}

func ofClass(patch *v1alpha1.ResourceSlicePatch, class string) *v1alpha1.ResourceSlicePatch {
	patch.Annotations = map[string]string{classAnnotation: class}
	return patch
}

func class(name, version, value string) *resourcev1.DeviceClass {
	return &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID("uid-" + name), ResourceVersion: version,
		Labels: map[string]string{valueLabel: value},
	}}
}

func slice(name, driver string) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: driver, Pool: resourcev1.ResourcePool{Name: name},
			Devices: []resourcev1.Device{{Name: "device"}},
		},
	}
}

// values is a set: the attribute by driver.
type values map[string]string

func (v values) Apply(slice *resourcev1.ResourceSlice, _ sliceview.Patched) sliceview.Patched {
	value, found := v[slice.Spec.Driver]
	if !found {
		return sliceview.Patched{Slice: slice}
	}
	patched := slice.DeepCopy()
	for i := range patched.Spec.Devices {
		patched.Spec.Devices[i].Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			"value": {StringValue: new(value)},
		}
	}
	return sliceview.Patched{Slice: patched}
}

func (values) Has(uid types.UID) bool { return !strings.HasPrefix(string(uid), "uid-not-valid") }

func valuesOf(patches []*v1alpha1.ResourceSlicePatch, class findClass) values {
	set := values{}
	for _, patch := range patches {
		name, filtered := patch.GetAnnotations()[classAnnotation]
		if !filtered {
			set[patch.GetName()] = patch.GetLabels()[valueLabel]
		} else if found := class(name); found != nil {
			set[patch.GetName()] = found.Labels[valueLabel]
		}
	}
	return set
}

func compile(patches []*v1alpha1.ResourceSlicePatch, class findClass, _ patchSet) patchSet {
	return valuesOf(patches, class)
}

// seenBy is the attribute of each slice's device.
func seenBy(t *testing.T, v *view) map[string]string {
	t.Helper()
	slices, err := v.ListWithDeviceTaintRules()
	if err != nil {
		t.Fatal(err)
	}
	return attributes(slices)
}

func attributes(slices []*resourcev1.ResourceSlice) map[string]string {
	found := map[string]string{}
	for _, slice := range slices {
		found[slice.Name] = ptr.Deref(slice.Spec.Devices[0].Attributes["value"].StringValue, "")
	}
	return found
}
