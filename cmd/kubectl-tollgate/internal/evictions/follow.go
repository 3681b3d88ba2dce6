package evictions

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/tracker"
)

// view shows an update of the list. Last is true in a second call for the last one.
type view func(at *Frame, last bool) error

// Frame is the list at one time, and its changes since the last one.
type Frame struct {
	Now     time.Time
	List    []Eviction
	Changed []Eviction
	Log     *Log
	// Lacks are sentences about missing data, Holds about holds.
	Lacks, Holds []string
	// Cluster is the cluster at that time. Its tracker is kept up to date.
	Cluster *state.Cluster
}

// Watch calls show with each update until ctx is done or show returns an error. Updates come after
// changes, and each second.
func Watch(ctx context.Context, clients *cli.Clients, wants state.Wants, show func(*Frame) error) error {
	return follow(ctx, clients, &options{wants: wants}, func(at *Frame, last bool) error {
		if last {
			return nil
		}
		return show(at)
	})
}

// viewOf returns the view for an output.
func viewOf(opts *options, to streams) view {
	switch {
	case opts.output.Format == "json":
		return lineView(to.notes, changeDocuments(to.out))
	case to.terminal:
		return screenView(to)
	default:
		return lineView(to.notes, changeLines(to.out))
	}
}

// follow shows updates until ctx is done or, with untilDone, no pods have to leave.
func follow(ctx context.Context, clients *cli.Clients, opts *options, show view) error {
	ctx, stop := context.WithCancel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	feed := &feed{
		Clients: clients, options: opts, group: group, synced: make(chan struct{}), changed: make(chan struct{}, 1), refused: map[string]string{},
	}
	group.Go(func() error {
		if err := feed.run(ctx); ctx.Err() == nil {
			return err
		}
		return nil // The end of ctx is no error of a watch.
	})
	group.Go(func() error {
		defer stop()
		return feed.showUpdates(ctx, show)
	})
	return group.Wait()
}

// showUpdates shows updates until ctx is done or, with untilDone, no pods have to leave.
func (f *feed) showUpdates(ctx context.Context, show view) error {
	var giveUp <-chan time.Time
	if f.timeout > 0 {
		giveUp = time.After(f.timeout)
	}
	select {
	case <-ctx.Done():
		return nil
	case <-giveUp:
		return &cli.VerdictError{Reason: fmt.Sprintf("the cluster was not read within %s", f.timeout)}
	case <-f.synced:
	}
	ticker := time.NewTicker(time.Second) // Relative times change.
	defer ticker.Stop()
	log := NewLog(time.Now())
	for {
		at := f.frame(time.Now(), log)
		if err := show(at, false); err != nil {
			return err
		}
		open := Open(at.List)
		if f.untilDone && len(open) == 0 {
			return show(at, true)
		}
		select {
		case <-ctx.Done():
			return show(at, true)
		case <-giveUp:
			verdict := &cli.VerdictError{Reason: fmt.Sprintf("after %s there are pods that have to leave: %s", f.timeout, Counts(open))}
			return cmp.Or(show(at, true), error(verdict))
		case <-ticker.C:
		case <-f.changed:
			time.Sleep(100 * time.Millisecond) // Other changes may follow.
		}
	}
}

// Counts returns the number of pods in each state, in the order in which pods leave: 2 Due, 1 Paused.
func Counts(pods map[State]int) string {
	var counts []string
	for _, s := range states {
		if pods[s] > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", pods[s], s))
		}
	}
	return strings.Join(counts, ", ")
}

// lineView writes changes, for files and pipes, and what lacks, each once. Holds change too often to be
// written before the end.
func lineView(notes io.Writer, write changeWriter) view {
	told := sets.Set[string]{}
	return func(at *Frame, last bool) error {
		if last {
			holds := at.Holds
			if len(at.List) == 0 {
				holds = []string{"no pod has to leave"}
			}
			return cli.WriteWrapped(notes, "", holds)
		}
		lacks := slices.DeleteFunc(slices.Clone(at.Lacks), told.Has)
		told.Insert(lacks...)
		if err := cli.WriteWrapped(notes, "", lacks); err != nil {
			return err
		}
		return write(at.Changed, at.Now)
	}
}

// changeWriter writes changes. It is not safe for concurrent use.
type changeWriter func(changed []Eviction, now time.Time) error

