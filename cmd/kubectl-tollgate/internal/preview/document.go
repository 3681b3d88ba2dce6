package preview

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/evictor/preview"
)

// document is the output, of which JSON and YAML have all, and tables a part.
type document struct {
	// At is the time of the snapshot.
	At metav1.Time `json:"at"`
	// Going is the number of pods that leave because of any of the writes.
	Going    int               `json:"going"`
	Previews []previewDocument `json:"previews"`
	// Missing are sentences about missing data.
	Missing []string `json:"missing,omitempty"`
}

type previewDocument struct {
	Object  string `json:"object"`
	Summary string `json:"summary"`
	// Mere is true if the write evicts no pods as it is.
	Mere       bool      `json:"evictsNobodyAsItStands,omitempty"`
	Namespaces []Summary `json:"namespaces,omitempty"`
	Pods       []pod     `json:"pods,omitempty"`
	// Refused are the sentences with which TaintPolicies would refuse the write, and Warned those
	// of policies that only warn.
	Refused []string `json:"wouldBeRefused,omitempty"`
	Warned  []string `json:"wouldBeWarnedOf,omitempty"`
	// Protected and Held count pods by EvictionPolicy. Protected pods are not among Pods.
	Protected []counted `json:"protected,omitempty"`
	Held      []counted `json:"held,omitempty"`
	// Ends are the pods whose pending evictions are cancelled or delayed.
	Ends []ended `json:"ends,omitempty"`
}

// Summary counts the evicted pods of a namespace.
type Summary struct {
	Namespace string `json:"namespace"`
	Pods      int    `json:"pods"`
	// Now is the number that leave at once, Later those that leave later, the last after Latest,
	// in seconds.
	Now    int   `json:"now"`
	Later  int   `json:"later"`
	Latest int64 `json:"latestSeconds,omitempty"`
	// Guarded counts the pods under a PodDisruptionBudget, nil if budgets are unknown, and
	// Ownerless those without a controller.
	Guarded   *int `json:"guarded,omitempty"`
	Ownerless int  `json:"withoutController"`
}

// counted is the number of pods of an EvictionPolicy.
type counted struct {
	Name string `json:"evictionPolicy"`
	Pods int    `json:"pods"`
}

type pod struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	// LeavesAt is its deadline, WaitSeconds the time until then; WasToLeaveAt is the deadline
	// before the write.
	LeavesAt     metav1.Time  `json:"leavesAt"`
	WaitSeconds  int64        `json:"waitSeconds"`
	WasToLeaveAt *metav1.Time `json:"wasToLeaveAt,omitempty"`
	// Held is true if a paused EvictionPolicy holds it.
	Held       bool     `json:"held,omitempty"`
	Budgets    []string `json:"podDisruptionBudgets,omitempty"`
	Controller string   `json:"controller,omitempty"`
	Because    []reason `json:"because"`
}

type reason struct {
	Taint  string `json:"taint"`
	Source string `json:"source,omitempty"`
	Device string `json:"device,omitempty"`
	Claim  string `json:"claim,omitempty"`
	// Tolerated is true if it is tolerated until LeavesAt.
	Tolerated bool        `json:"tolerated"`
	LeavesAt  metav1.Time `json:"leavesAt"`
}

type ended struct {
	Namespace    string       `json:"namespace"`
	Name         string       `json:"name"`
	UID          types.UID    `json:"uid"`
	WasToLeaveAt metav1.Time  `json:"wasToLeaveAt"`
	LeavesAt     *metav1.Time `json:"leavesAt,omitempty"`
}

// unknown is the text of a cell without data.
const unknown = "<unknown>"

// document returns the document of previews.
func (t *Teller) document(all []Preview) *document {
	d := &document{At: metav1.NewTime(t.Now), Going: Going(all), Previews: []previewDocument{}, Missing: t.Missing()}
	for _, p := range all {
		one := previewDocument{
			Object: p.Of, Summary: p.Sentence(), Mere: p.But != "", Refused: p.Refusals, Warned: p.Warnings,
			Protected: byPolicy(p.Protected), Held: byPolicy(p.Paused),
		}
		for i, pod := range p.Pods { // They are ordered by namespace.
			if i == 0 || pod.Namespace != p.Pods[i-1].Namespace {
				summary := Summary{Namespace: pod.Namespace}
				if !p.BudgetsUnknown {
					summary.Guarded = new(int)
				}
				one.Namespaces = append(one.Namespaces, summary)
			}
			s := &one.Namespaces[len(one.Namespaces)-1]
			s.Pods++
			if pod.Wait == 0 {
				s.Now++
			} else {
				s.Later++
			}
			s.Latest = max(s.Latest, int64(pod.Wait.Seconds()))
			if pod.Guarded { // None is guarded while budgets are unknown.
				*s.Guarded++
			}
			if pod.Ownerless {
				s.Ownerless++
			}
			one.Pods = append(one.Pods, t.pod(&pod))
		}
		for _, e := range p.Ends {
			one.Ends = append(one.Ends, ended{e.Namespace, e.Name, e.UID, metav1.NewTime(e.At), cli.TimeOrNone(e.Was)})
		}
		d.Previews = append(d.Previews, one)
	}
	return d
}

