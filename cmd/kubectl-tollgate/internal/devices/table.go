package devices

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

// WriteTable writes a row for each device, and nothing if there is none. A wide table has full
// cells and the origin of values; else the longest cells are truncated at the beginning to fit
// into cli.Width.
func (v *Inventory) WriteTable(ctx context.Context, w io.Writer, wide bool) error {
	rows := v.rows(ctx, wide)
	if ctx.Err() != nil || len(rows) == 0 {
		return ctx.Err()
	}
	return cli.Write(w, wide, head(wide), rows)
}

func head(wide bool) []string {
	columns := []string{"DRIVER/POOL/DEVICE", "NODE", "TAINTS", "PATCHES", "CLAIM", "POD"}
	if wide {
		columns = append(columns, "ATTRIBUTES", "CAPACITY")
	}
	return columns
}

// rows returns the rows of a table, the first cell of each being driver/pool/device. They are
// incomplete if ctx is done.
func (v *Inventory) rows(ctx context.Context, wide bool) [][]string {
	list := cli.Summed
	if wide {
		list = cli.Joined
	}
	var rows [][]string
	for d := range v.Devices(ctx) {
		patches := slices.Clone(d.Patches)
		for _, f := range d.Failed {
			patches = append(patches, f.Patch+" (failed)")
		}
		limited := ""
		if d.Limited != "" { // The device keeps its published values.
			limited = " (limited)"
		}
		claims, consumers := d.users(wide)
		row := []string{d.Device.String(), d.Node(), list(d.taints(wide)), list(patches) + limited, list(claims), list(consumers)}
		if wide {
			row = append(row, list(d.AttributeTexts()), list(d.CapacityTexts()))
		}
		rows = append(rows, row)
	}
	return rows
}

// WriteNames writes driver/pool/device of each device on a line.
func (v *Inventory) WriteNames(ctx context.Context, w io.Writer) error {
	out := bufio.NewWriter(w)
	for d := range v.Devices(ctx) {
		_, _ = out.WriteString(d.Device.String() + "\n") // Flush returns the error.
	}
	return cmp.Or(ctx.Err(), out.Flush())
}

// Node returns the nodes that can use the device: the name of a node, <all>, <selector> or
// <none>.
func (d *Device) Node() string {
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

// taints returns the taints of a device, ordered by the strength of their effects, either with
// their origin or without the domains of their keys.
func (d *Device) taints(full bool) []string {
	strength := map[resourcev1.DeviceTaintEffect]int{resourcev1.DeviceTaintEffectNoExecute: 2, resourcev1.DeviceTaintEffectNoSchedule: 1}
	sorted := slices.Clone(d.Taints)
	slices.SortStableFunc(sorted, func(a, b sliceview.Taint) int { return cmp.Compare(strength[b.Effect], strength[a.Effect]) })
	var texts []string
	for _, t := range sorted {
		text := (&corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)}).ToString()
		if _, name, found := strings.Cut(text, "/"); found && !full {
			text = name
		}
		switch {
		case full && t.Patch != "":
			text += " (patch " + t.Patch + ")"
		case full && t.Rule != "":
			text += " (rule " + t.Rule + ")"
		}
		texts = append(texts, text)
	}
	return texts
}

// users returns the claims that have the device and their consumers, with or without namespaces.
func (d *Device) users(namespaced bool) (claims, consumers []string) {
	for _, claim := range d.Claims {
		text := claim.Namespace + "/" + claim.Name
		if claim.AdminAccess {
			text += " (admin)"
		}
		claims = append(claims, text)
		for _, name := range claim.Consumers {
			if namespaced {
				name = claim.Namespace + "/" + name
			}
			consumers = append(consumers, name)
		}
	}
	return claims, consumers
}

// AttributeTexts returns the set and removed attributes of a device, each with its patch:
// driver/model=A100 (patch racks).
func (d *Device) AttributeTexts() []string {
	return valueTexts(d.Attributes, func(a *resourcev1.DeviceAttribute) string {
		switch {
		case a.StringValue != nil:
			return quoted(*a.StringValue)
		case a.VersionValue != nil:
			return quoted(*a.VersionValue)
		case a.IntValue != nil:
			return strconv.FormatInt(*a.IntValue, 10)
		case a.BoolValue != nil:
			return strconv.FormatBool(*a.BoolValue)
		case len(a.IntValues) > 0:
			return fmt.Sprint(a.IntValues)
		case len(a.BoolValues) > 0:
			return fmt.Sprint(a.BoolValues)
		default:
			list := slices.Concat(a.StringValues, a.VersionValues)
			for i, text := range list {
				list[i] = quoted(text)
			}
			return fmt.Sprint(list)
		}
	})
}

// CapacityTexts is AttributeTexts for the capacity.
func (d *Device) CapacityTexts() []string {
	return valueTexts(d.Capacity, func(c *resourcev1.DeviceCapacity) string { return c.Value.String() })
}

// valueTexts returns the set and the removed values of a device, with their patches.
func valueTexts[V any](values []slicepatch.Value[V], text func(*V) string) []string {
	var all []string
	for _, v := range values {
		word := string(v.Name) + " removed"
		if v.Now != nil {
			word = string(v.Name) + "=" + text(v.Now)
		}
		if v.Patch != "" {
			word += " (patch " + v.Patch + ")"
		}
		all = append(all, word)
	}
	return all
}

// quoted quotes ambiguous text.
func quoted(text string) string {
	if text == "" || strings.ContainsAny(text, " ,()[]\"") || strings.ContainsFunc(text, policy.Unprintable) {
		return strconv.QuoteToGraphic(text)
	}
	return text
}