// changeLines returns a function that writes a line for each change, under one head.
func changeLines(out io.Writer) changeWriter {
	table := cli.NewLines(out, false, []string{"TIME", "NAMESPACE", "POD", "WHEN", "STATE", "REASON"})
	return func(changed []Eviction, now time.Time) error {
		if len(changed) == 0 {
			return nil
		}
		var rows [][]string
		for _, e := range changed {
			rows = append(rows, append([]string{now.UTC().Format(time.TimeOnly)}, shortRow(&e, now)...))
		}
		if err := table.Write(rows); err != nil {
			return fmt.Errorf("write changes: %w", err)
		}
		return nil
	}
}

// Log compares successive lists. It is not safe for concurrent use.
type Log struct {
	// Since is when the log began.
	Since time.Time

	before map[tracker.Key]Eviction
	gone   map[tracker.Source]int
}

// NewLog returns a log with Since set to now.
func NewLog(now time.Time) *Log {
	return &Log{Since: now, gone: map[tracker.Source]int{}}
}

// Next returns the changes since the last list: new pods, pods of which a visible field changed, and
// removed ones with the state Gone or Staying. Lives reports whether a pod exists and is not finished.
func (l *Log) Next(list []Eviction, lives func(tracker.Key) bool) []Eviction {
	var changed []Eviction
	now := make(map[tracker.Key]Eviction, len(list))
	for _, e := range list {
		now[e.Key] = e
		before, found := l.before[e.Key]
		if !found || before.State != e.State || !before.At.Equal(e.At) || before.By != e.By ||
			before.Hold.Reason != e.Hold.Reason || before.Hold.By != e.Hold.By || author(&before) != author(&e) {
			changed = append(changed, e)
		}
	}
	var left []Eviction
	for key, e := range l.before {
		if _, still := now[key]; still {
			continue
		}
		e.State, e.Hold = Staying, Hold{}
		if !lives(key) {
			e.State = Gone
			l.gone[author(&e)]++
		}
		left = append(left, e)
	}
	slices.SortFunc(left, Compare)
	l.before = now
	return append(left, changed...)
}

func author(e *Eviction) tracker.Source { return e.Because[0].Taint.Author().Named() }

// Group is the progress of the evictions because of one object.
type Group struct {
	Source tracker.Source
	// Pods is the number of pods in each state. Gone counts those gone since the log began.
	Pods map[State]int
}

// total returns the number of pods, including those gone.
func (g *Group) total() int {
	sum := 0
	for _, pods := range g.Pods {
		sum += pods
	}
	return sum
}

// Groups returns the pods of the last list by the object that evicts them, the largest group
// first.
func (l *Log) Groups() []Group {
	by := map[tracker.Source]map[State]int{}
	for source, gone := range l.gone {
		by[source] = map[State]int{Gone: gone}
	}
	for _, e := range l.before {
		source := author(&e)
		if by[source] == nil {
			by[source] = map[State]int{}
		}
		by[source][e.State]++
	}
	var groups []Group
	for source, pods := range by {
		groups = append(groups, Group{source, pods})
	}
	slices.SortFunc(groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.total(), a.total()), cmp.Compare(a.Source.Kind, b.Source.Kind), cmp.Compare(a.Source.Name, b.Source.Name))
	})
	return groups
}

// Open returns the number of pods still to leave, by state: all except Protected.
func Open(list []Eviction) map[State]int {
	open := map[State]int{}
	for _, e := range list {
		if e.State != Protected {
			open[e.State]++
		}
	}
	return open
}

const (
	// mostBars is the maximum number of bars, barWidth their length, and mostName that of the name of
	// an object.
	mostBars = 6
	barWidth = 20
	mostName = 32
	clockOf  = "15:04:05 MST"
)