func (t *Teller) pod(p *preview.Pod) pod {
	leaves := decide.Later(p.At, t.Now) // The deadline may have passed.
	described := pod{
		Namespace: p.Namespace, Name: p.Name, UID: p.UID,
		LeavesAt: metav1.NewTime(leaves), WaitSeconds: int64(p.Wait.Seconds()), WasToLeaveAt: cli.TimeOrNone(p.Was), Held: p.Paused,
	}
	if p.Guarded {
		tracked, _ := t.Tracker.Lookup(p.Key)
		for _, budget := range t.Tracker.Budgets(p.Namespace) {
			if budget.Guards(&tracked.Pod) {
				described.Budgets = append(described.Budgets, budget.Name)
			}
		}
	}
	if !p.Ownerless {
		described.Controller = cmp.Or(t.controllers[p.UID], unknown)
	}
	for _, r := range p.Because {
		why := reason{Taint: r.Taint.String(), Tolerated: r.Tolerated, LeavesAt: metav1.NewTime(r.At)}
		if author := r.Taint.Author(); author.Name != unnamed {
			why.Source = string(author.Kind) + "/" + author.Name
		}
		if r.Device.Driver != "" {
			why.Device, why.Claim = r.Device.String(), r.Claim.String()
		}
		described.Because = append(described.Because, why)
	}
	return described
}

// byPolicy returns counts ordered by EvictionPolicy.
func byPolicy(counts map[string]int) []counted {
	var all []counted
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, counted{name, counts[name]})
	}
	return all
}

// Write writes previews as JSON, as YAML, or as a sentence for each preview with a table of
// namespaces or, if wide, of pods.
func (t *Teller) Write(out io.Writer, format string, all []Preview) error {
	d := t.document(all)
	if cli.IsDocument(format) {
		return cli.Print(out, format, d)
	}
	var text bytes.Buffer
	for i, p := range d.Previews {
		if i > 0 && (len(p.Pods) > 0 || len(d.Previews[i-1].Pods) > 0) {
			text.WriteByte('\n')
		}
		p.write(&text, format == "wide")
	}
	if _, err := text.WriteTo(out); err != nil {
		return fmt.Errorf("write preview: %w", err)
	}
	return nil
}

// write writes the sentence and the tables. A buffer returns no error.
func (d *previewDocument) write(out *bytes.Buffer, wide bool) {
	fmt.Fprintln(out, wrapped(d.Summary))
	if len(d.Pods) > 0 {
		d.table(out, wide)
	}
	for _, refusal := range d.Refused {
		fmt.Fprintln(out, wrapped("would be refused: "+refusal))
	}
	for _, warning := range d.Warned {
		fmt.Fprintln(out, wrapped("would be warned of: "+warning))
	}
	if !wide || len(d.Ends) == 0 {
		return
	}
	var rows [][]string
	for _, end := range d.Ends {
		then := "stays"
		if end.LeavesAt != nil {
			then = "has to leave at " + stamp(end.LeavesAt)
		}
		rows = append(rows, []string{end.Namespace, end.Name, stamp(&end.WasToLeaveAt), then})
	}
	_ = cli.Write(out, true, []string{"NAMESPACE", "POD", "HAD TO LEAVE", "NOW"}, rows)
}

func (d *previewDocument) table(out *bytes.Buffer, wide bool) {
	var rows [][]string
	if !wide {
		for _, s := range d.Namespaces {
			guarded := unknown
			if s.Guarded != nil {
				guarded = strconv.Itoa(*s.Guarded)
			}
			rows = append(rows, []string{
				s.Namespace, strconv.Itoa(s.Pods), strconv.Itoa(s.Now), strconv.Itoa(s.Later), in(s.Latest), guarded, strconv.Itoa(s.Ownerless),
			})
		}
		_ = cli.Write(out, false, []string{"NAMESPACE", "PODS", "NOW", "LATER", "LATEST", "GUARDED", "NO CONTROLLER"}, rows)
		return
	}
	for _, p := range d.Pods {
		when := in(p.WaitSeconds)
		if p.WasToLeaveAt != nil {
			when += " (had to at " + stamp(p.WasToLeaveAt) + ")"
		}
		if p.Held {
			when += ", held"
		}
		var why []string
		for _, r := range p.Because {
			text := r.Taint
			if r.Device != "" {
				text += " on " + r.Device
			}
			if r.Tolerated {
				text += " tolerated for a while"
			} else {
				text += " not tolerated"
			}
			why = append(why, text)
		}
		budgets := cli.Joined(p.Budgets)
		if d.Namespaces[0].Guarded == nil {
			budgets = unknown
		}
		rows = append(rows, []string{p.Namespace, p.Name, when, stamp(&p.LeavesAt), cli.Joined(why), budgets, cmp.Or(p.Controller, cli.None)})
	}
	_ = cli.Write(out, true, []string{"NAMESPACE", "POD", "WHEN", "AT", "WHY", "BUDGET", "CONTROLLER"}, rows)
}

// in describes how long a pod may stay.
func in(seconds int64) string {
	if seconds == 0 {
		return "now"
	}
	return "in " + (time.Duration(seconds) * time.Second).String()
}

func stamp(at *metav1.Time) string { return at.UTC().Format(time.RFC3339) }

// wrapped breaks a sentence into lines of at most cli.Width characters, between its parts, which
// end with a semicolon, or, if these are longer, between words. Longer words stay whole, for
// copying. All lines but the first are indented.
func wrapped(sentence string) string {
	const indent = "  "
	var lines []string
	line := ""
	full := func(text string) bool {
		return strings.TrimSpace(line) != "" && utf8.RuneCountInString(strings.TrimRight(line+text, " ")) > cli.Width
	}
	for clause := range strings.SplitAfterSeq(sentence, "; ") {
		for i, word := range strings.SplitAfter(clause, " ") {
			if i == 0 && full(clause) || full(word) {
				lines, line = append(lines, strings.TrimRight(line, " ")), indent
			}
			line += word
		}
	}
	return strings.Join(append(lines, strings.TrimRight(line, " ")), "\n")
}
