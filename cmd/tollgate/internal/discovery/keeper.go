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
	// lookEvery is how often the API server is asked what it serves.
	lookEvery = time.Minute
	// lookAgain is when it is asked again after it could not be asked, and after it
	// said that something is gone: it may have been a replica of an older version, or
	// one that is just starting, and much follows from it.
	lookAgain = 3 * time.Second
	// grace is how long a refusal counts as temporary: an API server that starts
	// answers before it knows all roles.
	grace = 15 * time.Second
	// patience is how long it may take to answer one question: what stands last in
	// line is asked too when the first is not answered.
	patience = 10 * time.Second
)

// discoverer is the part of a discovery client that is used here.
type discoverer interface {
	ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// Options are what a Keeper works with. All are required.
type Options struct {
	Discovery discoverer
	// Clock is the clock of this machine.
	Clock     clock.WithTicker
	Resources []Resource
	// Known is told whether all that is known to be served, and is permitted, has been
	// listed. It is called when that changes, and not before it is true for the first
	// time.
	Known   func(known bool)
	Metrics *Metrics
}

// Keeper keeps watches of the resources that are served. It is a runnable of a
// controller-runtime manager.
type Keeper struct {
	discovery discoverer
	clock     clock.WithTicker
	tell      func(known bool)
	metrics   *Metrics
	// resources is never changed; what is in it belongs to the goroutine of Start,
	// but for what has a lock.
	resources []*resource
	known     bool
	// wake has room for one word, so that whoever leaves it never waits.
	wake chan struct{}

	mu sync.Mutex
	// versions holds those that are served.
	versions map[schema.GroupResource]string
	states   map[schema.GroupResource]state
}

// New returns a keeper. It starts nothing: that is what Start does.
func New(options Options) *Keeper {
	k := &Keeper{
		discovery: options.Discovery, clock: options.Clock, tell: options.Known, metrics: options.Metrics,
		wake:     make(chan struct{}, 1),
		versions: map[schema.GroupResource]string{}, states: map[schema.GroupResource]state{},
	}
	for i := range options.Resources {
		r := &resource{Resource: options.Resources[i], wake: k.awake, state: stateUnknown}
		k.metrics.set(r.Name, stateUnknown)
		k.resources = append(k.resources, r)
	}
	return k
}

// NeedLeaderElection is false: every replica watches, so that a new leader has
// nothing to read first.
func (k *Keeper) NeedLeaderElection() bool { return false }

// Version returns the version in which a resource is served, empty for none.
func (k *Keeper) Version(name schema.GroupResource) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.versions[name]
}

// Watched reports whether all objects of a resource have been listed and are being
// watched. It is false from before the first of them is forgotten.
func (k *Keeper) Watched(name schema.GroupResource) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.states[name] == stateWatched
}

// Answered reports whether the API server has said whether it serves a resource.
func (k *Keeper) Answered(name schema.GroupResource) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	found, ok := k.states[name]
	return ok && found != stateUnknown
}

// Start looks, watches, and looks again until ctx is done.
func (k *Keeper) Start(ctx context.Context) error {
	defer func() {
		for _, r := range k.resources {
			r.end()
		}
	}()
	for {
		timer := k.clock.NewTimer(k.look(ctx))
		for waiting := true; waiting; {
			k.settle()
			select {
			case <-ctx.Done():
				timer.Stop()
				return nil
			case <-timer.C():
				waiting = false
			case <-k.wake:
				waiting = !k.hear(ctx)
			}
		}
		timer.Stop()
	}
}

func (k *Keeper) awake() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// hear takes in what the watches say. It reports whether the API server is to be
// asked at once what it serves.
func (k *Keeper) hear(ctx context.Context) (look bool) {
	for _, r := range k.resources {
		if r.watch == nil {
			continue
		}
		if r.synced() {
			r.forget()
		}
		last, err := r.heard()
		switch {
		case last == answerMissing:
			look = true
		case last == answerDenied && !r.synced():
			r.leave()
			k.refused(ctx, r, err)
			look = true
		case last == answerDenied:
			k.enter(ctx, r, stateStale, err)
		case r.synced():
			r.refused = time.Time{}
			k.enter(ctx, r, stateWatched, nil)
		}
	}
	return look
}

// look asks the API server what it serves and follows. It returns when to look
// again. What it does not say anything about stays as it is, and nothing else waits
// for it (F10).
func (k *Keeper) look(ctx context.Context) time.Duration {
	asked := inquiry{discovery: k.discovery, answers: map[string]listed{}}
	next := lookEvery
	var mute []silence
	for _, r := range k.resources {
		version, err := asked.version(ctx, r)
		if err != nil {
			mute = append(mute, silence{r, err})
			continue
		}
		r.mute, r.skipped = time.Time{}, false
		if version != "" {
			r.missed = time.Time{}
		} else if r.version != "" && !k.missing(r) {
			next = lookAgain
			continue
		}
		if k.follow(ctx, r, version) && !k.resume(ctx, r) {
			next = min(next, k.askAgain(r))
		}
	}
	return min(next, k.unanswered(ctx, mute))
}

// missing reports whether a resource was not served for a while already. It is
// called when it is not.
func (k *Keeper) missing(r *resource) bool {
	if r.missed.IsZero() {
		r.missed = k.clock.Now()
	}
	return k.clock.Since(r.missed) >= lookAgain
}

// follow takes in the version in which a resource is served. It reports whether a
// watch of it is to begin.
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

// leave ends a watch. What is known because of it is no longer relied upon from
// before any of it goes.
func (k *Keeper) leave(ctx context.Context, r *resource) {
	if r.watch == nil {
		return
	}
	k.enter(ctx, r, stateUnknown, nil)
	k.settle()
	r.leave()
}

// resume begins a watch, and reports whether that may be. One that was refused is
// probed first, which costs little and is done once a look.
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

// refused takes in that a resource may not be watched. It is given up after a
// while of that, and nothing waits for it any more.
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
		return lookEvery
	}
	return lookAgain
}

func (k *Keeper) begin(ctx context.Context, r *resource) {
	k.enter(ctx, r, stateListing, nil)
	// Before anything of it arrives.
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

// settle says whether all there is to know is known. It remains so while more is
// listed later, unless that is of a kind of which a part is misleading. What the API
// server does not speak about is waited for if it is to be watched: nobody knows what
// is there.
func (k *Keeper) settle() {
	complete, misled := true, false
	for _, r := range k.resources {
		if r.state == stateUnknown && (!r.skipped || r.Watch != nil) || r.state == stateListing {
			complete, misled = false, misled || r.Misleading
		}
	}
	known := complete || k.known && !misled
	if known != k.known {
		k.known = known
		k.tell(known)
	}
}

// enter puts a resource into a state, and says so if that is news.
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
