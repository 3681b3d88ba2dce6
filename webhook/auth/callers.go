package auth

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/policy"
)

// CallerOptions configure the credentials of callers.
type CallerOptions struct {
	// Required refuses callers without a good credential. Otherwise they are only counted.
	Required bool
	// Clock is this machine's; the files are looked at, and keys grow old, by it.
	Clock clock.WithTicker
	// ServerClock is the API server's, by which tokens and certificates expire.
	ServerClock clock.PassiveClock
	// CallerMetrics counts callers.
	Metrics *CallerMetrics
	// Certificates are the client certificates that are accepted; none where it is nil.
	Certificates *Certificates
	// Tokens are the tokens that are accepted; none where it is nil.
	Tokens *Tokens
}

// Callers identifies the callers that may send reviews. It is safe for concurrent use.
type Callers struct {
	options CallerOptions
	// logs bounds how many refusals are logged: any client that reaches the port could fill the
	// log with them.
	logs *rate.Limiter
	// warned is for the message that is logged once.
	warned sync.Once

	certificates *certificates
	tokens       *tokens
}

// NewCallers returns callers by the options. It reads the file of authorities, and fails where that
// does not work.
func NewCallers(o CallerOptions) (*Callers, error) {
	c := &Callers{options: o, logs: rate.NewLimiter(1, 10)}
	if o.Certificates != nil {
		var err error
		if c.certificates, err = newCertificates(o); err != nil {
			return nil, fmt.Errorf("read the authorities of client certificates: %w", err)
		}
	}
	if o.Tokens != nil {
		c.tokens = newTokens(o)
	}
	return c, nil
}

// Start follows the file of authorities until ctx is done. Where callers may be refused, it reads
// the keys of tokens before the first token comes.
func (c *Callers) Start(ctx context.Context) error {
	if c.tokens != nil && c.options.Required {
		go c.tokens.keys.refreshed(ctx)
	}
	if c.certificates == nil {
		<-ctx.Done()
		return nil
	}
	return c.certificates.follow(ctx)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica is called.
func (c *Callers) NeedLeaderElection() bool { return false }

// TLSConfig makes a server ask clients for a certificate, if any is accepted. Which one it is
// does not end the handshake: a refused caller cannot tell why.
func (c *Callers) TLSConfig(config *tls.Config) {
	if c != nil && c.certificates != nil {
		config.ClientAuth = tls.RequestClientCert
	}
}

// Visit is one request of a caller. The zero value may send everything.
type Visit struct {
	callers *Callers
	from    string
	way     way
	grant   grant
	// err is why the caller is not known.
	err error
}

var (
	errNothingShown = errors.New("it shows neither a client certificate nor a token")
	errOtherGroup   = errors.New("the token is not for reviews of this API group")
)

// Identify looks at the credentials of r, a request to the endpoint of the name. It reports whether
// the body is worth reading; if not, the answer is that the caller is unauthorized, and nothing else.
// Nil callers, where no credential is asked for, let every caller pass.
func (c *Callers) Identify(r *http.Request, endpoint string) (Visit, bool) {
	if c == nil {
		return Visit{}, true
	}
	visit := Visit{callers: c, from: r.RemoteAddr, way: none, err: errNothingShown}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 && c.certificates != nil {
		visit.way = byCertificate
		visit.grant, visit.err = c.certificates.identify(r.TLS.PeerCertificates)
	}
	if token, ok := tokenOf(r); ok && c.tokens != nil && visit.err != nil {
		visit.way = byToken
		visit.grant, visit.err = c.tokens.identify(r.Context(), token, c.options.Tokens.Endpoints[endpoint])
	}
	if visit.err != nil && c.options.Required {
		visit.refuse(r.Context(), visit.err)
		return Visit{}, false
	}
	return visit, true
}

// MaySend reports whether the caller may send reviews of an API group, and counts it.
func (v Visit) MaySend(ctx context.Context, group string) bool {
	if v.callers == nil {
		return true
	}
	c, err := v.callers, v.err
	if err == nil && !v.grant.covers(group) {
		err = errOtherGroup
	}
	switch {
	case err == nil:
		c.options.Metrics.count(v.way, accepted)
	case c.options.Required:
		v.refuse(ctx, err)
		return false
	default:
		c.options.Metrics.count(v.way, answered)
		c.warned.Do(func() {
			logr.FromContextOrDiscard(ctx).Info("answered a caller that did not show who it is, "+
				"as webhook.authentication.mode Optional says; this is said once, see tollgate_admission_callers_total",
				"from", v.from, "way", v.way, "reason", limit(err))
		})
	}
	return true
}

// Proven reports whether the caller has shown that it is the API server, for reviews of an API
// group. Where no credential is asked for, no caller has.
func (v Visit) Proven(group string) bool {
	return v.callers != nil && v.err == nil && v.grant.covers(group)
}

func (v Visit) refuse(ctx context.Context, err error) {
	c := v.callers
	c.options.Metrics.count(v.way, refused)
	if c.logs.AllowN(c.options.Clock.Now(), 1) {
		logr.FromContextOrDiscard(ctx).Info("refused a caller", "from", v.from, "way", v.way, "reason", limit(err))
	}
}

// limit bounds a reason: the names in a certificate may be long.
func limit(err error) string { return policy.Short(err.Error(), 300) }

// grant is what an identified caller may do.
type grant struct {
	// until is when the credential expires.
	until time.Time
	// groups are the API groups of the reviews that it may send.
	groups []string
}

// everyGroup is how KEP-6060 writes that a token is for reviews of all API groups. The core
// group, whose name is empty, is in no other.
const everyGroup = "*"

func (g grant) covers(group string) bool {
	return slices.Contains(g.groups, everyGroup) || group != "" && slices.Contains(g.groups, group)
}
