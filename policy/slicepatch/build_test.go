package slicepatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// patch returns a patch with that name, whose spec.devices is written in YAML.
func patch(tb testing.TB, name, devices string) *v1alpha1.ResourceSlicePatch {
	tb.Helper()
	p := &v1alpha1.ResourceSlicePatch{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(start)}}
	require.NoError(tb, yaml.UnmarshalStrict([]byte(devices), &p.Spec.Devices))
	return p
}

func compiled(tb testing.TB, name, devices string) *Patch {
	tb.Helper()
	p, errs := Compile(patch(tb, name, devices), nil)
	require.Empty(tb, errs)
	return p
}

// deviceWith returns a device of which all but the name is written in YAML.
func deviceWith(tb testing.TB, text string) *resourcev1.Device {
	tb.Helper()
	d := &resourcev1.Device{Name: "gpu-0"}
	require.NoError(tb, yaml.UnmarshalStrict([]byte(text), d))
	return d
}

func classWith(expressions ...string) *Class {
	c := &resourcev1.DeviceClass{}
	for _, e := range expressions {
		c.Spec.Selectors = append(c.Spec.Selectors, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: e}})
	}
	return CompileClass(c)
}

// satisfies is Ask for a device that is the only one of its slice.
func (f *Filter) satisfies(class *Class, driver string, d *resourcev1.Device) (satisfied bool, err error) {
	devices := See(&resourcev1.ResourceSliceSpec{Driver: driver, Devices: []resourcev1.Device{*d}})
	f.Ask(class, devices, nil, func(_ int, yes bool, problem error) { satisfied, err = yes, problem })
	return satisfied, err
}

func selecting(text string) selector {
	return newSelector(&resourcev1.CELDeviceSelector{Expression: text})
}
