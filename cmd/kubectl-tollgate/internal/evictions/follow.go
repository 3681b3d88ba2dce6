package evictions

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	// redraw is the interval at which relative times are updated.
	redraw = time.Second
	// batchDelay is how long changes are collected before an update.
	batchDelay = 100 * time.Millisecond
)

// view shows updates of the list.
type view interface {
	// show is called at each update.
	show(at *Frame) error
	// end is called once, after the last show.
	end(at *Frame) error
}

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

// showFunc is a view that has no end of its own.
type showFunc func(at *Frame) error

func (f showFunc) show(at *Frame) error { return f(at) }

func (showFunc) end(*Frame) error { return nil }

// Watch calls show with each update until ctx is done or show returns an error. Updates come after
// changes, and each second.
func Watch(ctx context.Context, clients *cli.Clients, wants state.Wants, show func(*Frame) error) error {
	return follow(ctx, clients, &options{wants: wants}, showFunc(show))
}

// viewOf returns the view for an output.
func viewOf(opts *options, to streams) view {
	switch {
	case opts.output.Format == "json":
		return &lineView{to: to, write: func(changed []Eviction, now time.Time) error { return WriteChanges(to.out, changed, now) }}
	case to.terminal:
		return &screenView{to: to}
	default:
		return &lineView{to: to, write: ChangeLines(to.out)}
	}
}

// follow shows updates until ctx is done or, with untilDone, no pods have to leave.
func follow(ctx context.Context, clients *cli.Clients, opts *options, shows view) error {
	clk := clock.RealClock{}
	ctx, stop := context.WithCancel(ctx)
	feed := &feed{
		clients: clients, clock: clk, opts: opts, synced: make(chan struct{}), changed: make(chan struct{}, 1),
		refused: map[string]string{},
	}
	ended := make(chan error, 1)
	go func() {
		defer close(ended)
		ended <- feed.run(ctx)
	}()
	err := showUpdates(ctx, feed, ended, clk, opts, shows)
	stop()
	return cmp.Or(err, <-ended)
}

// showUpdates calls shows for each update until the feed has ended.
func showUpdates(ctx context.Context, feed *feed, ended <-chan error, clk clock.WithTicker, opts *options, shows view) error {
	var giveUp <-chan time.Time
	if opts.timeout > 0 {
		timer := clk.NewTimer(opts.timeout)
		defer timer.Stop()
		giveUp = timer.C()
	}
	select {
	case err := <-ended:
		return err
	case <-giveUp:
		return &cli.VerdictError{Reason: fmt.Sprintf("the cluster was not read within %s", opts.timeout)}
	case <-feed.synced:
	}
	ticker := clk.NewTicker(redraw)
	defer ticker.Stop()
	log := NewLog(clk.Now())
	for {
		now := clk.Now()
		list, cluster := feed.list(now)
		at := &Frame{
			Now: now, List: list, Changed: log.Next(list, feed.lives), Log: log, Lacks: feed.notes(now), Holds: Notes(list, now), Cluster: cluster,
		}
		if err := shows.show(at); err != nil {
			return err
		}
		if opts.untilDone && len(Open(list)) == 0 {
			return shows.end(at)
		}
		select {
		case <-ctx.Done():
			return shows.end(at)
		case err := <-ended:
			_ = shows.end(at)
			return err
		case <-giveUp:
			if err := shows.end(at); err != nil {
				return err
			}
			return &cli.VerdictError{Reason: fmt.Sprintf("after %s there are pods that have to leave: %s", opts.timeout, openCounts(list))}
		case <-ticker.C():
		case <-feed.changed:
			clk.Sleep(batchDelay)
		}
	}
}

// openCounts returns the number of pods to leave, by state.
func openCounts(list []Eviction) string {
	var counts []string
	open := Open(list)
	for _, s := range states {
		if open[s] > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", open[s], s))
		}
	}
	return strings.Join(counts, ", ")
}

// lineView writes changes, for files and pipes.
type lineView struct {
	to    streams
	write func(changed []Eviction, now time.Time) error
	// lacks are the sentences already written: each is written once.
	lacks []string
}

func (v *lineView) show(at *Frame) error {
	for _, lack := range at.Lacks {
		if slices.Contains(v.lacks, lack) {
			continue
		}
		v.lacks = append(v.lacks, lack)
		if err := cli.WriteWrapped(v.to.notes, "", []string{lack}); err != nil {
			return err
		}
	}
	return v.write(at.Changed, at.Now)
}

// end writes the holds, which change too often to be written before.
func (v *lineView) end(at *Frame) error {
	notes := at.Holds
	if len(at.List) == 0 {
		notes = []string{"no pod has to leave"}
	}
	return cli.WriteWrapped(v.to.notes, "", notes)
}

// ChangeLines returns a function that writes a line for each change, under one head. It is not
// safe for concurrent use.
func ChangeLines(out io.Writer) func(changed []Eviction, now time.Time) error {
	table := cli.NewLines(out, false, []string{"TIME", "NAMESPACE", "POD", "WHEN", "STATE", "REASON"})
	return func(changed []Eviction, now time.Time) error {
		if len(changed) == 0 {
			return nil
		}
		rows := make([][]string, 0, len(changed))
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
	return &Log{Since: now, before: map[tracker.Key]Eviction{}, gone: map[tracker.Source]int{}}
}

// Next returns the changes since the last list: new and changed pods, and removed ones with the
// state Gone or Staying. Lives reports whether a pod exists and is not finished.
func (l *Log) Next(list []Eviction, lives func(tracker.Key) bool) []Eviction {
	var changed []Eviction
	now := make(map[tracker.Key]Eviction, len(list))
	for _, e := range list {
		now[e.Key] = e
		if before, found := l.before[e.Key]; !found || differs(&before, &e) {
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
	slices.SortFunc(left, compare)
	l.before = now
	return append(left, changed...)
}

// differs reports whether a visible field of a pod changed.
func differs(a, b *Eviction) bool {
	return a.State != b.State || !a.At.Equal(b.At) || a.By != b.By || a.Hold.Reason != b.Hold.Reason || a.Hold.By != b.Hold.By ||
		author(a) != author(b)
}

func author(e *Eviction) tracker.Source {
	source := e.Because[0].Taint.Author()
	source.UID = ""
	return source
}

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
	count := func(source tracker.Source, in State, pods int) {
		if by[source] == nil {
			by[source] = map[State]int{}
		}
		by[source][in] += pods
	}
	for source, gone := range l.gone {
		count(source, Gone, gone)
	}
	for _, e := range l.before {
		count(author(&e), e.State, 1)
	}
	groups := make([]Group, 0, len(by))
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
