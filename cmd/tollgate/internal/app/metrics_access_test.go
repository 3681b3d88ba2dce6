package app_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/app"
)

// cluster accepts tokens that begin with "stranger" and with "scraper"; the latter may get
// /tollgate/metrics.
type cluster struct {
	mu      sync.Mutex
	reviews int
	access  int
	// withdrawn is a revoked token.
	withdrawn string
	down      bool
	mute      bool
}

func (c *cluster) Create(_ context.Context, review *authenticationv1.TokenReview, _ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reviews++
	if c.down {
		return nil, errors.New("connection refused by 10.0.0.1")
	}
	token := review.Spec.Token
	review.Status.Authenticated = (strings.HasPrefix(token, "scraper") || strings.HasPrefix(token, "stranger")) && token != c.withdrawn
	// The user of a failed authentication must not count.
	review.Status.User = authenticationv1.UserInfo{Username: "scraper", Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}}
	if strings.HasPrefix(token, "stranger") {
		review.Status.User.Username = token
	}
	return review, nil
}

func (c *cluster) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.access++
	if c.mute {
		return authorizer.DecisionNoOpinion, "", errors.New("no answer")
	}
	if a.GetUser().GetName() == "scraper" && a.GetUser().GetExtra()["k"][0] == "v" && a.GetVerb() == "get" && a.GetPath() == "/tollgate/metrics" && !a.IsResourceRequest() {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func (c *cluster) set(down, mute bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down, c.mute = down, mute
}

func (c *cluster) withdraw(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.withdrawn = token
}

func (c *cluster) asked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reviews
}

func (c *cluster) decided() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.access
}

// ask returns the response to a request with the header Authorization.
func ask(t *testing.T, handler http.Handler, method, path, authorization string) (int, string) {
	t.Helper()
	return askFrom(t, handler, "192.0.2.1:1234", method, path, authorization)
}

// askFrom is ask from an address.
func askFrom(t *testing.T, handler http.Handler, address, method, path, authorization string) (int, string) {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	request.RemoteAddr = address
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder.Code, recorder.Body.String()
}

func guarded(c *cluster, clock *clocktesting.FakePassiveClock) http.Handler {
	handler, err := app.NewGuard(c, c, clock).Around(logr.Discard(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("secret 1"))
	}))
	if err != nil {
		panic(err)
	}
	return handler
}

func TestF12MetricsAreShownToWhoMayGetThem(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		method, path, authorization string
		down, mute                  bool
		want                        int
	}{
		"who may get them":                      {authorization: "Bearer scraper", want: http.StatusOK},
		"who may not":                           {authorization: "Bearer stranger", want: http.StatusForbidden},
		"a token that is nobody's":              {authorization: "Bearer forged", want: http.StatusUnauthorized},
		"no token":                              {want: http.StatusUnauthorized},
		"an empty token":                        {authorization: "Bearer ", want: http.StatusUnauthorized},
		"another scheme":                        {authorization: "Basic c2NyYXBlcjpzY3JhcGVy", want: http.StatusUnauthorized},
		"a token of a megabyte":                 {authorization: "Bearer " + strings.Repeat("x", 1<<20), want: http.StatusUnauthorized},
		"a scheme in another spelling":          {authorization: "bearer scraper", want: http.StatusOK},
		"a token without its scheme":            {authorization: "scraper", want: http.StatusUnauthorized},
		"another verb than is granted":          {method: http.MethodHead, authorization: "Bearer scraper", want: http.StatusForbidden},
		"a method that does not read":           {method: http.MethodPost, authorization: "Bearer scraper", want: http.StatusMethodNotAllowed},
		"a method in another spelling":          {method: "get", authorization: "Bearer scraper", want: http.StatusMethodNotAllowed},
		"another path than is granted":          {path: "/debug/pprof", authorization: "Bearer scraper", want: http.StatusForbidden},
		"an API server that is away":            {authorization: "Bearer scraper", down: true, want: http.StatusServiceUnavailable},
		"an API server that does not say if so": {authorization: "Bearer scraper", mute: true, want: http.StatusServiceUnavailable},
		"a stranger, while it is away":          {authorization: "Bearer stranger", down: true, want: http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &cluster{}
			c.set(test.down, test.mute)
			method, path := test.method, test.path
			if method == "" {
				method = http.MethodGet
			}
			if path == "" {
				path = "/metrics"
			}
			status, body := ask(t, guarded(c, clocktesting.NewFakePassiveClock(time.Unix(0, 0))), method, path, test.authorization)
			require.Equal(t, test.want, status)
			if status != http.StatusOK {
				require.Equal(t, http.StatusText(status)+"\n", body, "no more than the status")
			}
		})
	}
}

func TestF12WhatIsKnownOfTokensIsKeptForAMinute(t *testing.T) {
	t.Parallel()
	c, clock := &cluster{}, clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	handler := guarded(c, clock)
	for range 10 {
		status, _ := ask(t, handler, http.MethodGet, "/metrics", "Bearer scraper")
		require.Equal(t, http.StatusOK, status)
		status, _ = ask(t, handler, http.MethodGet, "/metrics", "Bearer forged")
		require.Equal(t, http.StatusUnauthorized, status)
	}
	require.Equal(t, 2, c.asked())
	clock.SetTime(time.Unix(61, 0))
	c.set(true, false)
	status, _ := ask(t, handler, http.MethodGet, "/metrics", "Bearer scraper")
	require.Equal(t, http.StatusServiceUnavailable, status)
	c.set(false, false)
	status, _ = ask(t, handler, http.MethodGet, "/metrics", "Bearer scraper")
	require.Equal(t, http.StatusOK, status, "that nobody could say is not kept")
}

