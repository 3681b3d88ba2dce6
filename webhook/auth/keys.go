package auth

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-logr/logr"
	"golang.org/x/sync/singleflight"
)

const (
	// maxKeySet bounds a published key set, in bytes, and maxKeys how many keys are taken.
	maxKeySet = 256 << 10
	maxKeys   = 64
	// refreshAfter is when keys are read again before their next use, so that one that is
	// published no longer is trusted for as long at most, unless they cannot be read.
	refreshAfter = 5 * time.Minute
	// maxAge is for how long keys are used when they cannot be read again: for as long as
	// the API server itself lets them be cached.
	maxAge = time.Hour
	// readEvery is how often keys are read at most: every client can make up tokens of
	// unknown keys.
	readEvery = 5 * time.Second
	// readTimeout bounds one reading. A review waits for patience where its key is not known,
	// and for less where there is one, which was good a few minutes ago.
	readTimeout, callerPatience, patienceOnce = 5 * time.Second, time.Second, 250 * time.Millisecond
	// After a failure it is tried again after retryFirst, which doubles up to retryMost.
	retryFirst, retryMost = time.Second, 30 * time.Second
)

var (
	errUnknownKey = errors.New("no published key is the one that the token says it was signed with")
	errNoKeys     = errors.New("the keys of the API server could not be read")
)

// keySet are the keys that were published at one time. It does not change.
type keySet struct {
	issuer string
	keys   map[string]jose.JSONWebKey
	digest digest
}

// keys are the keys that tokens are signed with. It is safe for concurrent use.
type keys struct {
	CallerOptions

	readings singleflight.Group

	mu     sync.Mutex // guards the fields below
	set    *keySet    // nil until something was read
	readAt time.Time
	// notBefore is when the next reading may begin. It is set before a reading ends.
	notBefore time.Time
	failures  int
}

func newKeys(o CallerOptions) *keys { return &keys{CallerOptions: o} }

// current returns the keys that were read last, nil if none were, and whether they are to be
// read again before they are used.
func (k *keys) current() (set *keySet, old bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.set, k.Clock.Now().Sub(k.readAt) >= refreshAfter
}

// refreshed reads keys that are old again, and returns those that count then: if they cannot
// be read, those known, and nil if they are too old for that.
func (k *keys) refreshed(ctx context.Context) *keySet {
	set, _, _ := k.find(ctx, "")
	return set
}

