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
	// redraw is how often time alone changes what is shown.
	redraw = time.Second
	// calm is how long several changes wait for each other.
	calm = 100 * time.Millisecond
)

// view shows what is followed.
type view interface {
	// show is called with what is, and with what has changed since the call before.
	show(at *moment) error
	// end is called last, and once.
	end(at *moment) error
}

// moment is what is at a time.
type moment struct {
	now     time.Time
	list    []Eviction
	changed []Eviction
	log     *Log
	// lacks say what is not known, and holds what keeps pods.
	lacks, holds []string
}

// follow shows what there is until ctx is done, or, if that is asked for, nothing is left
// to be done.
func follow(ctx context.Context, clients *cli.Clients, clk clock.WithTicker, opts *options, to streams) error {
	ctx, stop := context.WithCancel(ctx)
	feed := NewFeed(clients, clk, opts.wants)
	feed.Check, feed.Complete = opts.check, opts.untilDone
	ended := make(chan error, 1)
	go func() { ended <- feed.Run(ctx) }()
	over, err := watched(ctx, feed, ended, clk, opts, viewOf(opts, to))
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

// watched shows moments as they come. Over says that the feed has ended.
func watched(ctx context.Context, feed *Feed, ended <-chan error, clk clock.WithTicker, opts *options, shows view) (over bool, err error) {
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
			return false, &cli.VerdictError{Reason: fmt.Sprintf("after %s there are pods that have to leave: %s", opts.timeout, open(at.list))}
		case <-ticker.C():
		case <-feed.Changed():
			clk.Sleep(calm)
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

// open says how many pods are left, by state.
func open(list []Eviction) string {
	var parts []string
	left := Open(list)
	for _, state := range States() {
		if left[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", left[state], state))
		}
	}
	return strings.Join(parts, ", ")
}
