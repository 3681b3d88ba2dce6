package app

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// KeeperOptions are the dependencies of a Keeper. All are required.
type KeeperOptions struct {
	Discovery discoverer
	// Permitted returns an error if a watch of a resource is not permitted.
	Permitted func(ctx context.Context, resource schema.GroupVersionResource) error
	// Clock is the clock of this machine.
	Clock     clock.WithTicker
	Resources []apiResource
	// Known is called when the caches become complete or incomplete: complete means that all
	// resources that are served and permitted are listed. The first call has true.
	Known func(known bool)
	// Metrics is the result of NewResourceMetrics.
	Metrics *prometheus.GaugeVec
}

// Keeper discovers which resources the API server serves, and in which version, and watches them.
// That differs between versions of Kubernetes, depends on feature gates and flags of the API
// server (VS-01, VS-02), and changes when a control plane is upgraded or reconfigured. A Keeper is
// a runnable of a controller-runtime manager.
//
// A resource that is not served is logged once and disables only the features that need it. The
// same holds for one that Tollgate may not watch, and for one whose discovery fails while other
// requests succeed (F10).
//
// When the version of a watch changes, its objects are kept until the new list is complete; then
// only those missing from it are removed.
type Keeper struct {
	KeeperOptions

	// resources is read-only; its elements belong to the goroutine of Start, except fields with a
	// lock and the last reports of watches.
	resources []*keptResource
	known     bool
	// wake is a buffered signal channel of size 1.
	wake chan struct{}

	// mu guards the state and the version of each resource.
	mu sync.Mutex
}

// NewKeeper returns a keeper. It starts no goroutines; Start does.
func NewKeeper(options KeeperOptions) *Keeper {
	k := &Keeper{KeeperOptions: options, wake: make(chan struct{}, 1)}
	for i := range options.Resources {
		r := &keptResource{apiResource: options.Resources[i], wake: k.signal}
		k.setState(r, stateUnknown)
		k.resources = append(k.resources, r)
	}
	return k
}

// NeedLeaderElection is false: every replica watches, so that a new leader has full caches.
func (k *Keeper) NeedLeaderElection() bool { return false }

// Version returns the served version of a resource, empty for none.
func (k *Keeper) Version(name schema.GroupResource) string {
	version, _ := k.lookup(name)
	return version
}

// Watched reports whether all objects of a resource are listed and watched. It turns false before
// the first of them is removed.
func (k *Keeper) Watched(name schema.GroupResource) bool {
	_, found := k.lookup(name)
	return found == stateWatched
}

// Answered reports whether discovery of a resource has succeeded.
func (k *Keeper) Answered(name schema.GroupResource) bool {
	_, found := k.lookup(name)
	return found != stateUnknown
}

func (k *Keeper) lookup(name schema.GroupResource) (version string, found resourceState) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.resources {
		if r.Name == name {
			return r.version, r.state
		}
	}
	return "", stateUnknown
}

// Start runs discovery and the watches until ctx is done.
func (k *Keeper) Start(ctx context.Context) error {
	defer func() {
		for _, r := range k.resources {
			r.stop()
		}
	}()
	for {
		next := k.Clock.After(k.discover(ctx))
		for waiting := true; waiting; {
			k.settle()
			select {
			case <-ctx.Done():
				return nil
			case <-next:
				waiting = false
			case <-k.wake:
				waiting = !k.processReports(ctx)
			}
		}
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
		err := *r.reported.Load()
		var synced bool
		select {
		case <-r.watch.Synced():
			synced = true
			r.forget()
		default:
		}
		switch {
		case apierrors.IsNotFound(err):
			discover = true
		case denied(err) && !synced:
			r.stop()
			k.refused(ctx, r, err)
			discover = true
		case denied(err):
			k.enter(ctx, r, stateStale, err)
		case synced:
			r.refused = time.Time{}
			k.enter(ctx, r, stateWatched, nil)
		}
	}
	return discover
}

// discover runs discovery for all resources and follows changes. It returns when to run again. A
// resource whose discovery fails stays as it is and delays no other (F10).
func (k *Keeper) discover(ctx context.Context) time.Duration {
	lists := map[string]listed{}
	next := discoveryInterval
	var failures []*keptResource
	for _, r := range k.resources {
		version, err := k.version(ctx, r, lists)
		if err != nil {
			r.failure = err
			failures = append(failures, r)
			continue
		}
		r.failedSince, r.skipped = time.Time{}, false
		switch {
		case version != "":
			r.unservedSince = time.Time{}
		case r.version != "" && r.unservedSince.IsZero():
			r.unservedSince = k.Clock.Now()
		}
		if version == "" && r.version != "" && k.Clock.Since(r.unservedSince) < retryInterval {
			next = retryInterval
			continue
		}
		next = min(next, k.follow(ctx, r, version))
	}
	return min(next, k.unanswered(ctx, failures))
}

// listed is the discovery response of a group version; list is nil if it is not served.
type listed struct {
	list *metav1.APIResourceList
	err  error
}

