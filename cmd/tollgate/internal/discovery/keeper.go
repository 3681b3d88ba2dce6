package discovery

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
)

const (
	// discoveryInterval is the interval of discovery.
	discoveryInterval = time.Minute
	// retryInterval is the interval after discovery failed or a resource disappeared: the response
	// may come from a replica of an older version, or one that is starting.
	retryInterval = 3 * time.Second
	// grace is how long a denial counts as temporary: an API server that starts responds before
	// it has read all roles.
	grace = 15 * time.Second
	// requestTimeout is the timeout of one request, so that each resource gets its turn.
	requestTimeout = 10 * time.Second
)

// discoverer is the part of a discovery client that a Keeper uses.
type discoverer interface {
	ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// Options are the dependencies of a Keeper. All are required.
type Options struct {
	Discovery discoverer
	// Clock is the clock of this machine.
	Clock     clock.WithTicker
	Resources []Resource
	// Known is called when the caches become complete or incomplete: complete means that all
	// resources that are served and permitted are listed. The first call has true.
	Known   func(known bool)
	Metrics *Metrics
}

// Keeper keeps watches of the resources that are served. It is a runnable of a controller-runtime
// manager.
type Keeper struct {
	discovery discoverer
	clock     clock.WithTicker
	notify    func(known bool)
	metrics   *Metrics
	// resources is read-only; its elements belong to the goroutine of Start, except fields with a
	// lock.
	resources []*resource
	known     bool
	// wake is a buffered signal channel of size 1.
	wake chan struct{}

	mu sync.Mutex
	// versions holds the served versions.
	versions map[schema.GroupResource]string
	states   map[schema.GroupResource]state
}

// New returns a keeper. It starts no goroutines; Start does.
func New(options Options) *Keeper {
	k := &Keeper{
		discovery: options.Discovery, clock: options.Clock, notify: options.Known, metrics: options.Metrics,
		wake:     make(chan struct{}, 1),
		versions: map[schema.GroupResource]string{}, states: map[schema.GroupResource]state{},
	}
	for i := range options.Resources {
		r := &resource{Resource: options.Resources[i], wake: k.signal, state: stateUnknown}
		k.metrics.set(r.Name, stateUnknown)
		k.resources = append(k.resources, r)
	}
	return k
}

// NeedLeaderElection is false: every replica watches, so that a new leader has full caches.
func (k *Keeper) NeedLeaderElection() bool { return false }

// Version returns the served version of a resource, empty for none.
func (k *Keeper) Version(name schema.GroupResource) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.versions[name]
}

// Watched reports whether all objects of a resource are listed and watched. It turns false before
// the first of them is removed.
func (k *Keeper) Watched(name schema.GroupResource) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.states[name] == stateWatched
}

// Answered reports whether discovery of a resource has succeeded.
func (k *Keeper) Answered(name schema.GroupResource) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	found, ok := k.states[name]
	return ok && found != stateUnknown
}

// Start runs discovery and the watches until ctx is done.
func (k *Keeper) Start(ctx context.Context) error {
	defer func() {
		for _, r := range k.resources {
			r.end()
		}
	}()
	for {
		timer := k.clock.NewTimer(k.discover(ctx))
		for waiting := true; waiting; {
			k.settle()
			select {
			case <-ctx.Done():
				timer.Stop()
				return nil
			case <-timer.C():
				waiting = false
			case <-k.wake:
				waiting = !k.processReports(ctx)
			}
		}
		timer.Stop()
	}
}

func (k *Keeper) signal() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// processReports handles reports of the watches. It reports whether discovery has to run at once.
func (k *Keeper) processReports(ctx context.Context) (discover bool) {
	for _, r := range k.resources {
		if r.watch == nil {
			continue
		}
		if r.synced() {
			r.forget()
		}
		last, err := r.lastAnswer()
		switch {
		case last == answerMissing:
			discover = true
		case last == answerDenied && !r.synced():
			r.leave()
			k.refused(ctx, r, err)
			discover = true
		case last == answerDenied:
			k.enter(ctx, r, stateStale, err)
		case r.synced():
			r.refused = time.Time{}
			k.enter(ctx, r, stateWatched, nil)
		}
	}
	return discover
}

