package evictions

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/evictor/decide"
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
	out := bufio.NewWriter(w)
	for _, line := range lines {
		_, _ = out.WriteString(line + "\n") // Flush returns the error.
	}
	if err := out.Flush(); err != nil {
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
	if until := e.Hold.Until; !until.IsZero() && e.State != Leaving && !e.over() {
		text += ", leaves " + relative(until, now)
	}
	return []string{e.Namespace, e.Name, when(e, now), string(e.State), text}
}

// Reason returns the taint that evicts the pod, and what holds it or who deletes it, in a few words.
func (e *Eviction) Reason() string {
	text := cause(&e.Because[0])
	if others := len(e.Because) - 1; others > 0 && !e.over() {
		text += fmt.Sprintf(" +%d", others)
	}
	switch {
	case e.over():
	case e.State == Leaving:
		text += "; " + cmp.Or(e.Disruption, "being deleted")
	case !e.Hold.None():
		text += "; " + e.Hold.short()
	case e.By == ByKubernetes:
		text += "; by Kubernetes"
	}
	return text
}

// over reports whether the pod does not have to leave any more.
func (e *Eviction) over() bool { return e.State == Gone || e.State == Staying }

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
		hold = e.Hold.By + ": " + e.Hold.Why
	}
	return []string{e.Namespace, e.Name, when(e, now), string(e.State), stamp(e.At), by, e.Node, strings.Join(taints, "; "), hold, according(e)}
}

// according returns the source of the state of a pod.
func according(e *Eviction) string {
	switch {
	case e.State == Leaving:
		return "the pod"
	case !e.Hold.None():
		return e.Hold.Word
	default:
		return "computed here"
	}
}

// when returns the time until or since the deadline.
func when(e *Eviction, now time.Time) string {
	switch {
	case e.over():
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
		return "in " + duration.HumanDuration(time.Duration(math.Ceil(left.Seconds()))*time.Second)
	case left > -time.Second:
		return "now"
	default:
		return duration.HumanDuration(-left) + " ago"
	}
}

func stamp(at time.Time) string {
	if at.IsZero() {
		return cli.None
	}
	return at.UTC().Format(time.RFC3339)
}

// ref returns an object as kind/name, with a short kind.
func ref(source tracker.Source) string {
	short := map[tracker.SourceKind]string{
		tracker.SourceNode: "node", tracker.SourceRule: "rule", tracker.SourceSlice: "slice", tracker.SourcePatch: "patch",
	}
	return short[source.Kind] + "/" + source.Name
}

// cause returns the taint that evicts a pod, without the domain of its key and the effect, which
// is always NoExecute.
func cause(reason *decide.Reason) string {
	key := reason.Taint.Key
	if _, name, found := strings.Cut(key, "/"); found {
		key = name
	}
	if reason.Taint.Value != "" {
		key += "=" + reason.Taint.Value
	}
	return key + " of " + ref(reason.Taint.Author())
}

// short describes a hold in a few words.
func (h *Hold) short() string {
	name := h.By[strings.LastIndex(h.By, "/")+1:]
	switch h.Reason {
	case checks.Paused:
		return "policy " + name + " is paused"
	case checks.Protected:
		return "policy " + name + " protects it"
	case checks.BreakerTripped:
		return "breaker of policy " + name
	case checks.Budget:
		switch {
		case strings.HasPrefix(h.By, "Pod/"):
			return "refused: " + h.Why
		case strings.Contains(name, ","):
			return "several budgets: " + name
		default:
			return "budget " + name
		}
	case checks.NodesDown:
		return "all nodes are down"
	case checks.Looping:
		return "it comes back again and again"
	case checks.TwinMissing:
		return "no NoSchedule twin yet"
	case checks.NamespaceUnknown:
		return "labels of its namespace unknown"
	default:
		return string(h.Reason)
	}
}

// The colours of states, as ANSI escape codes.
const (
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	red    = "\x1b[31m"
	plain  = "\x1b[0m"
)

// coloured returns a line in the colour of a state.
func coloured(state State, line string) string {
	colour := map[State]string{Leaving: green, Due: yellow, Blocked: yellow, Held: red, Paused: red}[state]
	if colour == "" {
		return line
	}
	return colour + line + plain
}

// overdue is how long a pod may be due without a hold: the attempt, its grace period and the pace
// take time.
const overdue = 30 * time.Second

// Notes returns sentences about holds and what ends them, the most pods first, and about overdue
// pods without a known hold.
func Notes(list []Eviction, now time.Time) []string {
	type holder struct {
		reason checks.Reason
		by     string
	}
	pods, first := map[holder]int{}, map[holder]*Hold{}
	silent := 0
	for _, e := range list {
		if e.State == Due && now.Sub(e.At) > overdue {
			silent++
		}
		if of := (holder{e.Hold.Reason, e.Hold.By}); !e.Hold.None() {
			if pods[of]++; first[of] == nil {
				first[of] = &e.Hold
			}
		}
	}
	var notes []string
	for _, of := range slices.SortedFunc(maps.Keys(pods), func(a, b holder) int {
		return cmp.Or(cmp.Compare(pods[b], pods[a]), cmp.Compare(a.reason, b.reason), cmp.Compare(a.by, b.by))
	}) {
		hold, breaker := first[of], of.reason == checks.BreakerTripped
		text := cli.Counted(pods[of], "pod") + " held"
		if hold.By != "" {
			text += " by " + hold.By
		}
		if breaker && !hold.Since.IsZero() {
			text += " for " + duration.HumanDuration(now.Sub(hold.Since))
		}
		text += ": " + hold.Why
		if breaker {
			text += ". To let them go: kubectl tollgate release " + hold.By[strings.LastIndex(hold.By, "/")+1:]
		}
		notes = append(notes, text+" (according to: "+hold.Word+")")
	}
	if silent > 0 {
		notes = append(notes, cli.Counted(silent, "pod")+" due for more than "+duration.HumanDuration(overdue)+
			", and nothing that was read says why they stay: see whether somebody evicts, and its log")
	}
	return notes
}
