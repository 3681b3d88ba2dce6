package app

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/certs"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/webhook/auth"
)

// Scrapes have a client, a rate limit and a cache of their own: any client that reaches the port
// can cause requests, and neither reviews nor evictions may wait for these.
const (
	scrapeQPS   = 10
	scrapeBurst = 20
)

// metricsOptions returns the address of the metrics server, its certificates and its authorization
// (F12).
func metricsOptions(
	config *configv1alpha1.TollgateConfiguration, connection *rest.Config, certificates *certs.Manager, local clock.Clock,
) (metricsserver.Options, error) {
	options := metricsserver.Options{BindAddress: config.Metrics.BindAddress}
	if !config.Metrics.Asked() {
		return options, nil
	}
	clientset, err := clientWithin(connection, scrapeQPS, scrapeBurst)
	if err != nil {
		return options, fmt.Errorf("make a client for those who scrape: %w", err)
	}
	allows := auth.NewAuthority(clientset.AuthorizationV1().SubjectAccessReviews(), local, auth.AuthorityLimits{})
	guard := NewGuard(clientset.AuthenticationV1().TokenReviews(), allows, local)
	options.SecureServing = true
	options.TLSOpts = []func(*tls.Config){certificates.TLSConfig}
	options.FilterProvider = func(*rest.Config, *http.Client) (metricsserver.Filter, error) {
		return guard.Around, nil
	}
	return options, nil
}

const (
	// maxDrivers limits the values of the label driver, since writers of claims and slices choose
	// driver names. Further drivers have the label value other (F14).
	maxDrivers = 100
	otherLabel = "other"
)

var tainted = prometheus.NewDesc("tollgate_tainted_devices",
	"Devices, published or allocated, with at least one taint of the effect, by driver and effect.", []string{"driver", "effect"}, nil)

// Collector is a prometheus collector of tainted devices, as a tracker counts them.
type Collector func() map[tracker.DriverEffect]int

// Describe implements prometheus.Collector.
func (Collector) Describe(descs chan<- *prometheus.Desc) { descs <- tainted }

// Collect implements prometheus.Collector.
func (c Collector) Collect(metrics chan<- prometheus.Metric) {
	for at, count := range bounded(c()) {
		metrics <- prometheus.MustNewConstMetric(tainted, prometheus.GaugeValue, float64(count), at.Driver, string(at.Effect))
	}
}

// bounded returns counts with a bounded number of labels. A device with two unknown effects
// counts twice under other.
func bounded(counts map[tracker.DriverEffect]int) map[tracker.DriverEffect]int {
	drivers := sets.New[string]()
	for at := range counts {
		drivers.Insert(at.Driver)
	}
	named := sets.List(drivers)
	named = named[:min(len(named), maxDrivers)]
	sums := map[tracker.DriverEffect]int{}
	for at, count := range counts {
		if _, found := slices.BinarySearch(named, at.Driver); !found {
			at.Driver = otherLabel
		}
		switch resourcev1.DeviceTaintEffect(at.Effect) {
		case resourcev1.DeviceTaintEffectNone, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNoExecute:
		default:
			at.Effect = corev1.TaintEffect(otherLabel)
		}
		sums[at] += count
	}
	return sums
}

// Register registers the metrics of a replica with reg. Leads is called at each scrape and must
// be safe for concurrent use.
func Register(reg prometheus.Registerer, version, evictionMode string, leads func() bool) {
	with := promauto.With(reg)
	with.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tollgate_info",
		Help: "1, with the version of this replica, the Go version of its build, and its eviction.mode.",
	}, []string{"version", "go_version", "eviction_mode"}).WithLabelValues(version, runtime.Version(), evictionMode).Set(1)
	with.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tollgate_leading",
		Help: "1 while this replica holds the lease and may evict and write. The sum over all replicas is 1, except between two leaders.",
	}, func() float64 {
		if leads() {
			return 1
		}
		return 0
	})
}

const (
	// reviewTTL is how long the result of a token review is valid, and so how long a revoked
	// token still works.
	reviewTTL = time.Minute
	// goodTTL is how long an accepted token keeps its own rate, though it is reviewed again. It
	// is longer than the time between two scrapes.
	goodTTL = time.Hour
	// cacheSize is the size of each of the three caches of tokens.
	cacheSize = 128
	// maxToken is the limit of a token in bytes, far above real tokens with many groups.
	maxToken = 16 << 10
	// reviewsPerSecond and reviewsAtOnce are the rate and burst of token reviews, for accepted
	// tokens and for others.
	reviewsPerSecond = 5
	reviewsAtOnce    = 20
	// authTimeout limits both reviews of one request.
	authTimeout = 5 * time.Second
)

// pathPrefix precedes the paths of nonResourceURLs, so that the permissions are Tollgate's only.
const pathPrefix = "/tollgate"

// errBusy means that the token was not reviewed.
var errBusy = errors.New("too many tokens to review")

// Guard authenticates and authorizes scrapes. It is safe for concurrent use.
type Guard struct {
	tokens authenticationv1client.TokenReviewInterface
	allows authorizer.UnconditionalAuthorizer
	clock  clock.PassiveClock
	// good holds tokens that were authorized, others those of users who were not, and bad those
	// that failed authentication. Separate caches keep forged and unauthorized tokens from
	// evicting good ones.
	good, others, bad *cache.LRUExpireCache
	// repeatReviews limits reviews of tokens in good, firstReviews those of all others.
	repeatReviews, firstReviews *rate.Limiter
	// shares has a rate limiter for each address, which limits how much of firstReviews it takes;
	// mu guards what it has for an address.
	mu     sync.Mutex
	shares *cache.LRUExpireCache
}