// discover runs discovery for all resources and follows changes. It returns when to run again. A
// resource whose discovery fails stays as it is and delays no other (F10).
func (k *Keeper) discover(ctx context.Context) time.Duration {
	asked := inquiry{discovery: k.discovery, answers: map[string]listed{}}
	next := discoveryInterval
	var failures []silence
	for _, r := range k.resources {
		version, err := asked.version(ctx, r)
		if err != nil {
			failures = append(failures, silence{r, err})
			continue
		}
		r.failedSince, r.skipped = time.Time{}, false
		if version != "" {
			r.unservedSince = time.Time{}
		} else if r.version != "" && !k.missing(r) {
			next = retryInterval
			continue
		}
		if k.follow(ctx, r, version) && !k.resume(ctx, r) {
			next = min(next, k.askAgain(r))
		}
	}
	return min(next, k.unanswered(ctx, failures))
}

// missing reports whether a resource has been unserved for retryInterval. It is called when discovery
// finds it unserved.
func (k *Keeper) missing(r *resource) bool {
	if r.unservedSince.IsZero() {
		r.unservedSince = k.clock.Now()
	}
	return k.clock.Since(r.unservedSince) >= retryInterval
}

// follow applies the discovered version of a resource. It reports whether to start a watch.
func (k *Keeper) follow(ctx context.Context, r *resource, version string) (begin bool) {
	if r.state != stateUnknown && r.version == version {
		return r.watch == nil && (r.state == stateDenied || r.state == stateListing)
	}
	k.leave(ctx, r)
	k.setVersion(r, version)
	switch {
	case version == "":
		r.forget()
		k.enter(ctx, r, stateUnserved, nil)
	case r.Watch == nil:
		k.enter(ctx, r, stateServed, nil)
	default:
		return true
	}
	return false
}

// leave stops a watch. Its objects count as incomplete before any of them is removed.
func (k *Keeper) leave(ctx context.Context, r *resource) {
	if r.watch == nil {
		return
	}
	k.enter(ctx, r, stateUnknown, nil)
	k.settle()
	r.leave()
}

// resume starts a watch and reports whether it did. A resource that was denied is probed first,
// with one cheap request per round.
func (k *Keeper) resume(ctx context.Context, r *resource) bool {
	if !r.refused.IsZero() {
		if err := r.probe(ctx); err != nil {
			if answerOf(err) == answerDenied {
				k.refused(ctx, r, err)
			}
			return false
		}
	}
	k.begin(ctx, r)
	return true
}

// refused records that a watch is denied. After grace the resource is given up, and nothing waits
// for it.
func (k *Keeper) refused(ctx context.Context, r *resource, err error) {
	if r.refused.IsZero() {
		r.refused = k.clock.Now()
	}
	if k.clock.Since(r.refused) >= grace {
		r.forget()
		k.enter(ctx, r, stateDenied, err)
	}
}

func (k *Keeper) askAgain(r *resource) time.Duration {
	if r.state == stateDenied {
		return discoveryInterval
	}
	return retryInterval
}

func (k *Keeper) begin(ctx context.Context, r *resource) {
	k.enter(ctx, r, stateListing, nil)
	// Known is called before objects arrive.
	k.settle()
	r.start(ctx)
}

func (k *Keeper) setVersion(r *resource, version string) {
	r.version = version
	k.mu.Lock()
	if version == "" {
		delete(k.versions, r.Name)
	} else {
		k.versions[r.Name] = version
	}
	k.mu.Unlock()
	if r.Served != nil {
		r.Served(version != "")
	}
}

// settle calls Known if completeness changed. Later lists leave it true, unless a part of the
// objects is misleading. A resource whose discovery fails counts as incomplete if it is to be
// watched.
func (k *Keeper) settle() {
	complete, misleading := true, false
	for _, r := range k.resources {
		if r.state == stateUnknown && (!r.skipped || r.Watch != nil) || r.state == stateListing {
			complete, misleading = false, misleading || r.Misleading
		}
	}
	known := complete || k.known && !misleading
	if known != k.known {
		k.known = known
		k.notify(known)
	}
}

// enter sets the state of a resource, and logs a change.
func (k *Keeper) enter(ctx context.Context, r *resource, state state, err error) {
	if r.state == state {
		return
	}
	r.state = state
	k.mu.Lock()
	k.states[r.Name] = state
	k.mu.Unlock()
	k.metrics.set(r.Name, state)
	log := logr.FromContextOrDiscard(ctx).WithValues("resource", r.Name.String())
	switch state {
	case stateUnserved:
		log.Info("not served by the API server", "versions", r.Versions, "so", r.Without)
	case stateDenied:
		log.Error(err, "not permitted to watch", "version", r.version, "so", r.Without)
	case stateStale:
		log.Error(err, "no longer permitted to watch", "version", r.version, "so", "what is known of it grows old")
	case stateWatched:
		log.Info("watching", "version", r.version)
	case stateServed:
		log.Info("served by the API server", "version", r.version)
	case stateUnknown, stateListing:
	}
}
