package devices

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"

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
	out := bufio.NewWriter(w)
	_, _ = out.WriteString("apiVersion: v1\nkind: List\nmetadata: {}\n") // Flush returns the error, here and below.
	for _, part := range v.parts(ctx) {
		empty := true
		for item := range part.items {
			text, err := yaml.Marshal(item)
			if err != nil {
				return fmt.Errorf("write YAML: %w", err)
			}
			if empty {
				_, _ = out.WriteString(part.name + ":\n")
			}
			empty = false
			writeItem(out, text)
		}
		if empty {
			_, _ = out.WriteString(part.name + ": []\n")
		}
	}
	return cmp.Or(ctx.Err(), out.Flush())
}

// writeItem writes a document as an item of a list.
func writeItem(out *bufio.Writer, text []byte) {
	prefix := "- "
	for line := range bytes.Lines(text) {
		_, _ = out.WriteString(prefix)
		_, _ = out.Write(line)
		prefix = "  "
	}
}

// WriteJSON is WriteYAML in JSON.
func (v *Inventory) WriteJSON(ctx context.Context, w io.Writer) error {
	const indent = "    "
	out := bufio.NewWriter(w)
	_, _ = out.WriteString("{\n" + indent + `"apiVersion": "v1",` + "\n" + indent + `"kind": "List",` + "\n" + indent + `"metadata": {}`)
	for _, part := range v.parts(ctx) {
		_, _ = fmt.Fprintf(out, ",\n%s%q: [", indent, part.name)
		before, after := "\n", ""
		for item := range part.items {
			text, err := json.MarshalIndent(item, indent+indent, indent)
			if err != nil {
				return fmt.Errorf("write JSON: %w", err)
			}
			_, _ = out.WriteString(before + indent + indent + string(text))
			before, after = ",\n", "\n"+indent
		}
		_, _ = out.WriteString(after + "]")
	}
	_, _ = out.WriteString("\n}\n")
	return cmp.Or(ctx.Err(), out.Flush())
}

// part is a list in a document.
type part struct {
	name  string
	items func(yield func(any) bool)
}

// parts returns the parts of a document. They are generated while they are written, so that only
// one pool is in memory.
func (v *Inventory) parts(ctx context.Context) []part {
	return []part{
		{"items", func(yield func(any) bool) {
			for slice := range v.Slices(ctx) {
				object := *slice
				object.APIVersion, object.Kind = resourcev1.SchemeGroupVersion.String(), "ResourceSlice"
				if !yield(&object) {
					return
				}
			}
		}},
		{"devices", func(yield func(any) bool) {
			for d := range v.Devices(ctx) {
				if !yield(described(d)) {
					return
				}
			}
		}},
	}
}

func described(d *Device) *description {
	out := &description{
		Driver: d.Device.Driver, Pool: d.Device.Pool, Name: d.Device.Name, ResourceSlice: d.Slice.Name,
		Patches: d.Patches, Failed: d.Failed, Limited: d.Limited, Attributes: valuesOf(d.Attributes), Capacity: valuesOf(d.Capacity), Claims: d.Claims,
	}
	for _, t := range d.Taints {
		source := originOf(t.Patch)
		if t.Rule != "" {
			source = origin{Kind: "DeviceTaintRule", Name: t.Rule}
		}
		out.Taints = append(out.Taints, taintWithSource{t.DeviceTaint, source})
	}
	return out
}

func originOf(patch string) origin {
	if patch == "" {
		return origin{Kind: "Driver"}
	}
	return origin{Kind: "ResourceSlicePatch", Name: patch}
}

func valuesOf[V any](list []slicepatch.Value[V]) []value[V] {
	var values []value[V]
	for _, in := range list {
		out := value[V]{Name: string(in.Name), Source: originOf(in.Patch), Value: in.Now, Removed: in.Now == nil}
		if in.Patch != "" {
			out.Published = in.Published
		}
		for _, o := range in.Overruled {
			out.Overruled = append(out.Overruled, offer[V]{Patch: o.Patch, Value: o.Value, Removed: o.Value == nil})
		}
		values = append(values, out)
	}
	return values
}
