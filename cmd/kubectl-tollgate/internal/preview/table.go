package preview

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/evictor"
	"github.com/tollgate-dev/tollgate/evictor/preview"
)

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

// unknown is the text of a cell without data.
const unknown = "<unknown>"

// Summaries returns the summary of each namespace, by name.
func (p *Preview) Summaries() []Summary {
	var all []Summary
	for i := range p.Pods {
		pod := &p.Pods[i]
		if len(all) == 0 || all[len(all)-1].Namespace != pod.Namespace {
			all = append(all, Summary{Namespace: pod.Namespace})
			if !p.BudgetsUnknown {
				all[len(all)-1].Guarded = new(int)
			}
		}
		s := &all[len(all)-1]
		s.Pods++
		if pod.Wait == 0 {
			s.Now++
		} else {
			s.Later++
		}
		s.Latest = max(s.Latest, int64(pod.Wait.Seconds()))
		if s.Guarded != nil {
			*s.Guarded += one(pod.Guarded)
		}
		s.Ownerless += one(pod.Ownerless)
	}
	return all
}

func one(counts bool) int {
	if counts {
		return 1
	}
	return 0
}

var (
	summaryHead = []string{"NAMESPACE", "PODS", "NOW", "LATER", "LATEST", "GUARDED", "NO CONTROLLER"}
	podHead     = []string{"NAMESPACE", "POD", "WHEN", "AT", "WHY", "BUDGET", "CONTROLLER"}
	endHead     = []string{"NAMESPACE", "POD", "HAD TO LEAVE", "NOW"}
)

// Write writes a sentence for each preview, with a table of namespaces or, if wide, of pods.
func (t *Teller) Write(out io.Writer, wide bool, all []Preview) error {
	for i := range all {
		p := &all[i]
		if i > 0 && (len(p.Pods) > 0 || len(all[i-1].Pods) > 0) {
			if _, err := fmt.Fprintln(out); err != nil {
				return fmt.Errorf("write preview: %w", err)
			}
		}
		if err := t.write(out, wide, p); err != nil {
			return fmt.Errorf("write preview: %w", err)
		}
	}
	return nil
}

func (t *Teller) write(out io.Writer, wide bool, p *Preview) error {
	if _, err := fmt.Fprintln(out, wrapped(p.Sentence())); err != nil {
		return err
	}
	if len(p.Pods) > 0 {
		if err := t.table(out, wide, p); err != nil {
			return err
		}
	}
	for _, refusal := range p.Refusals {
		if _, err := fmt.Fprintln(out, wrapped("would be refused: "+refusal)); err != nil {
			return err
		}
	}
	for _, warning := range p.Warnings {
		if _, err := fmt.Fprintln(out, wrapped("would be warned of: "+warning)); err != nil {
			return err
		}
	}
	if !wide || len(p.Ends) == 0 {
		return nil
	}
	var rows [][]string
	for i := range p.Ends {
		pod := &p.Ends[i]
		then := "stays"
		if !pod.Was.IsZero() {
			then = "has to leave at " + stamp(pod.Was)
		}
		rows = append(rows, []string{pod.Namespace, pod.Name, stamp(pod.At), then})
	}
	return cli.Write(out, true, endHead, rows)
}

func (t *Teller) table(out io.Writer, wide bool, p *Preview) error {
	var rows [][]string
	if wide {
		for i := range p.Pods {
			rows = append(rows, t.row(p, &p.Pods[i]))
		}
		return cli.Write(out, true, podHead, rows)
	}
	for _, s := range p.Summaries() {
		guarded := unknown
		if s.Guarded != nil {
			guarded = strconv.Itoa(*s.Guarded)
		}
		rows = append(rows, []string{
			s.Namespace, strconv.Itoa(s.Pods), strconv.Itoa(s.Now), strconv.Itoa(s.Later), in(time.Duration(s.Latest) * time.Second),
			guarded, strconv.Itoa(s.Ownerless),
		})
	}
	return cli.Write(out, false, summaryHead, rows)
}

// row returns the row of a pod in a wide table.
func (t *Teller) row(p *Preview, pod *preview.Pod) []string {
	when := in(pod.Wait)
	if !pod.Was.IsZero() {
		when += " (had to at " + stamp(pod.Was) + ")"
	}
	if pod.Paused {
		when += ", held"
	}
	var why []string
	for i := range pod.Because {
		why = append(why, because(&pod.Because[i]))
	}
	budgets := cli.Joined(t.budgets(pod))
	if p.BudgetsUnknown {
		budgets = unknown
	}
	return []string{
		pod.Namespace, pod.Name, when, stamp(t.leaves(pod)), cli.Joined(why), budgets,
		cmp.Or(t.controller(pod), cli.None),
	}
}

// leaves returns when a pod leaves: now if its deadline has passed.
func (t *Teller) leaves(pod *preview.Pod) time.Time {
	if pod.At.Before(t.cluster.Now) {
		return t.cluster.Now
	}
	return pod.At
}

// in describes how long a pod may stay.
func in(wait time.Duration) string {
	if wait == 0 {
		return "now"
	}
	return "in " + wait.String()
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// because describes why a pod has to leave.
func because(reason *evictor.Reason) string {
	text := reason.Taint.String()
	if reason.Device.Driver != "" {
		text += " on " + reason.Device.String()
	}
	if reason.Tolerated {
		return text + " tolerated for a while"
	}
	return text + " not tolerated"
}

// budgets returns the names of the PodDisruptionBudgets of a pod.
func (t *Teller) budgets(pod *preview.Pod) []string {
	if !pod.Guarded {
		return nil
	}
	known, found := t.cluster.Tracker.Lookup(pod.Key)
	if !found {
		return nil
	}
	var names []string
	budgets := t.cluster.Tracker.Budgets(pod.Namespace)
	for i := range budgets {
		if budgets[i].Guards(&known.Pod) {
			names = append(names, budgets[i].Name)
		}
	}
	return names
}

// controller returns the controller of a pod, empty for none.
func (t *Teller) controller(pod *preview.Pod) string {
	if pod.Ownerless {
		return ""
	}
	if of, found := t.owners.of[pod.UID]; found {
		return strings.ToLower(of.kind) + "/" + of.name
	}
	return unknown
}

// Going returns the number of distinct pods that leave because of any of the writes.
func Going(all []Preview) int {
	gone := map[string]struct{}{}
	for i := range all {
		if !all[i].Leaves() {
			continue
		}
		for _, pod := range all[i].Pods {
			gone[string(pod.UID)] = struct{}{}
		}
	}
	return len(gone)
}

// sorted returns counts ordered by key.
func sorted(counts map[string]int) []counted {
	var all []counted
	for name, pods := range counts {
		all = append(all, counted{Name: name, Pods: pods})
	}
	slices.SortFunc(all, func(a, b counted) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