// version returns the version in which to watch a resource, empty when it is not served. It keeps
// the current version while that is served: during an upgrade, replicas of the API server
// disagree on the newest. Lists has the discovery responses of this round, by group and version.
func (k *Keeper) version(ctx context.Context, r *keptResource, lists map[string]listed) (string, error) {
	candidates := r.Versions
	if r.version != "" {
		candidates = append([]string{r.version}, candidates...)
	}
	for _, version := range candidates {
		group := r.Name.WithVersion(version).GroupVersion().String()
		answer, cached := lists[group]
		if !cached {
			request, stop := context.WithTimeout(ctx, requestTimeout)
			answer.list, answer.err = k.Discovery.ServerResourcesForGroupVersionWithContext(request, group)
			stop()
			if apierrors.IsNotFound(answer.err) {
				answer = listed{}
			}
			lists[group] = answer
		}
		switch {
		case answer.err != nil:
			return "", answer.err
		case answer.list != nil && slices.ContainsFunc(answer.list.APIResources, func(served metav1.APIResource) bool {
			return served.Name == r.Name.Resource
		}):
			return version, nil
		}
	}
	return "", nil
}

// unanswered records failed discovery, logs it once, and returns when to retry. While other
// resources get a response, these are retried every retryInterval only during grace; if all fail,
// the API server is down and retries go on.
func (k *Keeper) unanswered(ctx context.Context, failures []*keptResource) time.Duration {
	if ctx.Err() != nil {
		return retryInterval
	}
	log := logr.FromContextOrDiscard(ctx)
	next := discoveryInterval
	var news []string
	for _, r := range failures {
		if r.failedSince.IsZero() {
			r.failedSince = k.Clock.Now()
			news = append(news, r.Name.String())
		}
		if !r.skipped && len(failures) < len(k.resources) && k.Clock.Since(r.failedSince) >= grace {
			r.skipped = true
			if r.state == stateUnknown && r.Watch == nil {
				log.Error(r.failure, "not known to be served", "resource", r.Name.String(), "so", r.Without)
			}
		}
		if !r.skipped {
			next = retryInterval
		}
	}
	if len(news) > 0 {
		log.Error(failures[0].failure, "the API server does not say what it serves", "resources", news)
	}
	return next
}

// follow applies the discovered version of a resource, and starts its watch unless that runs. It
// returns when to run discovery again. A resource that was denied is probed first, with one cheap
// request per round.
func (k *Keeper) follow(ctx context.Context, r *keptResource, version string) time.Duration {
	switch {
	case r.state == stateUnknown || r.version != version:
		if r.watch != nil {
			// Its objects count as incomplete before any of them is removed.
			k.enter(ctx, r, stateUnknown, nil)
			k.settle()
			r.stop()
		}
		k.mu.Lock()
		r.version = version
		k.mu.Unlock()
		if r.Served != nil {
			r.Served(version != "")
		}
		if version == "" {
			r.forget()
			k.enter(ctx, r, stateUnserved, nil)
			return discoveryInterval
		}
		if r.Watch == nil {
			k.enter(ctx, r, stateServed, nil)
			return discoveryInterval
		}
	case r.watch != nil || r.state != stateDenied && r.state != stateListing:
		return discoveryInterval
	}
	if !r.refused.IsZero() {
		request, stop := context.WithTimeout(ctx, requestTimeout)
		err := k.Permitted(request, r.Name.WithVersion(r.version))
		stop()
		if denied(err) {
			k.refused(ctx, r, err)
		}
		switch {
		case err != nil && r.state == stateDenied:
			return discoveryInterval
		case err != nil:
			return retryInterval
		}
	}
	k.enter(ctx, r, stateListing, nil)
	// Known is called before objects arrive.
	k.settle()
	r.start(ctx)
	return discoveryInterval
}

// refused records that a watch is denied. After grace the resource is given up, and nothing waits
// for it.
func (k *Keeper) refused(ctx context.Context, r *keptResource, err error) {
	if r.refused.IsZero() {
		r.refused = k.Clock.Now()
	}
	if k.Clock.Since(r.refused) >= grace {
		r.forget()
		k.enter(ctx, r, stateDenied, err)
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
		k.Known(known)
	}
}

// enter sets the state of a resource, and logs a change.
func (k *Keeper) enter(ctx context.Context, r *keptResource, state resourceState, err error) {
	if r.state == state {
		return
	}
	k.setState(r, state)
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

func (k *Keeper) setState(r *keptResource, now resourceState) {
	k.mu.Lock()
	r.state = now
	k.mu.Unlock()
	for _, s := range []resourceState{stateUnknown, stateUnserved, stateServed, stateDenied, stateListing, stateWatched, stateStale} {
		value := 0.0
		if s == now {
			value = 1
		}
		k.Metrics.WithLabelValues(r.Name.Resource, string(s)).Set(value)
	}
}

// NewResourceMetrics registers the metric of all Keepers with reg.
func NewResourceMetrics(reg prometheus.Registerer) *prometheus.GaugeVec {
	return promauto.With(reg).NewGaugeVec(prometheus.GaugeOpts{
		Name: "tollgate_api_resources",
		Help: "1 for the current state of a resource of the API server: unknown, unserved, served, denied, listing, watched or stale.",
	}, []string{"resource", "state"})
}
