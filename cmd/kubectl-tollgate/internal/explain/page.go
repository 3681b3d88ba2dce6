package explain

import (
	"bufio"
	"cmp"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
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

func (p *page) line(text string) { _, _ = p.out.WriteString(cli.Clean(text) + "\n") }

// fact writes a name and values, and nothing without a value.
func (p *page) fact(name string, values ...string) {
	const place = 14
	if value := strings.Join(values, ", "); value != "" {
		p.paragraph(name+":"+strings.Repeat(" ", max(place-len(name), 1)), value)
	}
}

// item writes text about a subject.
func (p *page) item(of, text string) {
	const indent = "    "
	first := of + ": "
	if p.wide || utf8.RuneCountInString(first)+utf8.RuneCountInString(text) <= cli.Width {
		p.line(first + strings.Join(strings.Fields(text), " "))
		return
	}
	p.line(of + ":")
	p.paragraph(indent, text)
}

// begin writes the answer.
func (p *page) begin(answer string) {
	p.paragraph("", answer)
	p.line("")
}

// section begins a section.
func (p *page) section(title string) {
	p.line("")
	p.line(title)
}

// table writes a section with a row for each item, and nothing without items. Empty columns are
// left out.
func table[T any](p *page, title string, head []string, items []T, row func(T) []string) {
	if len(items) == 0 {
		return
	}
	rows, filled := [][]string{slices.Clone(head)}, make([]bool, len(head))
	for _, item := range items {
		cells := row(item)
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
	switch {
	case at == nil:
		return ""
	case p.wide:
		return in(at.Time, p.now) + " (" + at.UTC().Format(time.RFC3339) + ")"
	default:
		return in(at.Time, p.now)
	}
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
	text := t.Key
	switch {
	case t.Key == "" && t.Effect == "":
		text = "every taint"
	case t.Key == "":
		text = "every key"
	}
	switch t.Operator {
	case corev1.TolerationOpExists:
	case corev1.TolerationOpLt:
		text += "<" + t.Value
	case corev1.TolerationOpGt:
		text += ">" + t.Value
	case corev1.TolerationOpEqual:
		fallthrough
	default: // Equal is the default.
		text += "=" + t.Value
	}
	text = strings.TrimSuffix(text, "=")
	if t.Effect != "" {
		text += ":" + string(t.Effect)
	}
	if t.TolerationSeconds != nil {
		text += " for " + strconv.FormatInt(*t.TolerationSeconds, 10) + "s"
	}
	return text
}

// tolerationOf returns a toleration of a request for devices as one of a pod.
func tolerationOf(t resourcev1.DeviceToleration) corev1.Toleration {
	return corev1.Toleration{
		Key: t.Key, Operator: corev1.TolerationOperator(t.Operator), Value: t.Value, Effect: corev1.TaintEffect(t.Effect), TolerationSeconds: t.TolerationSeconds,
	}
}

// ofDriver begins the words for a taint that a driver published.
const ofDriver = "its driver in "

// sourceWords returns the object in which a taint was written.
func sourceWords(source tracker.Source) string {
	prefix := map[tracker.SourceKind]string{
		tracker.SourceNode: "node ", tracker.SourceRule: "DeviceTaintRule ", tracker.SourcePatch: "ResourceSlicePatch ", tracker.SourceSlice: ofDriver + "ResourceSlice ",
	}
	return prefix[source.Kind] + source.Name
}

// sentence returns words with a capital at the beginning and a full stop.
func sentence(words string) string {
	return strings.ToUpper(words[:1]) + words[1:] + "."
}

// effectWords returns what taints do, by effect: those that evict, and those that keep pods or
// claims off.
func effectWords(taints map[corev1.TaintEffect][]string, off string) []string {
	var words []string
	for _, do := range []struct {
		effect    corev1.TaintEffect
		verb, who string
	}{{corev1.TaintEffectNoExecute, "evict", "who does not tolerate "}, {corev1.TaintEffectNoSchedule, "keep", off + " off that do not tolerate "}} {
		n := len(taints[do.effect])
		if n > 0 {
			words = append(words, cli.Plural(n, "taint ", "taints ")+cli.And(taints[do.effect])+" "+cli.Plural(n, do.verb+"s ", do.verb+" ")+do.who+cli.Plural(n, "it", "them"))
		}
	}
	return words
}
