package devices

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// batchDelay is how long changes are collected: a driver that republishes a pool writes many
// slices.
const batchDelay = time.Second

// gone is the node column of a removed device.
const gone = "<gone>"

// follower writes devices, and then changed ones. Watches fill stores, which are evaluated as a
// whole after changes.
type follower struct {
	clients *cli.Clients
	clock   clock.WithTicker
	filter  Filter
	output  string

	changed chan struct{}
	// The stores of resources that are not served are nil.
	slices, classes, claims, patches, rules toolscache.Store
	// shown are the last written rows, by their first cell.
	shown map[string][]string
}

func newFollower(clients *cli.Clients, clk clock.WithTicker, filter Filter, output string) *follower {
	return &follower{clients: clients, clock: clk, filter: filter, output: output, changed: make(chan struct{}, 1), shown: map[string][]string{}}
}

// run writes until ctx is done, and then returns nil.
func (f *follower) run(ctx context.Context, out io.Writer) error {
	watches, err := f.watches(ctx)
	if err != nil {
		return err
	}
	// Logs of client libraries would mix with the rows.
	watching, stop := context.WithCancelCause(logr.NewContext(ctx, logr.Discard()))
	var running sync.WaitGroup
	defer running.Wait()
	defer stop(nil)
	for _, w := range watches {
		w.refuse = stop
		running.Go(func() { w.controller.RunWithContext(watching) })
	}
	for _, w := range watches {
		if !toolscache.WaitForCacheSync(watching.Done(), w.controller.HasSynced) {
			return ended(ctx, watching)
		}
	}
	lines := cli.NewLines(out, f.output == "wide", Head(f.output == "wide"))
	for {
		if err := f.show(watching, out, lines); err != nil {
			return err
		}
		select {
		case <-watching.Done():
			return ended(ctx, watching)
		case <-f.clock.After(batchDelay):
		}
		select {
		case <-watching.Done():
			return ended(ctx, watching)
		case <-f.changed:
		}
	}
}

// ended returns the cause of the end; nil for a regular end.
func ended(ctx, watching context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	default:
		return context.Cause(watching)
	}
}

// show writes changed rows.
func (f *follower) show(ctx context.Context, out io.Writer, lines *cli.Lines) error {
	inventory, err := f.inventory()
	if err != nil {
		return err
	}
	rows, now := inventory.Rows(ctx, f.output == "wide"), map[string][]string{}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // Not all rows are there, and who called sees that it is over.
	}
	var news [][]string
	for _, row := range rows {
		now[row[0]] = row
		if !slices.Equal(f.shown[row[0]], row) {
			news = append(news, row)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.shown)) {
		if _, there := now[name]; !there {
			row := slices.Repeat([]string{cli.None}, len(f.shown[name]))
			row[0], row[1] = name, gone
			news = append(news, row)
		}
	}
	f.shown = now
	if len(news) == 0 {
		return nil
	}
	if f.output == "name" {
		return writeNames(out, news)
	}
	return lines.Write(news)
}

func writeNames(out io.Writer, rows [][]string) error {
	var text strings.Builder
	for _, row := range rows {
		text.WriteString(row[0] + "\n")
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// inventory returns the inventory of the stores.
func (f *follower) inventory() (*Inventory, error) {
	v := NewTable(f.filter)
	err := errors.Join(
		eachOf(f.patches, cli.As("ResourceSlicePatch", func(patch *v1alpha1.ResourceSlicePatch) error { v.AddPatch(patch); return nil })),
		eachOf(f.classes, func(class *resourcev1.DeviceClass) error { v.AddClass(class); return nil }),
		eachOf(f.rules, func(object *unstructured.Unstructured) error { return addRule(v, object) }),
		eachOf(f.slices, func(slice *resourcev1.ResourceSlice) error { v.AddSlice(slice); return nil }),
		eachOf(f.claims, func(claim *resourcev1.ResourceClaim) error { v.AddClaim(claim); return nil }),
	)
	return v, err
}

// eachOf calls take for each object of a store, ordered by name.
func eachOf[T any](store toolscache.Store, take func(T) error) error {
	if store == nil {
		return nil
	}
	keys := store.ListKeys()
	slices.Sort(keys)
	for _, key := range keys {
		object, there, err := store.GetByKey(key)
		if err != nil {
			return fmt.Errorf("read %s: %w", key, err)
		}
		if typed, ok := object.(T); ok && there {
			if err := take(typed); err != nil {
				return err
			}
		}
	}
	return nil
}

// watches returns the watches of all served resources, and creates their stores.
func (f *follower) watches(ctx context.Context) ([]*watch, error) {
	if _, err := f.clients.Version(ctx, sliceResource, "v1"); err != nil {
		return nil, fmt.Errorf("%w (devices need Kubernetes 1.34 or later)", err)
	}
	client := f.clients.Kubernetes
	list := []*watch{
		watchOf(f, &f.classes, classResource, client.ResourceV1().DeviceClasses(), client, &resourcev1.DeviceClass{}),
		watchOf(f, &f.slices, sliceResource, client.ResourceV1().ResourceSlices(), client, &resourcev1.ResourceSlice{}),
		watchOf(f, &f.claims, claimResource, client.ResourceV1().ResourceClaims(metav1.NamespaceAll), client, &resourcev1.ResourceClaim{}),
	}
	for _, custom := range []struct {
		store    *toolscache.Store
		resource schema.GroupResource
		versions []string
	}{
		{&f.patches, patchResource, []string{v1alpha1.GroupVersion.Version}},
		{&f.rules, informer.RuleResource, ruleVersions()},
	} {
		version, err := f.clients.Version(ctx, custom.resource, custom.versions...)
		if errors.Is(err, cli.ErrNotServed) {
			continue
		}
		if err != nil {
			return nil, err
		}
		through := f.clients.Dynamic.Resource(custom.resource.WithVersion(version))
		list = append(list, watchOf(f, custom.store, custom.resource, through, f.clients.Dynamic, &unstructured.Unstructured{}))
	}
	return list, nil
}
