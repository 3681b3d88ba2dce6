package devices

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

// node returns the nodes that can use a device.
func node(d *Device) string {
	spec := &d.Slice.Spec
	name, all, selector := spec.NodeName, spec.AllNodes, spec.NodeSelector
	if spec.PerDeviceNodeSelection != nil && *spec.PerDeviceNodeSelection {
		name, all, selector = d.Spec.NodeName, d.Spec.AllNodes, d.Spec.NodeSelector
	}
	switch {
	case name != nil && *name != "":
		return *name
	case all != nil && *all:
		return "<all>"
	case selector != nil:
		return "<selector>"
	default:
		return cli.None
	}
}

// taints returns the taints of a device, ordered by the strength of their effects.
func taints(d *Device) []sliceview.Taint {
	rank := func(t sliceview.Taint) int {
		return slices.Index([]resourcev1.DeviceTaintEffect{resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoSchedule}, t.Effect)
	}
	list := slices.Clone(d.Taints)
	slices.SortStableFunc(list, func(a, b sliceview.Taint) int { return order(rank(a)) - order(rank(b)) })
	return list
}

// order puts what was not found last.
func order(index int) int {
	const last = 2
	if index < 0 {
		return last
	}
	return index
}

func taint(t *resourcev1.DeviceTaint) string {
	if t.Value == "" {
		return t.Key + ":" + string(t.Effect)
	}
	return t.Key + "=" + t.Value + ":" + string(t.Effect)
}

// shortTaints returns taints without the domains of keys.
func shortTaints(d *Device) []string {
	var list []string
	for _, t := range taints(d) {
		text := taint(&t.DeviceTaint)
		if _, name, found := strings.Cut(text, "/"); found {
			text = name
		}
		list = append(list, text)
	}
	return list
}

func taintsWithSource(d *Device) []string {
	var list []string
	for _, t := range taints(d) {
		text := taint(&t.DeviceTaint)
		switch {
		case t.Patch != "":
			text += " (patch " + t.Patch + ")"
		case t.Rule != "":
			text += " (rule " + t.Rule + ")"
		}
		list = append(list, text)
	}
	return list
}

// patches returns the patches that select a device, and those that failed on it.
func patches(d *Device) []string {
	list := slices.Clone(d.Patches)
	for _, f := range d.Failed {
		list = append(list, f.Patch+" (failed)")
	}
	return list
}

// limitedMark marks a device that keeps its published values.
func limitedMark(d *Device) string {
	if d.Limited == "" {
		return ""
	}
	return " (limited)"
}

func claims(d *Device) []string {
	var list []string
	for i := range d.Claims {
		text := d.Claims[i].Namespace + "/" + d.Claims[i].Name
		if d.Claims[i].AdminAccess {
			text += " (admin)"
		}
		list = append(list, text)
	}
	return list
}

// consumers returns the consumers of the claims, with or without namespaces.
func consumers(d *Device, namespaced bool) []string {
	var list []string
	for i := range d.Claims {
		for _, name := range d.Claims[i].Consumers {
			if namespaced {
				name = d.Claims[i].Namespace + "/" + name
			}
			list = append(list, name)
		}
	}
	return list
}

func attributes(d *Device) []string {
	return values(d.Attributes, attribute)
}

func capacity(d *Device) []string {
	return values(d.Capacity, func(c *resourcev1.DeviceCapacity) string { return c.Value.String() })
}

// values returns the set and the removed values of a device, with their patches.
func values[V any](list []slicepatch.Value[V], text func(*V) string) []string {
	var all []string
	for i := range list {
		v := &list[i]
		words := string(v.Name)
		if v.Now == nil {
			words += " removed"
		} else {
			words += "=" + text(v.Now)
		}
		if v.Patch != "" {
			words += " (patch " + v.Patch + ")"
		}
		all = append(all, words)
	}
	return all
}

func attribute(a *resourcev1.DeviceAttribute) string {
	switch {
	case a.StringValue != nil:
		return plain(*a.StringValue)
	case a.VersionValue != nil:
		return plain(*a.VersionValue)
	case a.IntValue != nil:
		return strconv.FormatInt(*a.IntValue, 10)
	case a.BoolValue != nil:
		return strconv.FormatBool(*a.BoolValue)
	case len(a.IntValues) > 0:
		return fmt.Sprint(a.IntValues)
	case len(a.BoolValues) > 0:
		return fmt.Sprint(a.BoolValues)
	default:
		texts := make([]string, 0, len(a.StringValues)+len(a.VersionValues))
		for _, text := range slices.Concat(a.StringValues, a.VersionValues) {
			texts = append(texts, plain(text))
		}
		return "[" + strings.Join(texts, " ") + "]"
	}
}

// plain quotes ambiguous text.
func plain(text string) string {
	if text == "" || strings.ContainsAny(text, " ,()[]\"") || strings.ContainsFunc(text, policy.Unprintable) {
		return strconv.QuoteToGraphic(text)
	}
	return text
}
