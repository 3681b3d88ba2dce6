package devices

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
)

// batchDelay is how long changes are collected: a driver that republishes a pool writes many
// slices.
const batchDelay = time.Second

// gone is the node column of a removed device.
const gone = "<gone>"

// follow writes devices, and then changed ones, until ctx is done. The watches fill stores, which
// are evaluated as a whole after changes.
func follow(ctx context.Context, clients *cli.Clients, clk clock.WithTicker, filter Filter, output string, out io.Writer) error {
	sources, err := sources(ctx, clients, &filter)
	if err != nil {
		return err
	}
	watching, stop := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop(nil)
	changed := make(chan struct{}, 1)
	signal := func(any) { state.Signal(changed) }
	handler := toolscache.ResourceEventHandlerFuncs{AddFunc: signal, UpdateFunc: func(_, _ any) { state.Signal(changed) }, DeleteFunc: signal}
	stores, synced := make([]toolscache.Store, len(sources)), make([]toolscache.InformerSynced, len(sources))
	for i := range sources {
		store, controller := sources[i].Watch(handler, func(err error, verb string) {
			if refused := state.Refusal(err, verb, sources[i].Resource); refused != nil {
				stop(refused)
			}
		})
		stores[i], synced[i] = store, controller.HasSynced
		running.Go(func() { controller.RunWithContext(watching) })
	}
	if !toolscache.WaitForCacheSync(watching.Done(), synced...) {
		return state.UnlessDone(ctx, context.Cause(watching))
	}
	rows := &changedRows{output: output, out: out, lines: cli.NewLines(out, output == "wide", head(output == "wide"))}
	for {
		inventory, err := fill(filter, stores)
		if err != nil {
			return err
		}
		if all := inventory.rows(watching, output == "wide"); watching.Err() == nil {
			if err := rows.write(all); err != nil {
				return err
			}
		}
		select {
		case <-watching.Done():
			return state.UnlessDone(ctx, context.Cause(watching))
		case <-clk.After(batchDelay):
		}
		select {
		case <-watching.Done():
			return state.UnlessDone(ctx, context.Cause(watching))
		case <-changed:
		}
	}
}

// fill returns an inventory of the objects in stores, which are added by name.
func fill(filter Filter, stores []toolscache.Store) (*Inventory, error) {
	inventory := NewTable(filter)
	for _, store := range stores {
		keys := store.ListKeys()
		slices.Sort(keys)
		for _, key := range keys {
			object, _, err := store.GetByKey(key)
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", key, err)
			}
			if o, ok := object.(runtime.Object); ok {
				if err := inventory.Add(o); err != nil {
					return nil, err
				}
			}
		}
	}
	return inventory, nil
}

// changedRows writes rows that differ from those before, and removed ones.
type changedRows struct {
	output string
	out    io.Writer
	lines  *cli.Lines
	// shown are the last rows, by their first cell.
	shown map[string][]string
}

func (c *changedRows) write(rows [][]string) error {
	now := map[string][]string{}
	var news [][]string
	for _, row := range rows {
		now[row[0]] = row
		if !slices.Equal(c.shown[row[0]], row) {
			news = append(news, row)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.shown)) {
		if now[name] == nil {
			row := slices.Repeat([]string{cli.None}, len(c.shown[name]))
			row[0], row[1] = name, gone
			news = append(news, row)
		}
	}
	c.shown = now
	switch {
	case len(news) == 0:
		return nil
	case c.output != "name":
		return c.lines.Write(news)
	}
	var names strings.Builder
	for _, row := range news {
		names.WriteString(row[0] + "\n")
	}
	_, err := io.WriteString(c.out, names.String())
	return err
}
