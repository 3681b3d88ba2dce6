package preview

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// Taint is a taint on the command line. In a removal, an empty Effect matches all, and the value
// is ignored.
type Taint struct{ Key, Value, Effect string }

// String returns the taint in the syntax of the command line.
func (t Taint) String() string {
	text := t.Key
	if t.Value != "" {
		text += "=" + t.Value
	}
	if t.Effect != "" {
		text += ":" + t.Effect
	}
	return text
}

// matches reports whether the taint, to be removed, is one with a key and an effect.
func (t Taint) matches(key, effect string) bool {
	return t.Key == key && (t.Effect == "" || t.Effect == effect)
}

// onDevice returns the taint of a device.
func (t Taint) onDevice() resourcev1.DeviceTaint {
	return resourcev1.DeviceTaint{Key: t.Key, Value: t.Value, Effect: resourcev1.DeviceTaintEffect(t.Effect)}
}

// Changes are taints to add and to remove.
type Changes struct{ Add, Remove []Taint }

// The valid effects of nodes and devices.
var (
	OfNodes   = []string{"NoSchedule", "PreferNoSchedule", "NoExecute"}
	OfDevices = []string{"None", "NoSchedule", "NoExecute"}
)

// IsTaint reports whether an argument is a taint, not the name of a node.
func IsTaint(argument string) bool {
	return strings.ContainsAny(argument, ":=") || strings.HasSuffix(argument, "-")
}

// Parse parses arguments such as key=value:NoExecute, key:NoExecute- and key-. Effects are the
// valid ones.
func Parse(arguments, effects []string) (Changes, error) {
	var changes Changes
	for _, argument := range arguments {
		text, removes := strings.CutSuffix(argument, "-")
		taint, err := parse(text, removes, effects)
		if err != nil {
			return Changes{}, fmt.Errorf("taint %q: %w", argument, err)
		}
		if removes {
			changes.Remove = append(changes.Remove, taint)
			continue
		}
		same := func(t Taint) bool { return t.Key == taint.Key && t.Effect == taint.Effect }
		if slices.ContainsFunc(changes.Add, same) {
			return Changes{}, fmt.Errorf("taint %q: there is one with that key and effect before it, want each once", argument)
		}
		changes.Add = append(changes.Add, taint)
	}
	for _, taint := range changes.Add {
		if slices.ContainsFunc(changes.Remove, func(t Taint) bool { return t.matches(taint.Key, taint.Effect) }) {
			return Changes{}, fmt.Errorf("taint %q: it is to come and to go, want one of both", taint)
		}
	}
	return changes, nil
}

// ParseRemovals is Parse for removals, with or without a dash at the end.
func ParseRemovals(arguments, effects []string) ([]Taint, error) {
	taints := make([]Taint, 0, len(arguments))
	for _, argument := range arguments {
		taint, err := parse(strings.TrimSuffix(argument, "-"), true, effects)
		if err != nil {
			return nil, fmt.Errorf("taint %q: %w", argument, err)
		}
		taints = append(taints, taint)
	}
	return taints, nil
}

func parse(text string, removes bool, effects []string) (Taint, error) {
	var taint Taint
	var found bool
	text, taint.Effect, found = strings.Cut(text, ":")
	taint.Key, taint.Value, _ = strings.Cut(text, "=")
	if problems := validation.IsQualifiedName(taint.Key); len(problems) > 0 {
		return Taint{}, fmt.Errorf("key %q: %s", taint.Key, strings.Join(problems, "; "))
	}
	if problems := validation.IsValidLabelValue(taint.Value); len(problems) > 0 {
		return Taint{}, fmt.Errorf("value %q: %s", taint.Value, strings.Join(problems, "; "))
	}
	if removes && !found {
		return taint, nil
	}
	if !slices.Contains(effects, taint.Effect) {
		return Taint{}, fmt.Errorf("effect is %q, want key=value:EFFECT with one of %s", taint.Effect, strings.Join(effects, ", "))
	}
	return taint, nil
}

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
// Names of drivers and devices have no slash; those of pools may.
func (t *Target) Take(arguments []string, isTaint func(string) bool) ([]string, error) {
	if len(arguments) == 0 || isTaint(arguments[0]) {
		if t.Empty() {
			return nil, errors.New("no devices are named: want DRIVER/POOL/DEVICE, or one of --driver, --pool, --device, --class and --selector")
		}
		return arguments, nil
	}
	name := arguments[0]
	if t.Driver != "" || t.Pool != "" || t.Device != "" {
		return nil, fmt.Errorf("%q names devices, and so do --driver, --pool and --device: want one of both", name)
	}
	driver, pool, hasPool := strings.Cut(name, "/")
	t.Driver, t.Pool = driver, pool
	at := strings.LastIndex(pool, "/")
	if at >= 0 {
		t.Pool, t.Device = pool[:at], pool[at+1:]
	}
	switch {
	case t.Driver == "" || hasPool && t.Pool == "" || at >= 0 && t.Device == "":
		return nil, fmt.Errorf("device %q: want DRIVER, DRIVER/POOL or DRIVER/POOL/DEVICE", name)
	case strings.Contains(name, "*"):
		return nil, fmt.Errorf("device %q: there are no wildcards, leave out the pool or the device to mean all of them", name)
	}
	return arguments[1:], nil
}

