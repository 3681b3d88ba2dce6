package evictions

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

// Lines writes a line for each change, under one head. It is not safe for concurrent use.
type Lines struct{ table *cli.Lines }

// NewLines returns Lines that write to out.
func NewLines(out io.Writer) *Lines {
	return &Lines{cli.NewLines(out, false, []string{"TIME", "NAMESPACE", "POD", "WHEN", "STATE", "REASON"})}
}

// Write writes the result of Log.Next.
func (l *Lines) Write(changed []Eviction, now time.Time) error {
	if len(changed) == 0 {
		return nil
	}
	rows := make([][]string, 0, len(changed))
	for i := range changed {
		rows = append(rows, append([]string{now.UTC().Format(time.TimeOnly)}, changeRow(&changed[i], now)...))
	}
	if err := l.table.Write(rows); err != nil {
		return fmt.Errorf("write changes: %w", err)
	}
	return nil
}

// changeRow is shortRow that also accepts Gone and Staying.
func changeRow(e *Eviction, now time.Time) []string {
	if e.State != Gone && e.State != Staying {
		return shortRow(e, now)
	}
	return []string{e.Namespace, e.Name, "-", string(e.State), cause(&e.Because[0])}
}

// WriteEvents writes one line of JSON for each change.
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
