package app

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"
)

const (
	// keptFor is for how long a token that was taken away may still be used.
	keptFor = time.Minute
	// goodFor is for how long it is remembered that a token was good, though it has to be
	// reviewed again. It is above the time between two scrapes.
	goodFor = time.Hour
	// kept is the number of answers kept, about good tokens, and as many about others and
	// about bad ones.
	kept = 128
	// maxToken is far above what tokens have, some of which list many groups.
	maxToken = 16 << 10
	// reviewsPerSecond and reviewsAtOnce bound the reviews of tokens, of those that were good
	// and of others.
	reviewsPerSecond = 5
	reviewsAtOnce    = 20
	// patience is the time for both answers.
	patience = 5 * time.Second
)

// ofTollgate begins the paths that rights name, so that they are rights to Tollgate alone.
const ofTollgate = "/tollgate"

// errBusy is why a token is not looked at.
var errBusy = errors.New("too many tokens to review")

type reviewer interface {
	Create(ctx context.Context, review *authenticationv1.TokenReview, options metav1.CreateOptions) (*authenticationv1.TokenReview, error)
}

type decider interface {
	Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error)
}

// Guard lets through who may see what they ask for. It is safe for concurrent use.
type Guard struct {
	tokens reviewer
	allows decider
	clock  clock.PassiveClock
	// good tokens were let through, others are of somebody who was not yet, and bad ones are
	// nobody's. They are apart, so that nothing that is made up, and no token of who may not
	// see anything, pushes a good one out.
	good, others, bad *cache.LRUExpireCache
	// again is the rate of reviews of tokens that were good, first that of all others.
	again, first *rate.Limiter
	// shares are what single addresses may take of first.
	shares *shares
}

// owner is whose a token is, nobody's without who, and until when that is believed.
type owner struct {
	who user.Info
	// until is when the token is reviewed again.
	until time.Time
}

// NewGuard returns a Guard that asks tokens whose a token is, and allows what they may do.
func NewGuard(tokens reviewer, allows decider, now clock.PassiveClock) *Guard {
	return &Guard{
		tokens: tokens, allows: allows, clock: now,
		good: cache.NewLRUExpireCacheWithClock(kept, now), others: cache.NewLRUExpireCacheWithClock(kept, now), bad: cache.NewLRUExpireCacheWithClock(kept, now),
		again: rate.NewLimiter(reviewsPerSecond, reviewsAtOnce), first: rate.NewLimiter(reviewsPerSecond, reviewsAtOnce),
		shares: newShares(now),
	}
}

// Around returns handler behind the guard. Refusals have no more than their status: 401
// without a token that is known, 403 for those who may not, 405 for what does not read, 429
// for too many, 503 if the API server does not say.
func (g *Guard) Around(log logr.Logger, handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		status, err := g.judge(ctx, r)
		cancel()
		if err != nil {
			// Anyone can cause it, a line each.
			log.V(1).Info("metrics refused", "status", status, "reason", err.Error())
		}
		if status != http.StatusOK {
			http.Error(w, http.StatusText(status), status)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

// judge returns the status of a request: OK to let it through.
func (g *Guard) judge(ctx context.Context, r *http.Request) (int, error) {
	// Methods are verbs in what the API server is asked. Anybody can make up any number of
	// them, and no answer about one would be of use for the next.
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return http.StatusMethodNotAllowed, errors.New("metrics are only read")
	}
	token, ok := tokenOf(r)
	if !ok || token == "" || len(token) > maxToken {
		return http.StatusUnauthorized, errors.New("no bearer token")
	}
	key := sha256.Sum256([]byte(token))
	of, err := g.whose(ctx, token, key, r.RemoteAddr)
	switch {
	case errors.Is(err, errBusy):
		return http.StatusTooManyRequests, err
	case err != nil:
		return http.StatusServiceUnavailable, err
	case of.who == nil:
		return http.StatusUnauthorized, errors.New("the token is nobody's")
	}
	verb, path := strings.ToLower(r.Method), ofTollgate+r.URL.Path
	decision, _, err := g.allows.Authorize(ctx, authorizer.AttributesRecord{User: of.who, Verb: verb, Path: path})
	if err != nil {
		return http.StatusServiceUnavailable, err
	}
	g.remember(key, of, decision == authorizer.DecisionAllow)
	if decision != authorizer.DecisionAllow {
		return http.StatusForbidden, fmt.Errorf("user %s may not %s %s", of.who.GetName(), verb, path)
	}
	return http.StatusOK, nil
}

// tokenOf returns the token that r bears. Schemes have no case (RFC 9110, section 11.1).
func tokenOf(r *http.Request) (string, bool) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return token, strings.EqualFold(scheme, "Bearer")
}

// whose returns whose a token is that comes from an address; who is nil for nobody's.
func (g *Guard) whose(ctx context.Context, token string, key [sha256.Size]byte, address string) (owner, error) {
	now := g.clock.Now()
	known, wasGood := g.good.Get(key)
	if !wasGood {
		known, _ = g.others.Get(key)
	}
	if of, ok := known.(owner); ok && now.Before(of.until) {
		return of, nil
	}
	if _, isBad := g.bad.Get(key); isBad {
		return owner{}, nil
	}
	if !g.mayReview(wasGood, address, now) {
		return owner{}, errBusy
	}
	return g.review(ctx, token, key)
}

// remember keeps whose a token is, by whether it was let through.
func (g *Guard) remember(key [sha256.Size]byte, of owner, allowed bool) {
	if allowed {
		g.others.Remove(key)
		g.good.Add(key, of, goodFor)
		return
	}
	g.good.Remove(key)
	g.others.Add(key, of, keptFor)
}

// mayReview takes one review out of what there is for tokens that were good, or for others.
func (g *Guard) mayReview(wasGood bool, address string, now time.Time) bool {
	if wasGood {
		return g.again.AllowN(now, 1)
	}
	// Its share comes first: who has used that up takes nothing from others.
	return g.shares.allow(address, now) && g.first.AllowN(now, 1)
}

// review asks the API server whose a token is, and remembers it if it is nobody's.
func (g *Guard) review(ctx context.Context, token string, key [sha256.Size]byte) (owner, error) {
	review, err := g.tokens.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return owner{}, fmt.Errorf("review token: %w", err)
	}
	if !review.Status.Authenticated {
		g.good.Remove(key)
		g.bad.Add(key, nil, keptFor)
		return owner{}, nil
	}
	return owner{infoOf(&review.Status.User), g.clock.Now().Add(keptFor)}, nil
}

func infoOf(u *authenticationv1.UserInfo) user.Info {
	info := &user.DefaultInfo{Name: u.Username, UID: u.UID, Groups: u.Groups}
	if len(u.Extra) > 0 {
		info.Extra = map[string][]string{}
		for name, values := range u.Extra {
			info.Extra[name] = values
		}
	}
	return info
}
