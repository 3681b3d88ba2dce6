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
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
)

// Taint is a taint of a node or a device on the command line. In a removal, an empty Effect matches
// all, and the value is ignored.
type Taint resourcev1.DeviceTaint

// String returns the taint in the syntax of the command line.
func (t Taint) String() string {
	text := t.Key
	if t.Value != "" {
		text += "=" + t.Value
	}
	if t.Effect != "" {
		text += ":" + string(t.Effect)
	}
	return text
}

// goes reports whether a removal removes the taint.
func (t Taint) goes(removal Taint) bool {
	return t.Key == removal.Key && (removal.Effect == "" || t.Effect == removal.Effect)
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

// parse parses arguments such as key=value:NoExecute, key:NoExecute- and key-. Effects are the
// valid ones. All taints are removals if removal is true, with or without a dash at the end.
func parse(arguments, effects []string, removal bool) (Changes, error) {
	var changes Changes
	for _, argument := range arguments {
		text, dashed := strings.CutSuffix(argument, "-")
		taint, err := parseTaint(text, dashed || removal, effects)
		if err != nil {
			return Changes{}, fmt.Errorf("taint %q: %w", argument, err)
		}
		if dashed || removal {
			changes.Remove = append(changes.Remove, taint)
			continue
		}
		if slices.ContainsFunc(changes.Add, taint.goes) {
			return Changes{}, fmt.Errorf("taint %q: there is one with that key and effect before it, want each once", argument)
		}
		changes.Add = append(changes.Add, taint)
	}
	for _, taint := range changes.Add {
		if slices.ContainsFunc(changes.Remove, taint.goes) {
			return Changes{}, fmt.Errorf("taint %q: it is to come and to go, want one of both", taint)
		}
	}
	return changes, nil
}

func parseTaint(text string, removes bool, effects []string) (Taint, error) {
	text, effect, found := strings.Cut(text, ":")
	key, value, _ := strings.Cut(text, "=")
	if problems := validation.IsQualifiedName(key); len(problems) > 0 {
		return Taint{}, fmt.Errorf("key %q: %s", key, strings.Join(problems, "; "))
	}
	if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
		return Taint{}, fmt.Errorf("value %q: %s", value, strings.Join(problems, "; "))
	}
	if (found || !removes) && !slices.Contains(effects, effect) {
		return Taint{}, fmt.Errorf("effect is %q, want key=value:EFFECT with one of %s", effect, strings.Join(effects, ", "))
	}
	return Taint{Key: key, Value: value, Effect: resourcev1.DeviceTaintEffect(effect)}, nil
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
	if cmp.Or(t.Driver, t.Pool, t.Device) != "" {
		return nil, fmt.Errorf("%q names devices, and so do --driver, --pool and --device: want one of both", name)
	}
	var hasPool bool
	t.Driver, t.Pool, hasPool = strings.Cut(name, "/")
	at := strings.LastIndex(t.Pool, "/")
	if at >= 0 {
		t.Pool, t.Device = t.Pool[:at], t.Pool[at+1:]
	}
	switch {
	case t.Driver == "" || hasPool && t.Pool == "" || at >= 0 && t.Device == "":
		return nil, fmt.Errorf("device %q: want DRIVER, DRIVER/POOL or DRIVER/POOL/DEVICE", name)
	case strings.Contains(name, "*"):
		return nil, fmt.Errorf("device %q: there are no wildcards, leave out the pool or the device to mean all of them", name)
	}
	return arguments[1:], nil
}

// changes reads the name of the devices, then the taints, which are all removals if removal is true.
// A single argument is then a taint if flags select the devices.
func (t *Target) changes(arguments []string, removal bool) (Changes, error) {
	form, alone := "KEY[=VALUE]:EFFECT", false
	if removal {
		form, alone = "KEY[:EFFECT]", len(arguments) == 1 && !t.Empty()
	}
	rest, err := t.Take(arguments, func(argument string) bool { return alone || IsTaint(argument) })
	if err != nil {
		return Changes{}, err
	}
	changes, err := parse(rest, OfDevices, removal)
	if err == nil && len(changes.Add)+len(changes.Remove) == 0 {
		err = errors.New("no taint is given, want " + form)
	}
	return changes, err
}

// Empty reports whether the target has no field.
func (t *Target) Empty() bool {
	return cmp.Or(t.Driver, t.Pool, t.Device) == "" && !t.Conditional()
}

// Conditional reports whether the target has a class or selectors.
func (t *Target) Conditional() bool { return t.Class != "" || len(t.Selectors) > 0 }

// String returns the target for messages.
func (t *Target) String() string { return devicesOf(t.Filter()) }

// devicesOf returns the devices of a filter for messages: gpu.example.com/node-7/gpu-0, with * for all,
// and class and expressions in parentheses.
func devicesOf(filter *v1alpha1.DevicePatchFilter) string {
	var names []string
	for _, name := range []*string{filter.Driver, filter.Pool, filter.Device} {
		names = append(names, cmp.Or(ptr.Deref(name, ""), "*"))
	}
	text := strings.TrimRight(strings.Join(names, "/"), "*/")
	var conditions []string
	if class := ptr.Deref(filter.DeviceClassName, ""); class != "" {
		conditions = append(conditions, "class "+class)
	}
	for _, selector := range filter.Selectors {
		if selector.CEL != nil {
			conditions = append(conditions, selector.CEL.Expression)
		}
	}
	if len(conditions) > 0 {
		text = strings.TrimSpace(text + " (" + strings.Join(conditions, ", ") + ")")
	}
	return text
}

// DeviceSelector returns the selector of a DeviceTaintRule for the names.
func (t *Target) DeviceSelector() *resourcev1.DeviceTaintSelector {
	return new(slicepatch.NamesOf(t.Filter()))
}

// RuleSpec returns the spec of the DeviceTaintRule that gives a taint to the names.
func (t *Target) RuleSpec(taint Taint) resourcev1.DeviceTaintRuleSpec {
	return resourcev1.DeviceTaintRuleSpec{DeviceSelector: t.DeviceSelector(), Taint: resourcev1.DeviceTaint(taint)}
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
		patch.Spec.Devices.Taints = append(patch.Spec.Devices.Taints, v1alpha1.PatchedTaint(taint))
	}
	return patch
}
