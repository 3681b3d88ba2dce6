package devices

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
	"github.com/tollgate-dev/tollgate/tracker/device"
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
		var claims, consumers []string
		for _, claim := range d.Claims {
			text := claim.Namespace + "/" + claim.Name
			if claim.AdminAccess {
				text += " (admin)"
			}
			claims = append(claims, text)
			for _, name := range claim.Consumers {
				if wide {
					name = claim.Namespace + "/" + name
				}
				consumers = append(consumers, name)
			}
		}
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
	slice := &d.Slice.Spec // Either the slice or each of its devices has the nodes.
	switch name := cmp.Or(slice.NodeName, d.Spec.NodeName); {
	case name != nil:
		return *name
	case cmp.Or(slice.AllNodes, d.Spec.AllNodes) != nil:
		return "<all>"
	case cmp.Or(slice.NodeSelector, d.Spec.NodeSelector) != nil:
		return "<selector>"
	default:
		return cli.None
	}
}

// taints returns the taints of a device, ordered by the strength of their effects, either with
// their origin or without the domains of their keys.
func (d *Device) taints(full bool) []string {
	strength := map[resourcev1.DeviceTaintEffect]int{resourcev1.DeviceTaintEffectNoExecute: 2, resourcev1.DeviceTaintEffectNoSchedule: 1}
	byStrength := func(a, b sliceview.Taint) int { return cmp.Compare(strength[b.Effect], strength[a.Effect]) }
	var texts []string
	for _, t := range slices.SortedStableFunc(slices.Values(d.Taints), byStrength) {
		text := (&corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)}).ToString()
		if !full {
			text = text[strings.Index(text, "/")+1:]
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

// AttributeTexts returns the set and removed attributes of a device, each with its patch:
// driver/model=A100 (patch racks).
func (d *Device) AttributeTexts() []string {
	return valueTexts(d.Attributes, func(a *resourcev1.DeviceAttribute) string {
		switch text := cmp.Or(a.StringValue, a.VersionValue); {
		case text != nil:
			return quoted(*text)
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

// Notes returns, a line each, facts that the last yielded devices do not show: why there are
// none, incomplete pools, and ignored objects.
func (v *Inventory) Notes() []string {
	var notes []string
	if v.matched == 0 {
		notes = append(notes, v.nothing())
	}
	const maxNamed = 5
	switch {
	case v.filter.Class == "":
	case v.class == nil:
		notes = append(notes, "there is no DeviceClass "+v.filter.Class)
	case v.class.failed > 0:
		notes = append(notes, fmt.Sprintf("DeviceClass %s: an expression failed on %d devices, which are not shown; on %s",
			v.filter.Class, v.class.failed, v.class.problem))
	}
	var lost []string // claims with devices that are not published any more
	for _, id := range slices.SortedFunc(maps.Keys(v.claims), device.Compare) {
		if publishes(v.pools[device.ID{Driver: id.Driver, Pool: id.Pool}], id.Name) {
			continue
		}
		for _, c := range v.claims[id] {
			lost = append(lost, fmt.Sprintf("ResourceClaim %s/%s has device %s, which the newest ResourceSlices of its pool did not publish when they were read", c.Namespace, c.Name, id))
		}
	}
	for _, about := range []struct {
		objects string
		notes   []string
	}{
		{"pools", v.incomplete()},
		{"claims", lost},
		{"patches", slices.Sorted(slices.Values(v.invalid))},
		{"rules", slices.Sorted(slices.Values(v.unsupported))},
	} {
		for _, note := range about.notes[:min(len(about.notes), maxNamed)] {
			notes = append(notes, policy.Short(note, 512))
		}
		if more := len(about.notes) - maxNamed; more > 0 {
			notes = append(notes, "the same of "+strconv.Itoa(more)+" more "+about.objects)
		}
	}
	return notes
}

// nothing returns why there is no device: an unknown name in the filter, else that none matches.
func (v *Inventory) nothing() string {
	f := &v.filter
	driver := ""
	if f.Driver != "" {
		driver = " of driver " + f.Driver
	}
	published := false
	for _, pool := range v.pools {
		published = published || publishes(pool, f.Device)
	}
	switch {
	case len(v.pools) == 0 && f.Pool != "":
		return "no devices found: no ResourceSlice" + driver + " has pool " + f.Pool
	case len(v.pools) == 0:
		return "no devices found: there is no ResourceSlice" + driver
	case f.Device != "" && !published:
		return "no devices found: none is called " + f.Device
	case *f == Filter{}:
		return "no devices found"
	}
	var flags []string
	add := func(set bool, flag string) {
		if set {
			flags = append(flags, flag)
		}
	}
	add(f.Driver != "", "--driver "+f.Driver)
	add(f.Pool != "", "--pool "+f.Pool)
	add(f.Device != "", "--device "+f.Device)
	add(f.Class != "", "--class "+f.Class)
	add(f.Tainted, "--tainted")
	add(f.Patched, "--patched")
	return "no devices found: none satisfies " + strings.Join(flags, " ")
}

// publishes reports whether a slice of a pool has a device.
func publishes(pool map[string]*resourcev1.ResourceSlice, name string) bool {
	for _, slice := range pool {
		if hasDevice(slice, name) {
			return true
		}
	}
	return false
}

// incomplete returns the pools that lack slices of their generation: no scheduler allocates from
// them (DE-17). The first slice by name says how many there are.
func (v *Inventory) incomplete() []string {
	var notes []string
	for _, name := range slices.SortedFunc(maps.Keys(v.pools), device.Compare) {
		pool := v.pools[name]
		of := pool[slices.Min(slices.Collect(maps.Keys(pool)))].Spec.Pool
		if int64(len(pool)) != of.ResourceSliceCount {
			notes = append(notes, fmt.Sprintf("pool %s/%s is incomplete, no scheduler allocates from it: generation %d has %d of %d ResourceSlices",
				name.Driver, name.Pool, of.Generation, len(pool), of.ResourceSliceCount))
		}
	}
	return notes
}
