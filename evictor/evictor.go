package evictor

import (
	"cmp"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/evictor/ratelimit"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// DefaultMaxAge is the default of MaxAge.
const DefaultMaxAge = 5 * time.Second

// Options configure an Evictor. All fields are required, except those with a default.
type Options struct {
	Source
	Requests
	Events
	Lease
	Clocks
	Decisions
	Listeners

	Metrics *Metrics
	// Tracer makes a span of each attempt to evict a pod; nil makes none.
	Tracer trace.Tracer
}

// Source is the state of the cluster that decisions are made from.
type Source struct {
	// Tracker is updated by watches; the evictor adds the answers to its own requests.
	Tracker *tracker.Tracker
	// Synced reports whether the tracker has all objects that existed at the start.
	Synced func() bool
	// Missing returns the names of the objects that Synced waits for, for the log.
	Missing func() []string
}

// Requests configure how the evictor reads and deletes objects.
type Requests struct {
	// Client makes the requests. Its rate limit has to allow for two requests an eviction.
	Client kubernetes.Interface
	// Carriers reads ResourceSlices and DeviceTaintRules from the API server, the latter in the
	// served version; nil if taints of devices do not evict.
	Carriers Carriers
	// Workers is the number of pods that are processed concurrently.
	Workers int
	// MaxAge is the maximum age of the last read of the object that carries a taint when a pod
	// is evicted because of it; DefaultMaxAge when zero.
	MaxAge time.Duration
}

// Events are the recorders of events.
type Events struct {
	// Recorder writes the events about taints of nodes. It must not block, and should not share
	// the rate limit of Client.
	Recorder recorder
	// DeviceRecorder writes the events about taints of devices, which have another source
	// component (DE-42).
	DeviceRecorder recorder
}

// Lease is how the evictor respects the lease of the leader.
type Lease struct {
	// Leads reports whether this replica holds the lease: a process that was suspended may have
	// lost it (H05). It is called at the start of an attempt and before each write.
	Leads func() bool
	// AttemptTimeout bounds all requests of one attempt together. It must be at most
	// leaseDuration - renewDeadline, so that an attempt that began while this replica led ends
	// before another replica can acquire the lease.
	AttemptTimeout time.Duration
}

// Clocks are the clocks of the evictor.
type Clocks struct {
	// Clock has the time of the API server, for deadlines, first-seen times and lateness only.
	// It may jump by hours in both directions, when the clock of the server is set or another
	// server answers.
	Clock clock.WithTicker
	// Local is the clock of this machine, for sleeps and ages.
	Local clock.WithTicker
}

// Decisions are the settings and policies by which pods are evicted or held.
type Decisions struct {
	Rules decide.Rules
	// Mode says which evictions Tollgate carries out.
	Mode Mode
	// Policies returns the EvictionPolicies in force; nil for none. NamespaceLabels
	// returns the labels of a namespace, and false if they are not known.
	Policies        func() *eviction.Set
	NamespaceLabels func(name string) (labels.Labels, bool)
	// Breaker is the check that bounds the number of pods that leave in a window.
	Breaker checks.Check
}

// Listeners are functions that the evictor calls, which must not block.
type Listeners struct {
	// FitChanged is called when the finding about whether the mode fits the cluster changes.
	FitChanged func(ModeFinding)
	// RulesChanged is called with the names of DeviceTaintRules whose pending or evicted pods
	// have changed, and PatchesChanged with those of ResourceSlicePatches.
	RulesChanged   func(rules []string)
	PatchesChanged func(patches []string)
}

// Evictor evicts pods that may not stay on their nodes or with their devices. It runs only while
// this replica leads.
type Evictor struct {
	options  Options
	tracker  *tracker.Tracker
	clock    clock.PassiveClock
	local    clock.WithTicker
	metrics  *Metrics
	effector act.Effector
	requests *act.Requests
	state    *state
	confirm  *confirmer
	announce *announcer
	odd      oddTimes
	throttle *throttle
	fit      *modeCheck
	// standing are the checks that only read state. granting are the checks that reserve
	// something for a pod; the breakers are the last of them.
	standing, granting checks.List
	rates              *ratelimit.Queue
	disruption         checks.NodeDisruption
	loops              *checks.Loops
	// woken counts how often held pods were woken.
	woken atomic.Uint64
	// overdueCounted is the time of the last count of overdue pods. Only housekeep uses it.
	overdueCounted time.Time

	pods  *controller.Controller[tracker.Key]
	nodes *controller.Controller[string]
	// running is true while the evictor leads.
	running atomic.Bool
}

// New returns an evictor. Start starts it.
func New(options Options) *Evictor {
	options.MaxAge = cmp.Or(options.MaxAge, DefaultMaxAge)
	options.Rules.Window = options.Mode == ModeWindow
	requests := act.New(options.Client, options.Clock, options.Leads)
	e := &Evictor{
		options: options, tracker: options.Tracker, clock: options.Clock, local: options.Local, metrics: options.Metrics,
		effector: requests, requests: requests,
		announce: &announcer{
			Events: options.Events, metrics: options.Metrics, clock: options.Local,
			rate: rate.NewLimiter(eventRate, eventBurst), holds: rate.NewLimiter(eventRate, eventBurst),
			summaries: map[tracker.Source]*summary{},
		},
		odd:      oddTimes{reported: map[tracker.Source][]tracker.Taint{}},
		throttle: newThrottle(options.Workers, options.Local),
		fit:      &modeCheck{mode: options.Mode},
		rates:    ratelimit.NewQueue(),
		loops:    checks.NewLoops(),
	}
	e.state = newState(e.authorsChanged, func(author tracker.Source) bool {
		return e.tracker.UIDOf(author) == author.UID
	}, options.Local.Now)
	e.standing = checks.Standing(checks.Cluster{
		Tracker: options.Tracker, NodesDown: &e.disruption, Loops: e.loops, Window: options.Mode == ModeWindow, Observe: e.observeNodes,
	})
	budgets := checks.NewBudgets(checks.BudgetOptions{Of: options.Tracker.Budgets, Pending: e.state.isPending, Wake: e.PodsChanged})
	e.granting = checks.List{checks.Rate(e.rates), budgets.Ask, options.Breaker}
	e.metrics.evictor.Store(e)
	e.confirm = newConfirmer(&e.options)
	e.newQueues()
	return e
}
