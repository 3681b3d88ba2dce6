package devices

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/policy/slicepatch"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

// description is the part of a document that is not in the slice.
type description struct {
	Driver string `json:"driver"`
	Pool   string `json:"pool"`
	Name   string `json:"name"`
	// ResourceSlice is the name of the device's slice.
	ResourceSlice string `json:"resourceSlice"`
	// Patches are the patches that select the device, in order of precedence.
	Patches    []string                            `json:"patches,omitempty"`
	Failed     []sliceview.Failure                 `json:"failed,omitempty"`
	Limited    string                              `json:"limited,omitempty"`
	Attributes []value[resourcev1.DeviceAttribute] `json:"attributes,omitempty"`
	Capacity   []value[resourcev1.DeviceCapacity]  `json:"capacity,omitempty"`
	Taints     []taintWithSource                   `json:"taints,omitempty"`
	Claims     []Claim                             `json:"claims,omitempty"`
}

// origin is the source of a value: kind Driver, ResourceSlicePatch or DeviceTaintRule.
type origin struct {
	Kind string `json:"kind"`
	Name string `json:"name,omitempty"`
}

type value[V any] struct {
	Name   string `json:"name"`
	Source origin `json:"source"`
	// Value is absent and Removed is true if a patch removed it.
	Value   *V   `json:"value,omitempty"`
	Removed bool `json:"removed,omitempty"`
	// Published is the driver's value, if a patch overrides it.
	Published *V         `json:"published,omitempty"`
	Overruled []offer[V] `json:"overruled,omitempty"`
}

type offer[V any] struct {
	Patch   string `json:"patch"`
	Value   *V     `json:"value,omitempty"`
	Removed bool   `json:"removed,omitempty"`
}

type taintWithSource struct {
	resourcev1.DeviceTaint `json:",inline"`

	Source origin `json:"source"`
}

// WriteYAML writes a List of the merged slices that have devices to show, and under "devices" the
// origin of their values.
func (v *Inventory) WriteYAML(ctx context.Context, w io.Writer) error {
	return v.writeList(ctx, w, &listFormat{
		head: "apiVersion: v1\nkind: List\nmetadata: {}\n", part: "%s:",
		before: "\n- ", end: "\n", empty: " []\n",
		marshal: func(item any) string {
			text, _ := yaml.Marshal(item) // The types of the items have no errors, here and below.
			return strings.ReplaceAll(strings.TrimSuffix(string(text), "\n"), "\n", "\n  ")
		},
	})
}

// WriteJSON is WriteYAML in JSON.
func (v *Inventory) WriteJSON(ctx context.Context, w io.Writer) error {
	return v.writeList(ctx, w, &listFormat{
		head: `{
    "apiVersion": "v1",
    "kind": "List",
    "metadata": {}`, part: ",\n    %q: [",
		before: "\n        ", between: ",", end: "\n    ]", empty: "]", tail: "\n}\n",
		marshal: func(item any) string {
			text, _ := json.MarshalIndent(item, "        ", "    ")
			return string(text)
		},
	})
}

// listFormat is the text of a List: its head, the beginning of a part, the text before and between
// items, the ends of a part with and without items, and the tail.
type listFormat struct {
	head, part, before, between, end, empty, tail string
	marshal                                       func(item any) string
}

// writeList writes a List. Its items are generated while they are written, so that only one pool is in
// memory.
func (v *Inventory) writeList(ctx context.Context, w io.Writer, f *listFormat) error {
	out := bufio.NewWriter(w)
	_, _ = out.WriteString(f.head) // Flush returns the error, here and below.
	for _, part := range []struct {
		name  string
		items func(pool []*Device) []any
	}{{"items", slicesOf}, {"devices", descriptionsOf}} {
		_, _ = fmt.Fprintf(out, f.part, part.name)
		between, end := "", f.empty
		for pool := range v.byPool(ctx) {
			for _, item := range part.items(pool) {
				_, _ = out.WriteString(between + f.before + f.marshal(item))
				between, end = f.between, f.end
			}
		}
		_, _ = out.WriteString(end)
	}
	_, _ = out.WriteString(f.tail)
	return cmp.Or(ctx.Err(), out.Flush())
}

// slicesOf returns the merged slices of the devices of a pool, whole, by name.
func slicesOf(pool []*Device) []any {
	found := map[string]*resourcev1.ResourceSlice{}
	for _, d := range pool {
		found[d.Slice.Name] = d.Slice
	}
	var items []any
	for _, name := range slices.Sorted(maps.Keys(found)) {
		slice := *found[name]
		slice.APIVersion, slice.Kind = resourcev1.SchemeGroupVersion.String(), "ResourceSlice"
		items = append(items, &slice)
	}
	return items
}

// descriptionsOf returns the descriptions of the devices of a pool.
func descriptionsOf(pool []*Device) []any {
	var items []any
	for _, d := range pool {
		out := &description{
			Driver: d.Device.Driver, Pool: d.Device.Pool, Name: d.Device.Name, ResourceSlice: d.Slice.Name,
			Patches: d.Patches, Failed: d.Failed, Limited: d.Limited, Attributes: valuesOf(d.Attributes), Capacity: valuesOf(d.Capacity), Claims: d.Claims,
		}
		for _, t := range d.Taints {
			source := originOf(t.Patch)
			if t.Rule != "" {
				source = origin{"DeviceTaintRule", t.Rule}
			}
			out.Taints = append(out.Taints, taintWithSource{t.DeviceTaint, source})
		}
		items = append(items, out)
	}
	return items
}

func originOf(patch string) origin {
	if patch == "" {
		return origin{Kind: "Driver"}
	}
	return origin{"ResourceSlicePatch", patch}
}

func valuesOf[V any](list []slicepatch.Value[V]) []value[V] {
	var values []value[V]
	for _, in := range list {
		out := value[V]{Name: string(in.Name), Source: originOf(in.Patch), Value: in.Now, Removed: in.Now == nil}
		if in.Patch != "" {
			out.Published = in.Published
		}
		for _, o := range in.Overruled {
			out.Overruled = append(out.Overruled, offer[V]{o.Patch, o.Value, o.Value == nil})
		}
		values = append(values, out)
	}
	return values
}
