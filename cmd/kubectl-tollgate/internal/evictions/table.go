package evictions

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/tracker"
)

// WriteTable writes a row for each pod, and nothing if there is none. A wide table has full texts
// and the source of each state. With colour, states are coloured.
func WriteTable(w io.Writer, list []Eviction, now time.Time, wide, colour bool) error {
	if len(list) == 0 {
		return nil
	}
	lines := tableLines(list, now, wide)
	for i := range list {
		if colour {
			lines[i+1] = coloured(list[i].State, lines[i+1])
		}
	}
	return writeLines(w, "table", lines)
}

// WriteNames writes a line with namespace/name for each pod.
func WriteNames(w io.Writer, list []Eviction) error {
	var names []string
	for _, e := range list {
		names = append(names, e.String())
	}
	return writeLines(w, "names", names)
}

func writeLines(w io.Writer, what string, lines []string) error {
	if _, err := io.WriteString(w, strings.Join(append(lines, ""), "\n")); err != nil {
		return fmt.Errorf("write %s: %w", what, err)
	}
	return nil
}

// tableLines returns the head and a line for each pod.
func tableLines(list []Eviction, now time.Time, wide bool) []string {
	head, row := []string{"NAMESPACE", "POD", "WHEN", "STATE", "REASON"}, shortRow
	if wide {
		head, row = []string{"NAMESPACE", "POD", "WHEN", "STATE", "DUE", "BY", "NODE", "TAINTS", "HOLD", "ACCORDING-TO"}, wideRow
	}
	rows := make([][]string, 0, len(list))
	for _, e := range list {
		rows = append(rows, row(&e, now))
	}
	var out bytes.Buffer
	_ = cli.Write(&out, wide, head, rows) // A buffer returns no error.
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// shortRow has the hold at the end, which narrow columns keep.
func shortRow(e *Eviction, now time.Time) []string {
	text := e.Reason()
	if until := e.Hold.Until; !until.IsZero() {
		text += ", leaves " + relative(until, now)
	}
	return []string{e.Namespace, e.Name, when(e, now), string(e.State), text}
}

// Reason returns the taint that evicts the pod, and what holds it or who deletes it, in a few words. The
// taint is without the domain of its key and the effect, which is always NoExecute.
func (e *Eviction) Reason() string {
	taint := &e.Because[0].Taint
	text := path.Base(taint.Key)
	if taint.Value != "" {
		text += "=" + taint.Value
	}
	text += " of " + ref(taint.Author())
	if e.State == Gone || e.State == Staying {
		return text
	}
	if others := len(e.Because) - 1; others > 0 {
		text += fmt.Sprintf(" +%d", others)
	}
	switch {
	case e.State == Leaving:
		text += "; " + cmp.Or(e.Disruption, "being deleted")
	case !e.Hold.None():
		text += "; " + e.Hold.short()
	case e.By == ByKubernetes:
		text += "; by Kubernetes"
	}
	return text
}

func wideRow(e *Eviction, now time.Time) []string {
	var taints []string
	for _, reason := range e.Because {
		source, author := reason.Taint.Source, reason.Taint.Author()
		text := reason.Taint.String()
		if reason.Device.Name != "" {
			text += " on " + reason.Device.String() + " (claim " + reason.Claim.Name + ")"
		}
		text += " of " + ref(source)
		if author != source {
			text += " for " + ref(author)
		}
		if writer := e.Writers[author]; writer != "" {
			text += " (written by " + writer + ")"
		}
		if reason.Tolerated {
			text += ", tolerated until " + stamp(reason.At)
		} else {
			text += ", not tolerated from " + stamp(reason.At) + " on"
		}
		taints = append(taints, text)
	}
	by, hold := e.By, cli.None
	if e.Policy != "" {
		by += " (EvictionPolicy/" + e.Policy + ")"
	}
	if !e.Hold.None() {
		hold = strings.TrimPrefix(e.Hold.By+": "+e.Hold.Why, ": ")
	}
	return []string{e.Namespace, e.Name, when(e, now), string(e.State), stamp(e.At), by, e.Node, strings.Join(taints, "; "), hold, according(e)}
}

// according returns the source of the state of a pod.
func according(e *Eviction) string {
	if e.State == Leaving {
		return "the pod"
	}
	return cmp.Or(e.Hold.Word, "computed here")
}

// when returns the time until or since the deadline.
func when(e *Eviction, now time.Time) string {
	switch {
	case e.State == Gone || e.State == Staying:
		return "-"
	case e.State == Leaving:
		return "now"
	case e.State == Protected && e.Hold.Until.IsZero():
		return "stays"
	default:
		return relative(e.At, now)
	}
}

// relative returns a time relative to now, in whole seconds; future times are rounded up.
func relative(at, now time.Time) string {
	left := at.Sub(now)
	switch {
	case left > 0:
		return "in " + duration.HumanDuration((left + time.Second - 1).Truncate(time.Second))
	case left > -time.Second:
		return "now"
	default:
		return duration.HumanDuration(-left) + " ago"
	}
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// ShortKinds are the kinds of objects with taints, each in a word, as the command approve takes them.
var ShortKinds = map[tracker.SourceKind]string{
	tracker.SourceNode: "node", tracker.SourceRule: "rule", tracker.SourceSlice: "slice", tracker.SourcePatch: "patch",
}

// ref returns an object as kind/name, with a short kind.
func ref(source tracker.Source) string { return ShortKinds[source.Kind] + "/" + source.Name }

// inShort describes holds in a few words, with the name of the object that holds.
var inShort = map[checks.Reason]string{
	checks.Paused:           "policy {name} is paused",
	checks.Protected:        "policy {name} protects it",
	checks.BreakerTripped:   "breaker of policy {name}",
	checks.Budget:           "budget {name}",
	checks.NodesDown:        "all nodes are down",
	checks.Looping:          "it comes back again and again",
	checks.TwinMissing:      "no NoSchedule twin yet",
	checks.NamespaceUnknown: "labels of its namespace unknown",
}

func (h *Hold) short() string {
	name := path.Base(h.By)
	switch {
	case strings.HasPrefix(h.By, "Pod/"):
		return "refused: " + h.Why
	case strings.Contains(name, ","):
		return "several budgets: " + name
	default:
		return strings.ReplaceAll(inShort[h.Reason], "{name}", name)
	}
}

// colours are the ANSI escape codes of the colours of states: green, yellow and red.
var colours = map[State]string{Leaving: "\x1b[32m", Due: "\x1b[33m", Blocked: "\x1b[33m", Held: "\x1b[31m", Paused: "\x1b[31m"}

// coloured returns a line in the colour of a state.
func coloured(state State, line string) string {
	if colour := colours[state]; colour != "" {
		return colour + line + "\x1b[0m"
	}
	return line
}

// overdue is how long a pod may be due without a hold: the attempt, its grace period and the pace
// take time.
const overdue = 30 * time.Second

// Notes returns sentences about holds and what ends them, the most pods first, and about overdue
// pods without a known hold.
func Notes(list []Eviction, now time.Time) []string {
	held := map[[2]string][]*Hold{} // by reason and object
	silent := 0
	for i := range list {
		e := &list[i]
		if e.State == Due && now.Sub(e.At) > overdue {
			silent++
		}
		if hold := &e.Hold; !hold.None() {
			of := [2]string{string(hold.Reason), hold.By}
			held[of] = append(held[of], hold)
		}
	}
	var notes []string
	for _, holds := range slices.SortedFunc(maps.Values(held), func(a, b []*Hold) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a[0].Reason, b[0].Reason), cmp.Compare(a[0].By, b[0].By))
	}) {
		hold := holds[0]
		text := cli.Counted(len(holds), "pod") + " held"
		if hold.By != "" {
			text += " by " + hold.By
		}
		why := ": " + hold.Why
		if hold.Reason == checks.BreakerTripped {
			why = " for " + duration.HumanDuration(now.Sub(hold.Since)) + why + ". To let them go: kubectl tollgate release " + path.Base(hold.By)
		}
		notes = append(notes, text+why+" (according to: "+hold.Word+")")
	}
	if silent > 0 {
		notes = append(notes, cli.Counted(silent, "pod")+" due for more than "+duration.HumanDuration(overdue)+
			", and nothing that was read says why they stay: see whether somebody evicts, and its log")
	}
	return notes
}
