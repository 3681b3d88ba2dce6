package preview

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// Target selects devices. Empty fields match all.
type Target struct {
	Driver, Pool, Device string
	// Class and Selectors need a ResourceSlicePatch; names only need a DeviceTaintRule.
	Class     string
	Selectors []string
}

// AddFlags adds the flags of a target.
func (t *Target) AddFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&t.Driver, "driver", "", "devices of this `driver`")
	flags.StringVar(&t.Pool, "pool", "", "devices in pools of this `name`, which several drivers may have")
	flags.StringVar(&t.Device, "device", "", "devices of this `name`, which several pools may have")
	flags.StringVar(&t.Class, "class", "", "devices that this `DeviceClass` selects (needs Tollgate)")
	flags.StringArrayVar(&t.Selectors, "selector", nil, "devices for which this CEL `expression` is true, as in a ResourceClaim (needs Tollgate; repeat it for several)")
}

// Take parses the first argument if it is the name of devices, DRIVER, DRIVER/POOL or
// DRIVER/POOL/DEVICE, and returns the rest. A taint differs from a driver by its effect or dash.
func (t *Target) Take(arguments []string, isTaint func(string) bool) ([]string, error) {
	if len(arguments) == 0 || isTaint(arguments[0]) {
		return arguments, t.check()
	}
	if t.Driver != "" || t.Pool != "" || t.Device != "" {
		return nil, fmt.Errorf("%q names devices, and so do --driver, --pool and --device: want one of both", arguments[0])
	}
	if err := t.parse(arguments[0]); err != nil {
		return nil, err
	}
	return arguments[1:], t.check()
}

// parse reads DRIVER/POOL/DEVICE. Names of drivers and devices have no slash; those of pools may.
func (t *Target) parse(text string) error {
	driver, rest, more := strings.Cut(text, "/")
	t.Driver = driver
	if at := strings.LastIndex(rest, "/"); at >= 0 {
		t.Pool, t.Device = rest[:at], rest[at+1:]
		if t.Pool == "" || t.Device == "" {
			return fmt.Errorf("device %q: want DRIVER, DRIVER/POOL or DRIVER/POOL/DEVICE", text)
		}
	} else {
		t.Pool = rest
	}
	if driver == "" || more && t.Pool == "" {
		return fmt.Errorf("device %q: want DRIVER, DRIVER/POOL or DRIVER/POOL/DEVICE", text)
	}
	if strings.Contains(text, "*") {
		return fmt.Errorf("device %q: there are no wildcards, leave out the pool or the device to mean all of them", text)
	}
	return nil
}

// Empty reports whether the target has no field.
func (t *Target) Empty() bool {
	return t.Driver == "" && t.Pool == "" && t.Device == "" && !t.Conditional()
}

func (t *Target) check() error {
	if t.Empty() {
		return errors.New("no devices are named: want DRIVER/POOL/DEVICE, or one of --driver, --pool, --device, --class and --selector")
	}
	return nil
}

// Conditional reports whether the target has a class or selectors.
func (t *Target) Conditional() bool { return t.Class != "" || len(t.Selectors) > 0 }

// String returns the target for messages: gpu.example.com/node-7/gpu-0, with * for all, and class
// and expressions in parentheses.
func (t *Target) String() string {
	names := strings.TrimRight(cmp.Or(t.Driver, "*")+"/"+cmp.Or(t.Pool, "*")+"/"+cmp.Or(t.Device, "*"), "*/")
	var asked []string
	if t.Class != "" {
		asked = append(asked, "class "+t.Class)
	}
	asked = append(asked, t.Selectors...)
	if len(asked) == 0 {
		return names
	}
	return strings.TrimSpace(names + " (" + strings.Join(asked, ", ") + ")")
}

// DeviceSelector returns the selector of a DeviceTaintRule for the names.
func (t *Target) DeviceSelector() *resourcev1.DeviceTaintSelector {
	return &resourcev1.DeviceTaintSelector{Driver: argsGiven(t.Driver), Pool: argsGiven(t.Pool), Device: argsGiven(t.Device)}
}

// Filter returns the filter of a ResourceSlicePatch for the target.
func (t *Target) Filter() *v1alpha1.DevicePatchFilter {
	filter := &v1alpha1.DevicePatchFilter{
		DeviceClassName: argsGiven(t.Class), Driver: argsGiven(t.Driver), Pool: argsGiven(t.Pool), Device: argsGiven(t.Device),
	}
	for _, expression := range t.Selectors {
		filter.Selectors = append(filter.Selectors, v1alpha1.PatchedDeviceSelector{CEL: &v1alpha1.CELDeviceSelector{Expression: expression}})
	}
	return filter
}

// TargetOf returns the target of a filter.
func TargetOf(filter *v1alpha1.DevicePatchFilter) Target {
	target := Target{
		Driver: ptr.Deref(filter.Driver, ""), Pool: ptr.Deref(filter.Pool, ""), Device: ptr.Deref(filter.Device, ""),
		Class: ptr.Deref(filter.DeviceClassName, ""),
	}
	for _, selector := range filter.Selectors {
		if selector.CEL != nil {
			target.Selectors = append(target.Selectors, selector.CEL.Expression)
		}
	}
	return target
}

func argsGiven(name string) *string {
	if name == "" {
		return nil
	}
	return &name
}