// lines returns the screen: at most height lines of width characters, at most half of them notes.
func (at *Frame) lines(width, height int, colour bool) []string {
	groups, gone, pods := at.Log.Groups(), 0, "no pod has"
	for _, g := range groups {
		gone += g.Pods[Gone]
	}
	if n := len(at.List); n > 0 {
		pods = cli.Counted(n, "pod") + " " + cli.Plural(n, "has", "have")
	}
	top := []string{fmt.Sprintf("%s  %s to leave, %d gone since %s", at.Now.UTC().Format(clockOf), pods, gone, at.Log.Since.UTC().Format(clockOf))}
	if len(groups) > 0 {
		const legend = "  # gone  > leaving  . to go  x blocked  ! held or paused  = protected"
		top = slices.Concat(top, []string{""}, bars(groups), []string{legend, ""})
	}
	var notes []string
	for _, note := range slices.Concat(at.Lacks, at.Holds) {
		notes = append(notes, cli.Wrapped(note, min(width, cli.Width))...)
	}
	notes = notes[:min(len(notes), height/2)]
	// The table has as many rows as fit, and the number of the others in the last line.
	var table []string
	rows := len(at.List)
	if rows > 0 {
		if room := height - len(top) - len(notes); rows+1 > room {
			rows = max(room-2, 0)
		}
		table = tableLines(at.List[:rows], at.Now, false)
	}
	if others := len(at.List) - rows; others > 0 {
		table = append(table, "... and "+cli.Counted(others, "more pod"))
	}
	lines := slices.Concat(top, table, notes)
	lines = lines[:min(len(lines), height)]
	for i := range lines {
		if line := []rune(lines[i]); len(line) > width {
			lines[i] = string(line[:width])
		}
		if row := i - len(top) - 1; colour && row >= 0 && row < rows {
			lines[i] = coloured(at.List[row].State, lines[i])
		}
	}
	return lines
}

// bars returns a line for each group, up to mostBars.
func bars(groups []Group) []string {
	width := 0
	shown := groups[:min(len(groups), mostBars)]
	for _, g := range shown {
		width = max(width, min(utf8.RuneCountInString(ref(g.Source)), mostName))
	}
	var lines []string
	for _, g := range shown {
		bar, numbers := g.bar()
		lines = append(lines, fmt.Sprintf("%-*s  [%s]  %s", width, cli.End(ref(g.Source), mostName), bar, numbers))
	}
	if others := len(groups) - len(shown); others > 0 {
		lines = append(lines, "... and pods of "+cli.Counted(others, "other object"))
	}
	return lines
}

// parts are the parts of a bar, in order.
var parts = []struct {
	mark   byte
	states []State
	text   string
}{
	{'#', []State{Gone}, "gone"},
	{'>', []State{Leaving}, "leaving"},
	{'.', []State{Due, Waiting}, "to go"},
	{'x', []State{Blocked}, "blocked"},
	{'!', []State{Held, Paused}, "held"},
	{'=', []State{Protected}, "protected"},
}

func (g *Group) count(states []State) int {
	pods := 0
	for _, state := range states {
		pods += g.Pods[state]
	}
	return pods
}

// bar returns the bar of a group, and its numbers as text. Each part that is not zero has at least
// one character, taken from the longest.
func (g *Group) bar() (bar, numbers string) {
	total, rest := g.total(), barWidth
	widths, clauses := make([]int, len(parts)), []string{fmt.Sprintf("%d of %d gone", g.Pods[Gone], total)}
	for i, part := range parts {
		if n := g.count(part.states); n > 0 {
			widths[i] = max(n*barWidth/total, 1)
			if i > 0 { // The first clause has the pods that are gone.
				clauses = append(clauses, strconv.Itoa(n)+" "+part.text)
			}
		}
		rest -= widths[i]
	}
	widths[slices.Index(widths, slices.Max(widths))] += rest
	var marks strings.Builder
	for i, part := range parts {
		marks.WriteString(strings.Repeat(string(part.mark), widths[i]))
	}
	return marks.String(), strings.Join(clauses, ", ")
}

// Control sequences of the VT100, and of xterm for the alternate screen.
const (
	enter    = "\x1b[?1049h\x1b[?25l"
	leave    = "\x1b[?25h\x1b[?1049l"
	home     = "\x1b[H"
	restOf   = "\x1b[K"
	allBelow = "\x1b[J"
)

// screenView redraws the screen of a terminal. At the end, it leaves the alternate screen and writes
// the last lines.
func screenView(to streams) view {
	begin := enter
	return func(at *Frame, last bool) error {
		width, height := to.size()
		lines := at.lines(width, height, to.colour)
		text := begin + home + strings.Join(lines, restOf+"\r\n") + restOf + allBelow
		if last {
			text = leave + strings.Join(append(lines, ""), "\r\n")
		}
		begin = ""
		if _, err := io.WriteString(to.out, text); err != nil {
			return fmt.Errorf("draw: %w", err)
		}
		return nil
	}
}

// sizeOf returns a function that returns the size of a terminal, or the usual size.
func sizeOf(out io.Writer) func() (width, height int) {
	file, _ := out.(*os.File) // Nil has no size.
	return func() (int, int) {
		width, height, err := term.GetSize(int(file.Fd()))
		if err != nil || width <= 0 || height <= 0 {
			return cli.Width, 24
		}
		return width, height
	}
}
