package evictions

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// Feed follows a cluster by watches. Its methods are goroutine-safe.
type Feed struct {
	clients *cli.Clients
	clock   clock.PassiveClock
	wants   state.Wants
	// Check is asked about the cluster as it was at the beginning, if it is not nil: its
	// error ends Run. Complete says that what makes pods leave must be known in full. Both
	// are set before Run.
	Check    func(*state.Cluster) error
	Complete bool
	synced   chan struct{}
	changed  chan struct{}

	mu sync.Mutex
	// shown is what is known. Its tracker and policies are those of the watches.
	shown      Cluster
	heeds      bool
	policies   map[string]v1alpha1.EvictionPolicy
	namespaces map[string]labels.Set
	// missing are the sentences of the first read, and refused those about watches that the
	// user may not have, by what is watched.
	missing []string
	refused map[schema.GroupResource]string
	// trouble is what went wrong last, and when.
	trouble   string
	troubleAt time.Time
}

// NewFeed returns a feed that follows nothing until it runs.
func NewFeed(clients *cli.Clients, clk clock.PassiveClock, wants state.Wants) *Feed {
	return &Feed{
		clients: clients, clock: clk, wants: wants, synced: make(chan struct{}), changed: make(chan struct{}, 1),
		policies: map[string]v1alpha1.EvictionPolicy{}, namespaces: map[string]labels.Set{}, refused: map[schema.GroupResource]string{},
	}
}

// Synced is closed once all that there was at the beginning is known.
func (f *Feed) Synced() <-chan struct{} { return f.synced }

// Changed gets a value when there may be something new.
func (f *Feed) Changed() <-chan struct{} { return f.changed }

// Run follows the cluster until ctx is done, and returns nil then. An error is that of a
// cluster that cannot be followed, and says what to do about it.
func (f *Feed) Run(ctx context.Context) error {
	_, first, missing, events, err := readAll(ctx, f.clients, f.clock.Now(), f.wants)
	f.clients.Progress.End()
	if err != nil {
		return unlessDone(ctx, err)
	}
	if err := f.check(first); err != nil {
		return err
	}
	f.begin(first, missing)
	watches, err := f.watches(ctx, first, events)
	if err != nil {
		return unlessDone(ctx, err)
	}
	// Client libraries log what goes wrong, over what is shown; it is told otherwise.
	watching, stop := context.WithCancelCause(logr.NewContext(ctx, logr.Discard()))
	var running sync.WaitGroup
	defer running.Wait()
	defer stop(nil)
	for _, w := range watches {
		w.failed = func(err error) { f.failed(w, err, stop) }
		running.Go(func() { w.run(watching) })
	}
	running.Go(func() { f.followLease(watching, first, missing[len(first.Missing()):]) })
	for _, w := range watches {
		select {
		case <-w.synced:
		case <-w.refused:
		case <-watching.Done():
			return unlessDone(ctx, context.Cause(watching))
		}
	}
	close(f.synced)
	<-watching.Done()
	return unlessDone(ctx, context.Cause(watching))
}

// leaseEvery is how often it is read how Tollgate evicts, and whether it runs.
const leaseEvery = 15 * time.Second

// followLease reads the Lease of Tollgate again and again until ctx is done. Other are the
// sentences about the first read that are not those of the cluster.
func (f *Feed) followLease(ctx context.Context, first *state.Cluster, other []string) {
	ticker := time.NewTicker(leaseEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		again, err := first.Again(ctx, f.clients, f.clock.Now())
		f.change(func() {
			if err != nil {
				f.trouble, f.troubleAt = err.Error(), f.clock.Now()
				return
			}
			is := shownOf(again)
			f.shown.Mode, f.shown.NodesOff, f.shown.DevicesOff, f.shown.Rules = is.Mode, is.NodesOff, is.DevicesOff, is.Rules
			f.heeds, f.shown.Set = again.Tollgate.Terms.Policies, nil
			f.missing = slices.Concat(again.Missing(), other)
			f.compile()
		})
	}
}

// unlessDone returns an error, but nil once ctx is done: that is why there is one.
func unlessDone(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return nil
	default:
		return err
	}
}

