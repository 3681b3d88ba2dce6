package evictions

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
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
	show(at *moment) error
	// end is called once, after the last show.
	end(at *moment) error
}

// moment is the list at one time, and its changes since the last one.
type moment struct {
	now     time.Time
	list    []Eviction
	changed []Eviction
	log     *Log
	// lacks are sentences about missing data, holds about holds.
	lacks, holds []string
}

// follow shows updates until ctx is done or, with untilDone, no pods have to leave.
func follow(ctx context.Context, clients *cli.Clients, clk clock.WithTicker, opts *options, to streams) error {
	ctx, stop := context.WithCancel(ctx)
	feed := NewFeed(clients, clk, opts.wants)
	feed.Check, feed.Complete = opts.check, opts.untilDone
	ended := make(chan error, 1)
	go func() { ended <- feed.Run(ctx) }()
	over, err := showUpdates(ctx, feed, ended, clk, opts, viewOf(opts, to))
	stop()
	if over {
		return err
	}
	return cmp.Or(err, <-ended)
}

func viewOf(opts *options, to streams) view {
	switch {
	case opts.output == "json":
		return &lineView{to: to, write: func(changed []Eviction, now time.Time) error {
			return WriteEvents(to.out, changed, now)
		}}
	case to.terminal:
		return &screenView{to: to}
	default:
		return &lineView{to: to, write: NewLines(to.out).Write}
	}
}

// showUpdates calls shows for each update. Over is true if the feed has ended.
func showUpdates(ctx context.Context, feed *Feed, ended <-chan error, clk clock.WithTicker, opts *options, shows view) (over bool, err error) {
	var giveUp <-chan time.Time
	if opts.timeout > 0 {
		timer := clk.NewTimer(opts.timeout)
		defer timer.Stop()
		giveUp = timer.C()
	}
	select {
	case err := <-ended:
		return true, err
	case <-giveUp:
		return false, &cli.VerdictError{Reason: fmt.Sprintf("the cluster was not read within %s", opts.timeout)}
	case <-feed.Synced():
	}
	ticker := clk.NewTicker(redraw)
	defer ticker.Stop()
	log := NewLog(clk.Now())
	for {
		at := look(feed, log, clk.Now(), opts)
		if err := shows.show(at); err != nil {
			return false, err
		}
		if opts.untilDone && len(Open(at.list)) == 0 {
			return false, shows.end(at)
		}
		select {
		case <-ctx.Done():
			return false, shows.end(at)
		case err := <-ended:
			_ = shows.end(at)
			return true, err
		case <-giveUp:
			if err := shows.end(at); err != nil {
				return false, err
			}
			return false, &cli.VerdictError{Reason: fmt.Sprintf("after %s there are pods that have to leave: %s", opts.timeout, openCounts(at.list))}
		case <-ticker.C():
		case <-feed.Changed():
			clk.Sleep(batchDelay)
		}
	}
}

func look(feed *Feed, log *Log, now time.Time, opts *options) *moment {
	list := feed.List(now, &opts.filter)
	return &moment{
		now: now, list: list, changed: log.Next(list, feed.Lives), log: log,
		lacks: feed.Notes(now), holds: Notes(list, now),
	}
}

// openCounts describes the number of pods to leave, by state.
func openCounts(list []Eviction) string {
	var parts []string
	left := Open(list)
	for _, state := range States() {
		if left[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", left[state], state))
		}
	}
	return strings.Join(parts, ", ")
}
