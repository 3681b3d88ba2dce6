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

// Feed watches a cluster. Its methods are safe for concurrent use.
type Feed struct {
	clients *cli.Clients
	clock   clock.PassiveClock
	wants   state.Wants
	// Check, if not nil, is called with the first snapshot; its error ends Run. Complete requires
	// all sources of taints. Set both before Run.
	Check    func(*state.Cluster) error
	Complete bool
	synced   chan struct{}
	changed  chan struct{}

	mu sync.Mutex
	// shown is the current state, fed by the watches.
	shown      Cluster
	heeds      bool
	policies   map[string]v1alpha1.EvictionPolicy
	namespaces map[string]labels.Set
	// missing are the sentences of the first read, and refused those of forbidden watches, by
	// resource.
	missing []string
	refused map[schema.GroupResource]string
	// trouble is the last error of a watch, and troubleAt its time.
	trouble   string
	troubleAt time.Time
}

// NewFeed returns a feed. Run starts the watches.
func NewFeed(clients *cli.Clients, clk clock.PassiveClock, wants state.Wants) *Feed {
	return &Feed{
		clients: clients, clock: clk, wants: wants, synced: make(chan struct{}), changed: make(chan struct{}, 1),
		policies: map[string]v1alpha1.EvictionPolicy{}, namespaces: map[string]labels.Set{}, refused: map[schema.GroupResource]string{},
	}
}

// Synced is closed once the first lists are complete.
func (f *Feed) Synced() <-chan struct{} { return f.synced }

// Changed is a buffered signal channel of size 1; it receives after changes.
func (f *Feed) Changed() <-chan struct{} { return f.changed }

// Run watches the cluster until ctx is done, and then returns nil. Other errors have advice.
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
	// Client libraries would log errors over the screen; Notes has them.
	watching, stop := context.WithCancelCause(logr.NewContext(ctx, logr.Discard()))
	var running sync.WaitGroup
	defer running.Wait()
	defer stop(nil)
	for _, w := range watches {
		w.failed = func(err error) { f.failed(w, err, stop) }
		running.Go(func() { w.run(watching) })
	}
	running.Go(func() { f.pollLease(watching, first, missing[len(first.Missing()):]) })
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

// leaseInterval is how often the Lease of Tollgate is read.
const leaseInterval = 15 * time.Second

// pollLease reads the Lease of Tollgate every leaseInterval until ctx is done. Other are the
// sentences of the first read that are not from the snapshot.
func (f *Feed) pollLease(ctx context.Context, first *state.Cluster, other []string) {
	ticker := time.NewTicker(leaseInterval)
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

// unlessDone returns err, or nil once ctx is done, which then caused it.
func unlessDone(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return nil
	default:
		return err
	}
}

// check returns an error if a required source is missing, or that of Check.
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

// begin copies the fields of the first snapshot that no watch updates.
func (f *Feed) begin(first *state.Cluster, missing []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.missing = missing
	f.shown = *shownOf(first)
	f.shown.Tracker, f.shown.Set, f.shown.Policies = tracker.New(), nil, nil
	f.shown.Namespaces = func(name string) (labels.Labels, bool) { // Called by List under the lock.
		set, ok := f.namespaces[name]
		return set, ok
	}
	f.heeds = first.Tollgate.Terms.Policies
	// A user who may not watch namespaces may get one.
	if own, ok := first.NamespaceLabels(f.wants.Namespace); ok {
		if set, ok := own.(labels.Set); ok {
			f.namespaces[f.wants.Namespace] = set
		}
	}
}

// List is Cluster.List of the current state.
func (f *Feed) List(now time.Time, filter *Filter) []Eviction {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shown.List(now, filter)
}

// Lives reports whether a pod exists and is neither finished nor terminating.
func (f *Feed) Lives(key tracker.Key) bool {
	f.mu.Lock()
	pods := f.shown.Tracker
	f.mu.Unlock()
	situation, found := pods.Lookup(key)
	return found && !situation.Pod.Finished && !situation.Pod.Terminating
}

// Notes returns sentences about missing data and about errors in the last 15 s.
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

// failed records an error of a watch. A forbidden watch that is required ends Run.
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

// signal sends to Changed without blocking.
func (f *Feed) signal() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// change updates state besides the tracker, under the lock.
func (f *Feed) change(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	f.signal()
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

// compile compiles the policies in force. The caller holds mu.
func (f *Feed) compile() {
	f.shown.Policies = f.shown.Policies[:0:0]
	for _, name := range slices.Sorted(maps.Keys(f.policies)) {
		f.shown.Policies = append(f.shown.Policies, f.policies[name])
	}
	if f.heeds {
		f.shown.Set = eviction.Compile(f.shown.Policies)
	}
}

// PodsChanged implements the listener of tracker/informer, as do the methods below.
func (f *Feed) PodsChanged(keys []tracker.Key) {
	if len(keys) > 0 {
		f.signal()
	}
}

// NodeChanged implements the listener of tracker/informer.
func (f *Feed) NodeChanged(string) {}

// RuleChanged signals a change.
func (f *Feed) RuleChanged(string) { f.signal() }
