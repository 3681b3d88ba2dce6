package dra

import (
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nameAttribute holds the name of a device.
const nameAttribute = "name"

// Class returns the class of a driver's devices.
func Class(driver string) *resourcev1.DeviceClass {
	return &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: driver},
		Spec:       resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{selector("device.driver == %q", driver)}},
	}
}

// Slice returns a slice that is the whole of its pool, in the pool's first
// generation.
func Slice(driver, pool string, devices ...resourcev1.Device) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: driver + "-" + pool},
		Spec: resourcev1.ResourceSliceSpec{
			Driver:   driver,
			Pool:     resourcev1.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: 1},
			AllNodes: new(true),
			Devices:  devices,
		},
	}
}

// Device returns a device with taints.
func Device(name string, taints ...resourcev1.DeviceTaint) resourcev1.Device {
	return resourcev1.Device{
		Name:       name,
		Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{nameAttribute: {StringValue: &name}},
		Taints:     taints,
	}
}

// Taint returns a taint without a time.
func Taint(key, value string, effect resourcev1.DeviceTaintEffect) resourcev1.DeviceTaint {
	return resourcev1.DeviceTaint{Key: key, Value: value, Effect: effect}
}

// Rule returns a rule that taints all devices of a driver.
func Rule(name, driver string, taint resourcev1.DeviceTaint) *resourcev1.DeviceTaintRule {
	return &resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.DeviceTaintRuleSpec{
			DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: &driver},
			Taint:          taint,
		},
	}
}

func selector(format string, args ...any) resourcev1.DeviceSelector {
	return resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf(format, args...)}}
}
