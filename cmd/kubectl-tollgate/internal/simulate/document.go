package simulate

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
)

// document is a simulation. It is no API object. Times are seconds from the beginning.
type document struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Begin      metav1.Time `json:"begin"`
	Steps      []stepDone  `json:"steps"`
	// Left are the pods that leave, in that order.
	Left []left `json:"left"`
	// Held are the pods that are due and held at the end, and Waiting those that are due after it.
	Held    []holding `json:"held"`
	Waiting []waiting `json:"waiting"`
	// Missing are sentences about what could not be read.
	Missing []string `json:"missing,omitempty"`
}

type stepDone struct {
	At   float64 `json:"at"`
	Step string  `json:"step"`
	// Effects are sentences about each object that the step writes.
	Effects []string `json:"effects"`
	// Refused are the reasons for which TaintPolicies refuse a write of the step.
	Refused  []string `json:"refused,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	// Applied is false if all writes of the step are refused.
	Applied bool `json:"applied"`
}

type podName struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Node      string `json:"node"`
}

func (p podName) String() string { return p.Namespace + "/" + p.Pod }

type left struct {
	podName

	At float64 `json:"at"`
	// Taint is the taint because of which the pod leaves, and the object that has it.
	Taint          string `json:"taint"`
	EvictionPolicy string `json:"evictionPolicy,omitempty"`
	How            string `json:"how"`
}

type holding struct {
	podName

	Since   float64         `json:"since"`
	State   evictions.State `json:"state"`
	Reason  string          `json:"reason"`
	By      string          `json:"by,omitempty"`
	Message string          `json:"message"`
}

type waiting struct {
	podName

	Due metav1.Time `json:"due"`
}

func nameOf(one *evictions.Eviction) podName { return podName{one.Namespace, one.Name, one.Node} }

// documentOf returns the document of a result.
func documentOf(r *result, begin time.Time, missing []string) *document {
	d := &document{
		APIVersion: "cli.tollgate.dev/v1alpha1", Kind: "Simulation", Begin: metav1.NewTime(begin), Missing: missing,
		Steps: []stepDone{}, Left: []left{}, Held: []holding{}, Waiting: []waiting{},
	}
	for _, o := range r.steps {
		d.Steps = append(d.Steps, stepDone{o.at.Seconds(), o.text, o.previews, o.refused, o.warnings, o.applied})
	}
	for _, gone := range r.gone {
		d.Left = append(d.Left, left{nameOf(&gone.Eviction), gone.at.Seconds(), because(&gone.Eviction), gone.Policy, gone.how})
	}
	for _, h := range r.held {
		d.Held = append(d.Held, holding{nameOf(&h.Eviction), h.since.Seconds(), h.State, h.Hold.Reason.Condition(), h.Hold.By, h.Hold.Why})
	}
	for _, one := range r.waiting {
		d.Waiting = append(d.Waiting, waiting{nameOf(&one), metav1.NewTime(one.At)})
	}
	return d
}

// line is a line of the text: a time, and what happens then.
type line struct {
	at   float64
	text string
	// detail is true for a line about the step above it.
	detail bool
}

// after returns a time as text.
func after(seconds float64) string {
	return "+" + time.Duration(seconds*float64(time.Second)).Round(time.Millisecond).String()
}

// write writes the document as text.
func (d *document) write(w io.Writer) error {
	lines := d.lines()
	width := 0
	for _, l := range lines {
		width = max(width, len(after(l.at)))
	}
	var text strings.Builder
	for _, l := range lines {
		first := fmt.Sprintf("%-*s  ", width, after(l.at))
		if l.detail {
			first = strings.Repeat(" ", len(first)+2)
		}
		for _, part := range cli.Indented(first, strings.Repeat(" ", len(first)+2), cli.Clean(l.text), cli.Width) {
			text.WriteString(part + "\n")
		}
	}
	if len(lines) > 0 {
		text.WriteString("\n")
	}
	text.WriteString(d.sums())
	if _, err := io.WriteString(w, text.String()); err != nil {
		return fmt.Errorf("write simulation: %w", err)
	}
	return nil
}

// lines returns the steps and the departures, by time. Pods that leave at the same time in the same
// way share a line.
func (d *document) lines() []line {
	var lines []line
	for _, s := range d.Steps {
		lines = append(lines, line{at: s.At, text: s.Step})
		for _, effect := range s.Effects {
			lines = append(lines, line{s.At, effect, true})
		}
		for _, refusal := range s.Refused {
			lines = append(lines, line{s.At, "refused: " + refusal, true})
		}
		for _, warning := range s.Warnings {
			lines = append(lines, line{s.At, "warning: " + warning, true})
		}
	}
	for _, group := range grouped(d.Left, func(a, b left) bool { return a.At == b.At && a.Taint == b.Taint && a.How == b.How }) {
		first := group[0]
		text := cli.Counted(len(group), "pod") + " " + cli.Plural(len(group), "is ", "are ") + first.How
		if first.EvictionPolicy != "" {
			text += " as EvictionPolicy/" + first.EvictionPolicy + " says"
		}
		lines = append(lines, line{at: first.At, text: text + ", because of " + first.Taint + ": " + cli.Few(names(group, left.String))})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	return lines
}

// sums returns the lines about all pods at the end.
func (d *document) sums() string {
	var text strings.Builder
	write := func(first string) {
		for _, part := range cli.Indented("", "  ", cli.Clean(first), cli.Width) {
			text.WriteString(part + "\n")
		}
	}
	last := 0.0
	if len(d.Left) > 0 {
		last = d.Left[len(d.Left)-1].At
	}
	switch len(d.Left) {
	case 0:
		write("No pod leaves.")
	default:
		write(fmt.Sprintf("%s, the last at %s.", cli.Counted(len(d.Left), "pod")+" "+cli.Plural(len(d.Left), "leaves", "leave"), after(last)))
	}
	held := slices.Clone(d.Held)
	slices.SortStableFunc(held, func(a, b holding) int { return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.By, b.By)) })
	for _, group := range grouped(held, func(a, b holding) bool { return a.Reason == b.Reason && a.By == b.By }) {
		by := ""
		if group[0].By != "" {
			by = " by " + group[0].By
		}
		write(fmt.Sprintf("%s %s%s (%s) from %s on: %s: %s", cli.Counted(len(group), "pod"), strings.ToLower(string(group[0].State)), by, group[0].Reason,
			after(group[0].Since), group[0].Message, cli.Few(names(group, holding.String))))
	}
	if len(d.Waiting) > 0 {
		first := slices.MinFunc(d.Waiting, func(a, b waiting) int { return a.Due.Compare(b.Due.Time) })
		write(fmt.Sprintf("%s due after the end, the first at %s.", cli.Counted(len(d.Waiting), "pod")+" "+cli.Plural(len(d.Waiting), "is", "are"), after(first.Due.Sub(d.Begin.Time).Seconds())))
	}
	return text.String()
}

// grouped returns the runs of items that are alike.
func grouped[T any](items []T, alike func(a, b T) bool) [][]T {
	var groups [][]T
	for i, item := range items {
		if i > 0 && alike(groups[len(groups)-1][0], item) {
			groups[len(groups)-1] = append(groups[len(groups)-1], item)
		} else {
			groups = append(groups, []T{item})
		}
	}
	return groups
}

func names[T any](items []T, name func(T) string) []string {
	list := make([]string, 0, len(items))
	for _, item := range items {
		list = append(list, name(item))
	}
	return list
}
