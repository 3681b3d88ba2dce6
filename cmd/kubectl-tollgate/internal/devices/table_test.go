package devices

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

// table returns the lines of a table.
func table(t *testing.T, v *Inventory, wide bool) []string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, v.WriteTable(t.Context(), &out, wide))
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

func TestATableThatFitsIsNotCut(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{
		"DRIVER/POOL/DEVICE            NODE   TAINTS  PATCHES         CLAIM   POD",
		"nic.example.com/rack-1/nic-1  <all>  <none>  racks (failed)  <none>  <none>",
		"nic.example.com/rack-1/nic-2  <all>  <none>  racks (failed)  <none>  <none>",
	}, table(t, cluster(t, Filter{Driver: "nic.example.com"}), false))
}

// cellsOf returns the cells of a line.
func cellsOf(line string) []string {
	var cells []string
	for cell := range strings.SplitSeq(line, "  ") {
		if cell = strings.TrimSpace(cell); cell != "" {
			cells = append(cells, cell)
		}
	}
	return cells
}

func TestATableWithoutDevicesHasNoHead(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, NewTable(Filter{}).WriteTable(t.Context(), &out, false))
	require.Empty(t, out.String())
}

func TestNoNameMakesATableTooWide(t *testing.T) {
	t.Parallel()
	v := NewTable(Filter{})
	long := strings.Repeat("x", 63)
	for i := range 3 {
		v.AddSlice(&resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{
			Driver: long, NodeName: &long, Pool: resourcev1.ResourcePool{Name: strings.Repeat("ä", 200) + strconv.Itoa(i)},
			Devices: []resourcev1.Device{{Name: long, Taints: []resourcev1.DeviceTaint{{Key: long + "/" + long, Value: long, Effect: "NoSchedule"}}}},
		}})
	}
	lines := table(t, v, false)
	require.Len(t, lines, 4)
	for _, line := range lines {
		require.LessOrEqual(t, utf8.RuneCountInString(line), cli.Width)
		require.True(t, utf8.ValidString(line))
	}
}

func TestWriteNames(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, cluster(t, Filter{Tainted: true}).WriteNames(t.Context(), &out))
	require.Equal(t, "gpu.example.com/node-7/gpu-0\ngpu.example.com/node-7/gpu-1\n", out.String())
}

func TestWhoeverIsInterruptedIsNotToldHalfOfIt(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	v := cluster(t, Filter{})
	for name, write := range map[string]func(*bytes.Buffer) error{
		"table": func(out *bytes.Buffer) error { return v.WriteTable(ctx, out, false) },
		"names": func(out *bytes.Buffer) error { return v.WriteNames(ctx, out) },
		"YAML":  func(out *bytes.Buffer) error { return v.WriteYAML(ctx, out) },
		"JSON":  func(out *bytes.Buffer) error { return v.WriteJSON(ctx, out) },
	} {
		require.ErrorIs(t, write(&bytes.Buffer{}), context.Canceled, name)
	}
}

func TestCells(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct{ spec, node, attributes string }{
		"a node can be that of the device": {
			`{perDeviceNodeSelection: true, devices: [{name: a, nodeName: node-1}]}`, "node-1", "<none>",
		},
		"a device can be for some nodes": {
			`{perDeviceNodeSelection: true, devices: [{name: a, nodeSelector: {nodeSelectorTerms: []}}]}`, "<selector>", "<none>",
		},
		"a device can be for no node that is known here": {`{devices: [{name: a}]}`, "<none>", "<none>"},
		"attributes have all kinds of values": {
			`{nodeName: node-1, devices: [{name: a, attributes: {a: {int: -1}, b: {bool: false}, c: {version: 1.2.3}, d: {string: x}, e: {ints: [1, 2]}, f: {bools: [true]}, g: {strings: [x, z]}, h: {versions: [1.0.0]}}}]}`,
			"node-1", "a=-1, b=false, c=1.2.3, d=x, e=[1 2], f=[true], g=[x z], h=[1.0.0]",
		},
		"text that could be taken for something else is quoted": {
			`{nodeName: node-1, devices: [{name: a, attributes: {a: {string: ""}, b: {string: "x, y=1 (patch z)"}, c: {string: "\u001b[31m"}, d: {strings: ["x y", "z"]}}}]}`,
			"node-1", `a="", b="x, y=1 (patch z)", c="\x1b[31m", d=["x y" z]`,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			v := NewTable(Filter{})
			v.AddSlice(&resourcev1.ResourceSlice{Spec: *parsed[resourcev1.ResourceSliceSpec](t, []byte(c.spec))})
			for d := range v.Devices(t.Context()) {
				require.Equal(t, c.node, d.Node())
				require.Equal(t, c.attributes, cli.Joined(d.AttributeTexts()))
			}
			require.Equal(t, 1, v.matched)
		})
	}
}

func TestADeviceBeyondALimitIsMarked(t *testing.T) {
	t.Parallel()
	var attributes strings.Builder
	for i := range 32 {
		attributes.WriteString("      example.com/n" + strconv.Itoa(i) + ": {int: 1}\n")
	}
	v := inventory(t, Filter{}, `
kind: ResourceSlice
metadata: {name: s}
spec: {driver: d, nodeName: node-1, pool: {name: p, resourceSliceCount: 1}, devices: [{name: a, attributes: {own: {int: 1}}}]}
---
kind: ResourceSlicePatch
metadata: {name: large}
spec:
  devices:
    attributes:
`+attributes.String())
	require.Equal(t, []string{"d/p/a", "node-1", "<none>", "large (limited)", "<none>", "<none>"}, cellsOf(table(t, v, false)[1]))
	var out bytes.Buffer
	require.NoError(t, v.WriteYAML(t.Context(), &out))
	require.Contains(t, out.String(), "\n  limited: would have 33 attributes and capacities, of which 32 are allowed\n")
}

func TestWriteYAML(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, cluster(t, Filter{Device: "gpu-0"}).WriteYAML(t.Context(), &out))
	golden, err := os.ReadFile("testdata/gpu-0.yaml")
	require.NoError(t, err)
	require.Equal(t, string(golden), out.String())
}
