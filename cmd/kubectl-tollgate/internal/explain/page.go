package explain

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/tracker"
)

// page is an explanation as text: the answer, and then sections of tables and facts. Lines that
// are not wide have at most cli.Width characters. Errors are those of Flush.
type page struct {
	out  *bufio.Writer
	wide bool
	now  time.Time
	// title is that of the current section.
	title string
}

// writeText writes an explanation for people at now. A wide text has full names and times.
func writeText(w io.Writer, answer explanation, wide bool, now time.Time) error {
	p := &page{out: bufio.NewWriter(w), wide: wide, now: now}
	answer.write(p)
	return p.out.Flush()
}

// paragraph writes text after first, by which the lines below are indented.
func (p *page) paragraph(first, text string) {
	width := cli.Width
	if p.wide {
		width = math.MaxInt
	}
	for _, line := range cli.Indented(first, strings.Repeat(" ", len(first)), text, width) {
		p.line(line)
	}
}

func (p *page) line(text string) { _, _ = fmt.Fprintln(p.out, cli.Clean(text)) }

// fact writes a name and values, and nothing without a value.
func (p *page) fact(name string, values ...string) {
	if value := strings.Join(values, ", "); value != "" {
		p.paragraph(fmt.Sprintf("%-14s ", name+":"), value)
	}
}

// item writes text about a subject into the section with a title, which begins with the first item.
func (p *page) item(title, of, text string) {
	if p.title != title {
		p.section(title)
	}
	first := of + ": "
	if !p.wide && utf8.RuneCountInString(first+text) > cli.Width {
		p.line(of + ":")
		first = "    "
	}
	p.paragraph(first, text)
}

// begin writes the answer.
func (p *page) begin(answer string) {
	p.paragraph("", answer)
	p.line("")
}

// section begins a section.
func (p *page) section(title string) {
	p.title = title
	p.line("")
	p.line(title)
}

// row has the cells of a row of a table.
type row []string

// table writes a section with a row for each item, and nothing without items. The head has the
// names of the columns, with commas between them. Rows may lack their last cells, and empty columns
// are left out.
func table[T any](p *page, title, head string, items []T, cellsOf func(T) row) {
	if len(items) == 0 {
		return
	}
	rows := [][]string{strings.Split(head, ", ")}
	filled := make([]bool, len(rows[0]))
	for _, item := range items {
		cells := make(row, len(filled))
		copy(cells, cellsOf(item))
		for at, cell := range cells {
			filled[at] = filled[at] || cell != ""
			cells[at] = cmp.Or(cell, cli.None)
		}
		rows = append(rows, cells)
	}
	for i := range rows {
		at := -1
		rows[i] = slices.DeleteFunc(rows[i], func(string) bool { at++; return !filled[at] })
	}
	p.section(title)
	_ = cli.Write(p.out, p.wide, rows[0], rows[1:])
}

// when returns a relative time and, in a wide page, the time.
func (p *page) when(at *metav1.Time) string {
	if at == nil {
		return ""
	}
	text := in(at.Time, p.now)
	if p.wide {
		text += " (" + at.UTC().Format(time.RFC3339) + ")"
	}
	return text
}

// in returns a time relative to now: in 4m10s, or 5s ago. Future times are rounded up.
func in(at, now time.Time) string {
	if at.After(now) {
		return "in " + duration.HumanDuration((at.Sub(now) + time.Second - 1).Truncate(time.Second))
	}
	return ago(at, now)
}

func ago(at, now time.Time) string {
	return duration.HumanDuration(max(now.Sub(at), 0)) + " ago"
}

// tolerationWords returns what a toleration of a pod tolerates: dedicated=x:NoSchedule, sla<5,
// every taint for 60s.
func tolerationWords(t corev1.Toleration) string {
	text := cmp.Or(t.Key, "every key")
	if t.Key == "" && t.Effect == "" {
		text = "every taint"
	}
	if t.Operator != corev1.TolerationOpExists {
		signs := map[corev1.TolerationOperator]string{corev1.TolerationOpLt: "<", corev1.TolerationOpGt: ">"}
		text += cmp.Or(signs[t.Operator], "=") + t.Value // Equal is the default.
	}
	text = strings.TrimSuffix(text, "=")
	if t.Effect != "" {
		text += ":" + string(t.Effect)
	}
	if t.TolerationSeconds != nil {
		text += fmt.Sprintf(" for %ds", *t.TolerationSeconds)
	}
	return text
}

// ofDriver begins the words for a taint that a driver published.
const ofDriver = "its driver in "

// sourceWords returns the object in which a taint was written.
func sourceWords(source tracker.Source) string {
	words := map[tracker.SourceKind]string{tracker.SourceNode: "node", tracker.SourceSlice: ofDriver + "ResourceSlice"}
	return cmp.Or(words[source.Kind], source.Kind.Object()) + " " + source.Name
}

// bracketed returns text in brackets after a blank, and nothing for no text.
func bracketed(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// sentence returns words with a capital at the beginning and a full stop.
func sentence(words string) string {
	return strings.ToUpper(words[:1]) + words[1:] + "."
}

// effectWords returns what taints do: those that evict, and those that keep pods or claims off.
func effectWords(taints []Taint, off string) string {
	text := ""
	add := func(effect corev1.TaintEffect, verb, who string) {
		var texts []string
		for _, t := range taints {
			if t.effect == effect {
				texts = append(texts, t.Taint+bracketed(t.Source))
			}
		}
		if n := len(texts); n > 0 {
			text += fmt.Sprintf("; %s %s %s %s %s", cli.Plural(n, "taint", "taints"), cli.And(texts), cli.Plural(n, verb+"s", verb), who, cli.Plural(n, "it", "them"))
		}
	}
	add(corev1.TaintEffectNoExecute, "evict", "who does not tolerate")
	add(corev1.TaintEffectNoSchedule, "keep", off+" off that do not tolerate")
	return strings.TrimPrefix(text, "; ")
}
