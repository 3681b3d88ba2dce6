package devices

import (
	"bufio"
	"cmp"
	"context"
	"io"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

// WriteTable writes a row for each device, and nothing if there is none. A wide table has full
// cells and the origin of values; else the longest cells are truncated at the beginning to fit
// into cli.Width.
func (v *Inventory) WriteTable(ctx context.Context, w io.Writer, wide bool) error {
	rows := v.Rows(ctx, wide)
	if ctx.Err() != nil || len(rows) == 0 {
		return ctx.Err()
	}
	return cli.Write(w, wide, Head(wide), rows)
}

// Head returns the head of a table.
func Head(wide bool) []string {
	head := []string{"DRIVER/POOL/DEVICE", "NODE", "TAINTS", "PATCHES", "CLAIM", "POD"}
	if wide {
		head = append(head, "ATTRIBUTES", "CAPACITY")
	}
	return head
}

// Rows returns the rows of a table, the first cell of each being driver/pool/device. They are
// incomplete if ctx is done.
func (v *Inventory) Rows(ctx context.Context, wide bool) [][]string {
	row := shortRow
	if wide {
		row = wideRow
	}
	var rows [][]string
	for d := range v.Devices(ctx) {
		rows = append(rows, row(d))
	}
	return rows
}

// WriteNames writes driver/pool/device of each device on a line.
func (v *Inventory) WriteNames(ctx context.Context, w io.Writer) error {
	out := bufio.NewWriter(w)
	for d := range v.Devices(ctx) {
		_, _ = out.WriteString(d.Device.String() + "\n") // Flush tells.
	}
	return cmp.Or(ctx.Err(), out.Flush())
}

func shortRow(d *Device) []string {
	return []string{
		d.Device.String(), node(d), cli.Summed(shortTaints(d)), cli.Summed(patches(d)) + limitedMark(d), cli.Summed(claims(d)), cli.Summed(consumers(d, false)),
	}
}

func wideRow(d *Device) []string {
	return []string{
		d.Device.String(), node(d), cli.Joined(taintsWithSource(d)), cli.Joined(patches(d)) + limitedMark(d), cli.Joined(claims(d)), cli.Joined(consumers(d, true)),
		cli.Joined(attributes(d)), cli.Joined(capacity(d)),
	}
}