// find returns the key of an ID; without an ID, the key set alone. If it is not known, or was read
// long ago, keys are read again, unless that was done a moment ago, and the caller waits for them
// a while.
func (k *keys) find(ctx context.Context, id string) (*keySet, jose.JSONWebKey, error) {
	k.mu.Lock()
	set, key, err := k.known(id)
	now := k.Clock.Now()
	reads := (err != nil || now.Sub(k.readAt) >= refreshAfter) && !now.Before(k.notBefore)
	k.mu.Unlock()
	if !reads {
		return set, key, err
	}
	// Others wait for it too, and the first request may be over before.
	reading := k.readings.DoChan("", func() (any, error) {
		// A reading may have ended since reads was computed.
		k.mu.Lock()
		early := k.Clock.Now().Before(k.notBefore)
		k.mu.Unlock()
		if !early {
			k.read(context.WithoutCancel(ctx))
		}
		return nil, nil
	})
	if !k.Required { // Where no caller is refused, no review has to wait for a reading.
		return set, key, err
	}
	longest := callerPatience
	if err == nil || id == "" {
		longest = patienceOnce
	}
	timeout, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	select {
	case <-reading:
	case <-timeout.Done():
		if err != nil {
			return nil, jose.JSONWebKey{}, errNoKeys
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.known(id)
}

// known must be called with the lock held.
func (k *keys) known(id string) (*keySet, jose.JSONWebKey, error) {
	if k.set == nil || k.Clock.Now().Sub(k.readAt) >= maxAge {
		return nil, jose.JSONWebKey{}, errNoKeys
	}
	key, ok := k.set.keys[id]
	if !ok && id != "" {
		return nil, jose.JSONWebKey{}, errUnknownKey
	}
	return k.set, key, nil
}

// read reads the keys, and keeps those that are there if that does not work.
func (k *keys) read(ctx context.Context) {
	began := k.Clock.Now()
	set, err := k.published(ctx)
	k.Metrics.read(trustKeys, err)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.notBefore = k.Clock.Now().Add(min(retryFirst<<min(k.failures, 10), retryMost))
		if k.failures == 0 {
			logr.FromContextOrDiscard(ctx).Error(err, "read the keys that tokens of callers are signed with, those known stay in use")
		}
		k.failures++
		return
	}
	k.failures, k.readAt, k.notBefore = 0, began, k.Clock.Now().Add(readEvery)
	if k.set == nil || k.set.digest != set.digest || k.set.issuer != set.issuer {
		k.set = set
		logr.FromContextOrDiscard(ctx).Info("keys that tokens of callers are signed with are in use", "issuer", set.issuer, "keys", len(set.keys))
	}
}

func (k *keys) published(ctx context.Context) (*keySet, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	published, err := k.Tokens.Published(ctx)
	if err != nil {
		return nil, err
	}
	published.Issuer = cmp.Or(k.Tokens.Issuer, published.Issuer)
	return parseKeys(published)
}

// parseKeys returns the published public keys. Those of other kinds, sizes and
// uses are left out: a newer API server may have some that are not known here.
func parseKeys(published Published) (*keySet, error) {
	if len(published.Keys) > maxKeySet {
		return nil, fmt.Errorf("the key set is larger than %d KiB", maxKeySet>>10)
	}
	var raw struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(published.Keys, &raw); err != nil {
		return nil, fmt.Errorf("decode the key set: %w", err)
	}
	set := &keySet{issuer: published.Issuer, keys: map[string]jose.JSONWebKey{}, digest: sha256.Sum256(published.Keys)}
	for _, one := range raw.Keys {
		var key jose.JSONWebKey
		if len(set.keys) >= maxKeys || key.UnmarshalJSON(one) != nil || !usable(&key) {
			continue
		}
		if _, twice := set.keys[key.KeyID]; !twice {
			set.keys[key.KeyID] = key
		}
	}
	switch {
	case len(set.keys) == 0:
		return nil, errors.New("the key set has no key that could be used")
	case set.issuer == "":
		return nil, errors.New("no issuer is published with the keys")
	}
	return set, nil
}

// Published are the keys that an issuer publishes for its tokens.
type Published struct {
	// Issuer names it in tokens. It may be empty where it is known from elsewhere.
	Issuer string
	// Keys is a JSON Web Key Set.
	Keys []byte
}

// Source reads published keys. It must end when its context does.
type Source func(ctx context.Context) (Published, error)

// The paths where an API server publishes, which ServiceAccounts may read by the ClusterRole
// system:service-account-issuer-discovery (pkg/serviceaccount/openidmetadata.go).
const (
	pathDiscovery = "/.well-known/openid-configuration"
	pathKeys      = "/openid/v1/jwks"
)

// Get reads from an API server at a path.
type Get func(ctx context.Context, path string) ([]byte, error)

// FromAPIServer returns the source of the keys that an API server publishes. The address of the keys
// in its discovery document is not followed: others may have to take them from there, and
// a client of the API server does not.
func FromAPIServer(get Get) Source {
	return func(ctx context.Context) (Published, error) {
		discovery, err := get(ctx, pathDiscovery)
		if err != nil {
			return Published{}, fmt.Errorf("get %s: %w", pathDiscovery, err)
		}
		var document struct {
			Issuer string `json:"issuer"`
		}
		if err := json.Unmarshal(discovery, &document); err != nil {
			return Published{}, fmt.Errorf("decode %s: %w", pathDiscovery, err)
		}
		keys, err := get(ctx, pathKeys)
		if err != nil {
			return Published{}, fmt.Errorf("get %s: %w", pathKeys, err)
		}
		return Published{Issuer: document.Issuer, Keys: keys}, nil
	}
}

// smallestRSA is the least bits that an RSA key is believed with.
const smallestRSA = 2048

// usable reports whether tokens can be verified by a key.
func usable(key *jose.JSONWebKey) bool {
	if key.KeyID == "" || (key.Use != "" && key.Use != "sig") || !key.IsPublic() || !key.Valid() ||
		!slices.Contains(algorithms(), jose.SignatureAlgorithm(key.Algorithm)) {
		return false
	}
	switch public := key.Key.(type) {
	case *rsa.PublicKey:
		return key.Algorithm == string(jose.RS256) && public.N.BitLen() >= smallestRSA
	case *ecdsa.PublicKey:
		return key.Algorithm != string(jose.RS256)
	default:
		return false
	}
}