// check asks whether the cluster is what is wanted.
func (f *Feed) check(first *state.Cluster) error {
	if f.Complete {
		var lacks []string
		for _, resource := range reasons {
			if first.Unread(resource.Resource) {
				lacks = append(lacks, "you may not list "+resource.Resource+cli.AskFor("list", resource))
			}
		}
		if len(lacks) > 0 {
			return fmt.Errorf("whether no pod has to leave cannot be told: %s", strings.Join(lacks, "; "))
		}
	}
	if f.Check == nil {
		return nil
	}
	return f.Check(first)
}

// begin takes over what the watches do not bring.
func (f *Feed) begin(first *state.Cluster, missing []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.missing = missing
	f.shown = *shownOf(first)
	f.shown.Tracker, f.shown.Set, f.shown.Policies = tracker.New(), nil, nil
	f.shown.Namespaces = func(name string) (labels.Labels, bool) { // It is called under the lock, by List.
		set, known := f.namespaces[name]
		return set, known
	}
	f.heeds = first.Tollgate.Terms.Policies
	// Who may not follow namespaces may know that one.
	if known, ok := first.NamespaceLabels(f.wants.Namespace); ok {
		if set, ok := known.(labels.Set); ok {
			f.namespaces[f.wants.Namespace] = set
		}
	}
}

// List returns what Cluster.List does.
func (f *Feed) List(now time.Time, filter *Filter) []Eviction {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shown.List(now, filter)
}

// Lives reports whether a pod is there and is not over, or about to be.
func (f *Feed) Lives(key tracker.Key) bool {
	f.mu.Lock()
	known := f.shown.Tracker
	f.mu.Unlock()
	situation, found := known.Lookup(key)
	return found && !situation.Pod.Finished && !situation.Pod.Terminating
}

// Notes say what is lacking, and what goes wrong at the moment.
func (f *Feed) Notes(now time.Time) []string {
	const lately = 15 * time.Second
	f.mu.Lock()
	defer f.mu.Unlock()
	notes := slices.Clone(f.missing)
	for _, resource := range slices.SortedFunc(maps.Keys(f.refused), func(a, b schema.GroupResource) int { return cmp.Compare(a.String(), b.String()) }) {
		notes = append(notes, f.refused[resource])
	}
	if f.trouble != "" && now.Sub(f.troubleAt) < lately {
		notes = append(notes, "what is shown may be old: "+f.trouble)
	}
	return notes
}

// failed takes in what went wrong with a watch. What the user may not see, and nothing can
// be told without, ends all.
func (f *Feed) failed(w *feedWatch, err error, stop context.CancelCauseFunc) {
	refused := feedRefusal(err, "watch", w.resource)
	if refused != nil && (w.needed || (f.Complete && slices.Contains(reasons, w.resource))) {
		stop(refused)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if refused != nil {
		listed := func(sentence string) bool { return strings.Contains(sentence, "list "+w.resource.Resource+":") }
		if !slices.ContainsFunc(f.missing, listed) {
			f.refused[w.resource] = refused.Error()
		}
		w.refuse()
		return
	}
	f.trouble, f.troubleAt = "watch "+w.resource.String()+": "+err.Error(), f.clock.Now()
}

// poke says that there may be something new.
func (f *Feed) poke() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// change changes what is known beside the tracker.
func (f *Feed) change(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	f.poke()
}

func (f *Feed) setPolicy(policy *v1alpha1.EvictionPolicy) {
	f.change(func() {
		f.policies[policy.Name] = *policy
		f.compile()
	})
}

func (f *Feed) dropPolicy(policy *v1alpha1.EvictionPolicy) {
	f.change(func() {
		if f.policies[policy.Name].UID == policy.UID {
			delete(f.policies, policy.Name)
		}
		f.compile()
	})
}

// compile puts the policies in force. The mutex is held.
func (f *Feed) compile() {
	f.shown.Policies = f.shown.Policies[:0:0]
	for _, name := range slices.Sorted(maps.Keys(f.policies)) {
		f.shown.Policies = append(f.shown.Policies, f.policies[name])
	}
	if f.heeds {
		f.shown.Set = eviction.Compile(f.shown.Policies)
	}
}

// PodsChanged implements the listener of tracker/informer, as the methods below.
func (f *Feed) PodsChanged(keys []tracker.Key) {
	if len(keys) > 0 {
		f.poke()
	}
}

// NodeChanged is described at PodsChanged.
func (f *Feed) NodeChanged(string) {}

// RuleChanged is described at PodsChanged.
func (f *Feed) RuleChanged(string) { f.poke() }