// owner is the user of a token; info is nil for a token that failed authentication.
type owner struct {
	info user.Info
	// until is when the token has to be reviewed again.
	until time.Time
}

// NewGuard returns a Guard that authenticates with tokens and authorizes with allows.
func NewGuard(tokens authenticationv1client.TokenReviewInterface, allows authorizer.UnconditionalAuthorizer, now clock.PassiveClock) *Guard {
	return &Guard{
		tokens: tokens, allows: allows, clock: now,
		good: cache.NewLRUExpireCacheWithClock(cacheSize, now), others: cache.NewLRUExpireCacheWithClock(cacheSize, now), bad: cache.NewLRUExpireCacheWithClock(cacheSize, now),
		repeatReviews: rate.NewLimiter(reviewsPerSecond, reviewsAtOnce), firstReviews: rate.NewLimiter(reviewsPerSecond, reviewsAtOnce),
		shares: cache.NewLRUExpireCacheWithClock(maxAddresses, now),
	}
}

// Around is a metricsserver.Filter, which returns handler behind the guard and no error. Refusals
// have only a status: 401 without a valid token, 403 without permission, 405 for other methods than
// GET and HEAD, 429 above the rate, 503 if the API server does not answer.
func (g *Guard) Around(log logr.Logger, handler http.Handler) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), authTimeout)
		status, err := g.authorize(ctx, r)
		cancel()
		if err != nil {
			// Any client can cause this line, so it is V(1).
			log.V(1).Info("metrics refused", "status", status, "reason", err.Error())
		}
		if status != http.StatusOK {
			http.Error(w, http.StatusText(status), status)
			return
		}
		handler.ServeHTTP(w, r)
	}), nil
}

// authorize returns the HTTP status of a request, OK to serve it.
func (g *Guard) authorize(ctx context.Context, r *http.Request) (int, error) {
	// Methods are the verbs of access reviews. A client could send any number of made-up methods,
	// each of which would need a review of its own.
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return http.StatusMethodNotAllowed, errors.New("metrics are only read")
	}
	// Schemes are case-insensitive (RFC 9110, section 11.1).
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > maxToken {
		return http.StatusUnauthorized, errors.New("no bearer token")
	}
	key := sha256.Sum256([]byte(token))
	of, err := g.authenticate(ctx, token, key, r.RemoteAddr)
	switch {
	case errors.Is(err, errBusy):
		return http.StatusTooManyRequests, err
	case err != nil:
		return http.StatusServiceUnavailable, err
	case of.info == nil:
		return http.StatusUnauthorized, errors.New("the token is nobody's")
	}
	verb, path := strings.ToLower(r.Method), pathPrefix+r.URL.Path
	decision, _, err := g.allows.Authorize(ctx, authorizer.AttributesRecord{User: of.info, Verb: verb, Path: path})
	if err != nil {
		return http.StatusServiceUnavailable, err
	}
	if decision != authorizer.DecisionAllow {
		g.good.Remove(key)
		g.others.Add(key, of, reviewTTL)
		return http.StatusForbidden, fmt.Errorf("user %s may not %s %s", of.info.GetName(), verb, path)
	}
	g.others.Remove(key)
	g.good.Add(key, of, goodTTL)
	return http.StatusOK, nil
}

// authenticate returns the owner of a token from the caches, or from a TokenReview, whose rate is
// limited by address for all but accepted tokens.
func (g *Guard) authenticate(ctx context.Context, token string, key [sha256.Size]byte, address string) (owner, error) {
	now := g.clock.Now()
	entry, wasGood := g.good.Get(key)
	if !wasGood {
		entry, _ = g.others.Get(key)
	}
	if of, ok := entry.(owner); ok && now.Before(of.until) {
		return of, nil
	}
	if _, isBad := g.bad.Get(key); isBad {
		return owner{}, nil
	}
	// The share comes first: an address that used it up takes nothing from others.
	may := wasGood && g.repeatReviews.AllowN(now, 1) || !wasGood && g.takeShare(address, now) && g.firstReviews.AllowN(now, 1)
	if !may {
		return owner{}, errBusy
	}
	review, err := g.tokens.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return owner{}, fmt.Errorf("review token: %w", err)
	}
	if !review.Status.Authenticated {
		g.good.Remove(key)
		g.bad.Add(key, nil, reviewTTL)
		return owner{}, nil
	}
	return owner{policy.UserInfo(&review.Status.User), g.clock.Now().Add(reviewTTL)}, nil
}

const (
	// sharePerSecond and shareAtOnce are the rate and burst of first token reviews from one
	// address. Four addresses at their limit leave as much to a fifth. A scraper needs one review
	// for each new token.
	sharePerSecond = 1
	shareAtOnce    = reviewsAtOnce / reviewsPerSecond
	// maxAddresses is the number of addresses in the cache.
	maxAddresses = 1024
	// shareTTL is how long an idle address stays in the cache; its share is full again by then.
	shareTTL = shareAtOnce / sharePerSecond * time.Second
)

// takeShare takes one review from the share of an address in the form of http.Request.RemoteAddr.
// Addresses that do not parse have one share together.
func (g *Guard) takeShare(address string, now time.Time) bool {
	from, _ := netip.ParseAddrPort(address)
	of := from.Addr().Unmap()
	g.mu.Lock()
	defer g.mu.Unlock()
	share, ok := g.shares.Get(of)
	if !ok {
		share = rate.NewLimiter(sharePerSecond, shareAtOnce)
	}
	g.shares.Add(of, share, shareTTL)
	return share.(*rate.Limiter).AllowN(now, 1) //nolint:forcetypeassert // The only type in the cache.
}
