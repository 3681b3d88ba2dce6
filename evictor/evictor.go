package evictor

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/evictor/confirm"
	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/evictor/ratelimit"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// DefaultMaxAge is the default of MaxAge.
const DefaultMaxAge = 5 * time.Second

// Options configure an Evictor. Fields are required, unless they say what stands for them.
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
	// Tracker is fed by watches; the evictor adds the answers to its own requests.
	Tracker *tracker.Tracker
	// Synced reports whether the tracker has all objects that existed at the start.
	Synced func() bool
	// Missing returns the names of the objects that Synced waits for, for the log.
	Missing func() []string
}

// Requests are how the evictor reads and deletes objects.
type Requests struct {
	// Client makes the requests. An eviction takes two of them, which its rate limit should
	// allow for.
	Client kubernetes.Interface
	// Carriers reads ResourceSlices and DeviceTaintRules as they are now, the latter
	// in whatever version they are served; nil where taints of devices do not evict.
	Carriers confirm.Carriers
	// Workers is how many pods that use claims, and how many that do not, are evicted
	// at once.
	Workers int
	// MaxAge is how old the last reading of the object that carries a taint may be when
	// a pod is evicted because of it; DefaultMaxAge when zero.
	MaxAge time.Duration
}

// Events are the recorders of events.
type Events struct {
	// Recorder writes the events about taints of nodes. It must not block, and should
	// not share the limits of the client of the requests.
	Recorder recorder
	// DeviceRecorder writes those about taints of devices, which have another source
	// component (DE-42).
	DeviceRecorder recorder
}

// Lease is the lease of the leader, as the evictor has to respect it.
type Lease struct {
	// Leads reports whether this replica still holds the lease: a process that was frozen
	// may have lost it (H05). It is called at the beginning of an attempt and again before
	// each request that changes something.
	Leads func() bool
	// AttemptTimeout bounds all requests of one attempt together, and with that
	// for how long it may be frozen. It must be no longer than the lease lasts beyond the time for which
	// Leads returns true after a renewal (leaseDuration - renewDeadline): an attempt
	// that began while this replica led is then over before another can take the
	// lease.
	AttemptTimeout time.Duration
}

// Clocks are the clocks of the evictor.
type Clocks struct {
	// Clock has the time of the API server. Deadlines, first-seen times and lateness are
	// measured by it, and nothing else: it may jump either way by hours, when the server's
	// clock is set or another server answers.
	Clock clock.WithTicker
	// Local is the clock of this machine. Sleeps and ages are measured by it.
	Local clock.WithTicker
}

// Decisions are the settings and policies by which pods are evicted or held.
type Decisions struct {
	Rules decide.Rules
	// Mode is how far taints have an effect at all.
	Mode Mode
	// Policies returns the EvictionPolicies in force; nil for none. NamespaceLabels
	// returns the labels of a namespace, and false if they are not known.
	Policies        func() *eviction.Set
	NamespaceLabels func(name string) (labels.Labels, bool)
	// Breaker is the check that bounds how many pods leave in a window.
	Breaker checks.Check
}

// Listeners are functions that the evictor calls, which must not block.
type Listeners struct {
	// FitChanged is called with whether the mode fits the cluster, whenever that changes.
	FitChanged func(ModeFinding)
	// RulesChanged is called with the names of DeviceTaintRules for which other pods have to
	// leave than before, or were evicted, and PatchesChanged with those of ResourceSlicePatches.
	RulesChanged   func(rules []string)
	PatchesChanged func(patches []string)
}

// Evictor evicts pods that may not stay on their nodes or with their devices. It runs on
// the leader only.
type Evictor struct {
	options  Options
	tracker  *tracker.Tracker
	clock    clock.PassiveClock
	local    clock.WithTicker
	metrics  *Metrics
	effector act.Effector
	requests *act.Requests
	book     *book
	confirm  *confirm.Confirmer
	announce *announcer
	odd      oddTimes
	throttle *throttle
	fit      *modeCheck
	round    round
	// standing are the checks that give nothing, and granting those that give something to a pod,
	// the last of which is that of the breakers.
	standing, granting checks.List
	rates              *ratelimit.Queue
	disruption         *checks.NodeDisruption
	loops              *checks.Loops
	// woken counts how often those that are held were to be looked at.
	woken atomic.Uint64
	// looked is when overdue pods were last counted; it belongs to housekeep.
	looked time.Time

	queues queues
	// starting is done when all queues take pods and nodes.
	starting sync.WaitGroup
	// busy has the pods that workers handle.
	busy sync.Map
	// running is true while the evictor leads.
	running atomic.Bool
}

// New returns an evictor. It starts nothing: that is what Start does.
func New(options Options) *Evictor {
	options.MaxAge = cmp.Or(options.MaxAge, DefaultMaxAge)
	options.Rules.Window = options.Mode == ModeWindow
	requests := act.New(options.Client, options.Clock, options.Leads)
	e := &Evictor{
		options: options, tracker: options.Tracker, clock: options.Clock, local: options.Local, metrics: options.Metrics,
		effector: requests, requests: requests,
		announce:   newAnnouncer(options.Recorder, options.DeviceRecorder, options.Metrics, options.Local),
		odd:        oddTimes{told: map[tracker.Source][]tracker.Taint{}},
		throttle:   newThrottle(2*options.Workers, options.Local),
		fit:        &modeCheck{mode: options.Mode},
		rates:      ratelimit.NewQueue(),
		disruption: &checks.NodeDisruption{},
		loops:      checks.NewLoops(),
	}
	e.book = newBook(e.authorsChanged, func(author tracker.Source) bool {
		return e.tracker.UIDOf(author) == author.UID
	}, options.Local.Now)
	e.standing = checks.Standing(checks.Cluster{
		Tracker: options.Tracker, NodesDown: e.disruption, Loops: e.loops, Window: options.Mode == ModeWindow, Observe: e.lookAtNodes,
	})
	budgets := checks.NewBudgets(checks.BudgetOptions{Of: options.Tracker.Budgets, Pending: e.book.pending, Wake: e.PodsChanged})
	e.granting = checks.List{checks.Rate(e.rates), budgets.Ask, options.Breaker}
	e.metrics.counts.Store(new(e.counts))
	e.confirm = confirm.New(confirm.Options{
		Tracker: options.Tracker, Nodes: options.Client.CoreV1(), Carriers: options.Carriers, Clock: options.Clock, Local: options.Local,
		MaxAge: options.MaxAge, AttemptTimeout: options.AttemptTimeout,
	})
	e.queues = e.newQueues()
	return e
}
