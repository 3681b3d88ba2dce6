package evictiontable

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// Lines writes a line for each change, under one head. Columns are as wide as what was in
// them until then. It is not goroutine-safe.
type Lines struct {
	out    io.Writer
	colour bool
	widths []int
}

// NewLines returns lines that go to out.
func NewLines(out io.Writer, colour bool) *Lines { return &Lines{out: out, colour: colour} }

// Write writes what Log.Next returned.
func (l *Lines) Write(changed []Eviction, now time.Time) error {
	if len(changed) == 0 {
		return nil
	}
	rows := make([][]string, 0, 1+len(changed))
	if l.widths == nil {
		head := []string{"TIME", "NAMESPACE", "POD", "WHEN", "STATE", "REASON"}
		rows, l.widths = append(rows, head), make([]int, len(head))
	}
	heads := len(rows)
	for i := range changed {
		rows = append(rows, append([]string{now.UTC().Format(time.TimeOnly)}, changeRow(&changed[i], now)...))
	}
	for _, row := range rows {
		for i, cell := range row[:len(row)-1] {
			l.widths[i] = max(l.widths[i], utf8.RuneCountInString(cell))
		}
	}
	var text strings.Builder
	for i, row := range rows {
		line := l.line(row)
		if l.colour && i >= heads {
			line = painted(changed[i-heads].State, line)
		}
		text.WriteString(line + "\n")
	}
	if _, err := io.WriteString(l.out, text.String()); err != nil {
		return fmt.Errorf("write changes: %w", err)
	}
	return nil
}

func (l *Lines) line(row []string) string {
	var line strings.Builder
	for i, cell := range row {
		line.WriteString(cell)
		if i < len(row)-1 {
			line.WriteString(strings.Repeat(" ", l.widths[i]-utf8.RuneCountInString(cell)+2))
		}
	}
	return line.String()
}

// changeRow is shortRow for pods that do not have to leave any more as well.
func changeRow(e *Eviction, now time.Time) []string {
	if e.State != Gone && e.State != Staying {
		return shortRow(e, now)
	}
	return []string{e.Namespace, e.Name, "-", string(e.State), cause(&e.Because[0])}
}

// WriteEvents writes an item of a document for each change, each on a line.
func WriteEvents(w io.Writer, changed []Eviction, now time.Time) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	for i := range changed {
		it := itemOf(&changed[i])
		if err := encoder.Encode(struct {
			item

			Time string `json:"time"`
		}{it, now.UTC().Format(time.RFC3339)}); err != nil {
			return fmt.Errorf("write changes: %w", err)
		}
	}
	return nil
}
