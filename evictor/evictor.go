package evictor

import (
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/tracker"
)

// The defaults of Options.
const (
	DefaultWorkers        = 16
	DefaultMaxNodeAge     = 5 * time.Second
	DefaultAttemptTimeout = 10 * time.Second
	DefaultEventRate      = 10
	DefaultEventBurst     = 100
)

// queueName is the name label of the workqueue metrics.
const queueName = "taint-eviction-controller"

// Options are what an Evictor works with. Fields without a default are required.
type Options struct {
	// Tracker is what decisions are made from. It is fed by others; the evictor
	// adds what its own requests return.
	Tracker *tracker.Tracker
	// Synced reports whether the tracker knows all that there was at the start.
	Synced func() bool
	// Leads reports whether this replica still holds the lease. A process that was
	// frozen asks before it does anything (H05). It is asked once an attempt, at the
	// beginning, and not again between the two requests: see AttemptTimeout. Nil
	// stands for always.
	Leads func() bool
	// Client makes the requests. Whoever sets its limits should know that an
	// eviction takes two requests.
	Client kubernetes.Interface
	// Recorder writes events. It must not block, and should not share the limits
	// of Client.
	Recorder recorder
	// Clock tells the time of the API server. It is what deadlines, first-seen times
	// and lateness are told by, and nothing else: it may jump either way by hours,
	// when the server's clock is set or another server answers.
	Clock clock.WithTicker
	// Local is the clock of this machine. Sleeps and ages are measured by it; Clock
	// when nil.
	Local   clock.WithTicker
	Metrics *Metrics
	Rules   Rules
	// Workers is how many pods are evicted at once; DefaultWorkers when zero.
	Workers int
	// MaxNodeAge is how old the last look at a node may be when a pod is evicted
	// from it; DefaultMaxNodeAge when zero.
	MaxNodeAge time.Duration
	// AttemptTimeout bounds all requests of one attempt together, and with that
	// for how long it may be frozen; DefaultAttemptTimeout when zero. With leader
	// election it must be no longer than the lease lasts beyond the time for which
	// Leads answers yes after a renewal (leaseDuration - renewDeadline): an attempt
	// that began while this replica led is then over before another can take the
	// lease.
	AttemptTimeout time.Duration
	// EventRate and EventBurst bound the events on pods, in a second and at once;
	// DefaultEventRate and DefaultEventBurst when zero.
	EventRate  float64
	EventBurst int
}

// Evictor evicts pods that may not stay on their nodes. It is a runnable of a
// controller-runtime manager.
type Evictor struct {
	options  Options
	tracker  *tracker.Tracker
	clock    clock.PassiveClock
	local    clock.WithTicker
	metrics  *Metrics
	effector effector
	book     *book
	confirm  *confirmer
	announce *announcer
	odd      *oddTimes
	stamper  *stamper

	mu sync.Mutex
	// pods and nodes are what wakes the workers; nil while they do not run.
	pods  *queue[tracker.Key]
	nodes *queue[string]
}

// New returns an evictor. It starts nothing: that is what Start does.
func New(options Options) (*Evictor, error) {
	if options.Client == nil {
		return nil, errors.New("evictor needs a client")
	}
	e, err := newEvictor(options, &deleter{pods: options.Client.CoreV1(), clock: options.Clock})
	if err != nil {
		return nil, err
	}
	return e, nil
}

func newEvictor(options Options, effector effector) (*Evictor, error) {
	if options.Tracker == nil || options.Synced == nil || options.Recorder == nil || options.Clock == nil || options.Metrics == nil {
		return nil, errors.New("evictor needs a tracker, synced, a recorder, a clock and metrics")
	}
	options = withDefaults(options)
	e := &Evictor{
		options: options, tracker: options.Tracker, clock: options.Clock, local: options.Local, metrics: options.Metrics,
		effector: effector,
		book:     newBook(options.Metrics),
		announce: newAnnouncer(options.Recorder, options.Metrics, options.Local, options.EventRate, options.EventBurst),
	}
	e.confirm = &confirmer{
		nodes: options.Client.CoreV1(), tracker: options.Tracker, clock: options.Clock, local: options.Local,
		maxAge: options.MaxNodeAge, patience: max(options.MaxNodeAge, options.AttemptTimeout), read: map[string]reading{},
	}
	e.odd = &oddTimes{tracker: options.Tracker, announce: e.announce, metrics: options.Metrics, told: map[string][]tracker.Taint{}}
	e.stamper = &stamper{
		nodes: options.Client.CoreV1(), tracker: options.Tracker, clock: options.Clock, local: options.Local, metrics: options.Metrics,
		saw: func(node *corev1.Node, uid types.UID, asked instant) { e.PodsChanged(e.confirm.saw(node, uid, asked)) },
	}
	return e, nil
}

func withDefaults(o Options) Options {
	if o.Local == nil {
		o.Local = o.Clock
	}
	if o.Leads == nil {
		o.Leads = func() bool { return true }
	}
	if o.Workers == 0 {
		o.Workers = DefaultWorkers
	}
	if o.MaxNodeAge == 0 {
		o.MaxNodeAge = DefaultMaxNodeAge
	}
	if o.AttemptTimeout == 0 {
		o.AttemptTimeout = DefaultAttemptTimeout
	}
	if o.EventRate == 0 {
		o.EventRate = DefaultEventRate
	}
	if o.EventBurst == 0 {
		o.EventBurst = DefaultEventBurst
	}
	return o
}

// NeedLeaderElection is true: one replica evicts.
func (e *Evictor) NeedLeaderElection() bool { return true }

// PodsChanged names pods whose fate may have changed. It does not block, and does
// nothing while the evictor does not run: Start looks at all pods.
func (e *Evictor) PodsChanged(keys []tracker.Key) {
	if len(keys) == 0 {
		return
	}
	pods, _ := e.queues()
	if pods == nil {
		return
	}
	for _, key := range keys {
		pods.Add(key)
	}
}

// NodeChanged names a node whose taints may have changed. It does not block, and
// does nothing while the evictor does not run.
func (e *Evictor) NodeChanged(name string) {
	_, nodes := e.queues()
	if nodes == nil {
		return
	}
	e.odd.check(name)
	if e.stamper.wanted(name) {
		nodes.Add(name)
	}
}

func (e *Evictor) queues() (*queue[tracker.Key], *queue[string]) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pods, e.nodes
}

func (e *Evictor) setQueues(pods *queue[tracker.Key], nodes *queue[string]) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pods, e.nodes = pods, nodes
}