func TestF12MethodsThatAreMadeUpCostTheAPIServerNothing(t *testing.T) {
	t.Parallel()
	c := &cluster{}
	handler := guarded(c, clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
	for i := range 1000 {
		status, _ := ask(t, handler, "M"+strconv.Itoa(i), "/metrics", "Bearer stranger")
		require.Equal(t, http.StatusMethodNotAllowed, status)
	}
	require.Zero(t, c.asked())
	require.Zero(t, c.decided())
}

func TestF12ManyForgedTokensCostTheAPIServerLittle(t *testing.T) {
	t.Parallel()
	c := &cluster{}
	handler := guarded(c, clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
	last := 0
	for i := range 1000 {
		last, _ = ask(t, handler, http.MethodGet, "/metrics", "Bearer forged-"+strconv.Itoa(i))
	}
	require.Equal(t, http.StatusTooManyRequests, last)
	require.LessOrEqual(t, c.asked(), 4)
}

func TestF12ManyForgedTokensFromManyAddressesCostTheAPIServerLittle(t *testing.T) {
	t.Parallel()
	c, clock := &cluster{}, clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	handler := guarded(c, clock)
	const seconds = 3
	for second := range int64(seconds) {
		clock.SetTime(time.Unix(second, 0))
		for i := range 1100 {
			address := fmt.Sprintf("[2001:db8::%x]:1234", i)
			askFrom(t, handler, address, http.MethodGet, "/metrics", fmt.Sprintf("Bearer forged-%d-%d", second, i))
		}
	}
	require.LessOrEqual(t, c.asked(), 20+5*seconds)
}

func TestF12WhoMakesUpTokensDoesNotStopANewOneFromElsewhere(t *testing.T) {
	t.Parallel()
	for name, addresses := range map[string][]string{
		"from one address":                     {"192.0.2.1"},
		"from four addresses":                  {"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"},
		"from one address in another spelling": {"192.0.2.1", "[::ffff:192.0.2.1]"},
		"from what is no address":              {"", "@"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, clock := &cluster{}, clocktesting.NewFakePassiveClock(time.Unix(0, 0))
			handler := guarded(c, clock)
			for second := range int64(20) {
				clock.SetTime(time.Unix(second, 0))
				for i := range 40 {
					address := fmt.Sprintf("%s:%d", addresses[i%len(addresses)], 1024+i)
					askFrom(t, handler, address, http.MethodGet, "/metrics", fmt.Sprintf("Bearer forged-%d-%d", second, i))
				}
				status, _ := askFrom(t, handler, "192.0.2.9:1234", http.MethodGet, "/metrics", fmt.Sprintf("Bearer scraper-%d", second))
				require.Equal(t, http.StatusOK, status, "in second %d", second)
			}
		})
	}
}

func TestF12WhoHasManyTokensDoesNotStopWhoHasAGoodOne(t *testing.T) {
	t.Parallel()
	for name, token := range map[string]string{
		"made up": "forged",
		"of ServiceAccounts that may not see metrics": "stranger",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, clock := &cluster{}, clocktesting.NewFakePassiveClock(time.Unix(0, 0))
			handler := guarded(c, clock)
			for second := range int64(300) {
				clock.SetTime(time.Unix(second, 0))
				if second%30 == 0 {
					status, _ := ask(t, handler, http.MethodGet, "/metrics", "Bearer scraper")
					require.Equal(t, http.StatusOK, status, "after %d seconds", second)
				}
				// These requests use the rate up.
				clock.SetTime(time.Unix(second+1, 0))
				for i := range 30 {
					address := fmt.Sprintf("192.0.2.%d:4242", 100+i)
					askFrom(t, handler, address, http.MethodGet, "/metrics", fmt.Sprintf("Bearer %s-%d-%d", token, second, i))
				}
			}
		})
	}
}

func TestF12ATokenThatWasGoodIsNobodysAMinuteAfterItWasTakenAway(t *testing.T) {
	t.Parallel()
	c, clock := &cluster{}, clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	handler := guarded(c, clock)
	status, _ := ask(t, handler, http.MethodGet, "/metrics", "Bearer scraper")
	require.Equal(t, http.StatusOK, status)
	c.withdraw("scraper")
	clock.SetTime(time.Unix(59, 0))
	status, _ = ask(t, handler, http.MethodGet, "/metrics", "Bearer scraper")
	require.Equal(t, http.StatusOK, status)
	for second := range int64(30) {
		clock.SetTime(time.Unix(60+second, 0))
		status, _ = ask(t, handler, http.MethodGet, "/metrics", "Bearer scraper")
		require.Equal(t, http.StatusUnauthorized, status)
	}
	require.Equal(t, 2, c.asked(), "what is nobody's is remembered too")
}
