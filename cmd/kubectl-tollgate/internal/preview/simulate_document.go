package preview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
)

// simulation is what happened. It is no API object. Times are seconds from the beginning.
type simulation struct {
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

func podNameOf(one *evictions.Eviction) podName { return podName{one.Namespace, one.Name, one.Node} }

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

// text returns the simulation as text.
func (d *simulation) text() string {
	lines := d.lines()
	width := 0
	for _, l := range lines {
		width = max(width, len(after(l.at)))
	}
	var text strings.Builder
	for _, l := range lines {
		first := fmt.Sprintf("%-*s  ", width, after(l.at))
		rest := strings.Repeat(" ", len(first)+2)
		if l.detail {
			first, rest = rest, rest+"  "
		}
		text.WriteString(strings.Join(cli.Indented(first, rest, cli.Clean(l.text), cli.Width), "\n") + "\n")
	}
	if len(lines) > 0 {
		text.WriteString("\n")
	}
	return text.String() + d.sums()
}

// lines returns the steps and the departures, by time. Pods that leave at the same time in the same
// way share a line.
func (d *simulation) lines() []line {
	var lines []line
	for _, s := range d.Steps {
		lines = append(lines, line{at: s.At, text: s.Step})
		for _, about := range []struct {
			prefix string
			texts  []string
		}{{"", s.Effects}, {"refused: ", s.Refused}, {"warning: ", s.Warnings}} {
			for _, text := range about.texts {
				lines = append(lines, line{s.At, about.prefix + text, true})
			}
		}
	}
	for _, g := range grouped(d.Left, func(a, b left) bool { return a.At == b.At && a.Taint == b.Taint && a.How == b.How }) {
		text := pods(len(g.names), "is", "are") + " " + g.first.How
		if g.first.EvictionPolicy != "" {
			text += " as EvictionPolicy/" + g.first.EvictionPolicy + " says"
		}
		lines = append(lines, line{at: g.first.At, text: text + ", because of " + g.first.Taint + ": " + cli.Few(g.names)})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	return lines
}

// sums returns the lines about all pods at the end.
func (d *simulation) sums() string {
	sentences := []string{"No pod leaves."}
	if count := len(d.Left); count > 0 {
		sentences[0] = pods(count, "leaves", "leave") + ", the last at " + after(d.Left[count-1].At) + "."
	}
	held := slices.Clone(d.Held)
	slices.SortStableFunc(held, func(a, b holding) int { return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.By, b.By)) })
	for _, g := range grouped(held, func(a, b holding) bool { return a.Reason == b.Reason && a.By == b.By }) {
		by := ""
		if g.first.By != "" {
			by = " by " + g.first.By
		}
		sentences = append(sentences, fmt.Sprintf("%s %s%s (%s) from %s on: %s: %s", cli.Counted(len(g.names), "pod"),
			strings.ToLower(string(g.first.State)), by, g.first.Reason, after(g.first.Since), g.first.Message, cli.Few(g.names)))
	}
	if len(d.Waiting) > 0 {
		first := slices.MinFunc(d.Waiting, func(a, b waiting) int { return a.Due.Compare(b.Due.Time) })
		sentences = append(sentences, pods(len(d.Waiting), "is", "are")+" due after the end, the first at "+after(first.Due.Sub(d.Begin.Time).Seconds())+".")
	}
	var text strings.Builder
	_ = cli.WriteWrapped(&text, "", sentences) // A Builder returns no error.
	return text.String()
}

// group is a run of items that are alike, by the first of them.
type group[T any] struct {
	first T
	names []string
}

// grouped returns the runs of items that are alike.
func grouped[T fmt.Stringer](items []T, alike func(a, b T) bool) []group[T] {
	var groups []group[T]
	for i, item := range items {
		if i == 0 || !alike(groups[len(groups)-1].first, item) {
			groups = append(groups, group[T]{first: item})
		}
		last := &groups[len(groups)-1]
		last.names = append(last.names, item.String())
	}
	return groups
}

// pods returns a number of pods, and a verb for one or for many of them.
func pods(count int, one, many string) string {
	return cli.Counted(count, "pod") + " " + cli.Plural(count, one, many)
}