// changes reads the name of the devices, then the taints.
func (t *Target) changes(arguments []string) (Changes, error) {
	rest, err := t.Take(arguments, IsTaint)
	if err != nil {
		return Changes{}, err
	}
	changes, err := Parse(rest, OfDevices)
	if err == nil && len(changes.Add)+len(changes.Remove) == 0 {
		err = errors.New("no taint is given, want KEY[=VALUE]:EFFECT")
	}
	return changes, err
}

// Empty reports whether the target has no field.
func (t *Target) Empty() bool {
	return t.Driver == "" && t.Pool == "" && t.Device == "" && !t.Conditional()
}

// Conditional reports whether the target has a class or selectors.
func (t *Target) Conditional() bool { return t.Class != "" || len(t.Selectors) > 0 }

// String returns the target for messages: gpu.example.com/node-7/gpu-0, with * for all, and class
// and expressions in parentheses.
func (t *Target) String() string {
	names := strings.TrimRight(cmp.Or(t.Driver, "*")+"/"+cmp.Or(t.Pool, "*")+"/"+cmp.Or(t.Device, "*"), "*/")
	var conditions []string
	if t.Class != "" {
		conditions = append(conditions, "class "+t.Class)
	}
	conditions = append(conditions, t.Selectors...)
	if len(conditions) == 0 {
		return names
	}
	return strings.TrimSpace(names + " (" + strings.Join(conditions, ", ") + ")")
}

// DeviceSelector returns the selector of a DeviceTaintRule for the names.
func (t *Target) DeviceSelector() *resourcev1.DeviceTaintSelector {
	return &resourcev1.DeviceTaintSelector{Driver: optional(t.Driver), Pool: optional(t.Pool), Device: optional(t.Device)}
}

// Filter returns the filter of a ResourceSlicePatch for the target.
func (t *Target) Filter() *v1alpha1.DevicePatchFilter {
	filter := &v1alpha1.DevicePatchFilter{
		DeviceClassName: optional(t.Class), Driver: optional(t.Driver), Pool: optional(t.Pool), Device: optional(t.Device),
	}
	for _, expression := range t.Selectors {
		filter.Selectors = append(filter.Selectors, v1alpha1.PatchedDeviceSelector{CEL: &v1alpha1.CELDeviceSelector{Expression: expression}})
	}
	return filter
}

func optional(name string) *string {
	if name == "" {
		return nil
	}
	return &name
}

// patch returns the ResourceSlicePatch that gives taints to the target.
func (t *Target) patch(meta metav1.ObjectMeta, taints ...Taint) *v1alpha1.ResourceSlicePatch {
	patch := &v1alpha1.ResourceSlicePatch{ObjectMeta: meta}
	patch.Spec.Devices.Filter = t.Filter()
	for _, taint := range taints {
		patch.Spec.Devices.Taints = append(patch.Spec.Devices.Taints, v1alpha1.PatchedTaint{
			Key: taint.Key, Value: taint.Value, Effect: resourcev1.DeviceTaintEffect(taint.Effect),
		})
	}
	return patch
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
