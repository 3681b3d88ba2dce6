package app

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/policy"
)

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

type reviewer interface {
	Create(ctx context.Context, review *authenticationv1.TokenReview, options metav1.CreateOptions) (*authenticationv1.TokenReview, error)
}

type decider interface {
	Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error)
}

// Guard authenticates and authorizes scrapes. It is safe for concurrent use.
type Guard struct {
	tokens reviewer
	allows decider
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
func NewGuard(tokens reviewer, allows decider, now clock.PassiveClock) *Guard {
	return &Guard{
		tokens: tokens, allows: allows, clock: now,
		good: cache.NewLRUExpireCacheWithClock(cacheSize, now), others: cache.NewLRUExpireCacheWithClock(cacheSize, now), bad: cache.NewLRUExpireCacheWithClock(cacheSize, now),
		repeatReviews: rate.NewLimiter(reviewsPerSecond, reviewsAtOnce), firstReviews: rate.NewLimiter(reviewsPerSecond, reviewsAtOnce),
		shares: cache.NewLRUExpireCacheWithClock(maxAddresses, now),
	}
}

// Around returns handler behind the guard. Refusals have only a status: 401 without a valid
// token, 403 without permission, 405 for other methods than GET and HEAD, 429 above the rate, 503
// if the API server does not answer.
func (g *Guard) Around(log logr.Logger, handler http.Handler) http.Handler {
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
	})
}

// authorize returns the HTTP status of a request, OK to serve it.
func (g *Guard) authorize(ctx context.Context, r *http.Request) (int, error) {
	// Methods are the verbs of access reviews. A client could send any number of made-up methods,
	// each of which would need a review of its own.
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return http.StatusMethodNotAllowed, errors.New("metrics are only read")
	}
	token, ok := tokenOf(r)
	if !ok || token == "" || len(token) > maxToken {
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

// tokenOf returns the bearer token of r. Schemes are case-insensitive (RFC 9110, section 11.1).
func tokenOf(r *http.Request) (string, bool) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return token, strings.EqualFold(scheme, "Bearer")
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
