package auth

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
)

var errAway = errors.New("connection refused")

func keysOf(p *publisher) *keys {
	return newKeys(CallerOptions{
		Required: true, Clock: clock.RealClock{}, Metrics: NewCallerMetrics(prometheus.NewPedanticRegistry()), Tokens: &Tokens{Published: p.Read},
	})
}

func TestF07KeysAreReadOnceForAllWhoWaitForThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := publishing(newSigner(t, "one", jose.ES256))
		p.takes = 100 * time.Millisecond
		k := keysOf(p)
		var waiting sync.WaitGroup
		for range 50 {
			waiting.Go(func() {
				_, _, err := k.find(t.Context(), "one")
				if err != nil {
					t.Error(err)
				}
			})
		}
		waiting.Wait()
		require.Equal(t, 1, p.times())
	})
}

func TestF07WhoLeavesDoesNotEndTheReadingForTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := publishing(newSigner(t, "one", jose.ES256))
		p.takes = callerPatience + time.Second
		k := keysOf(p)
		start := time.Now()
		_, _, err := k.find(t.Context(), "one")
		require.ErrorIs(t, err, errNoKeys)
		require.Equal(t, callerPatience, time.Since(start), "a review does not wait longer")
		time.Sleep(2 * time.Second)
		_, _, err = k.find(t.Context(), "one")
		require.NoError(t, err)
		require.Equal(t, 1, p.times())
	})
}

func TestF07ANewKeyIsFoundAtOnceAndUnknownOnesDoNotCauseAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newSigner(t, "one", jose.ES256), newSigner(t, "two", jose.ES256)
		p := publishing(one)
		k := keysOf(p)
		_, _, err := k.find(t.Context(), "one")
		require.NoError(t, err)
		time.Sleep(readEvery)
		p.publish(one, two)
		_, _, err = k.find(t.Context(), "two")
		require.NoError(t, err)
		require.Equal(t, 2, p.times())

		start := time.Now()
		for i := range 1000 {
			_, _, err = k.find(t.Context(), fmt.Sprintf("made-up-%d", i))
			require.ErrorIs(t, err, errUnknownKey)
		}
		require.Zero(t, time.Since(start), "nobody waits for what was read a moment ago")
		require.Equal(t, 2, p.times())
		for range 60 {
			time.Sleep(time.Second)
			_, _, err = k.find(t.Context(), "made-up")
			require.ErrorIs(t, err, errUnknownKey)
		}
		require.LessOrEqual(t, p.times(), 2+int(time.Minute/readEvery))
	})
}

func TestF07AKeyThatIsPublishedNoLongerIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newSigner(t, "one", jose.ES256), newSigner(t, "two", jose.ES256)
		p := publishing(one, two)
		k := keysOf(p)
		_, _, err := k.find(t.Context(), "two")
		require.NoError(t, err)
		p.publish(one)
		p.take(patienceOnce / 2)
		time.Sleep(refreshAfter - time.Second)
		_, _, err = k.find(t.Context(), "two")
		require.NoError(t, err)
		require.Equal(t, 1, p.times())
		time.Sleep(time.Second)
		_, _, err = k.find(t.Context(), "two")
		require.ErrorIs(t, err, errUnknownKey, "not even the first who comes too late may use it")
	})
}

func TestF07AKeyThatIsPublishedNoLongerTakesItsTokensAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newSigner(t, "one", jose.ES256), newSigner(t, "two", jose.ES256)
		p := publishing(one, two)
		known := acceptingTokens(t, true, p)
		token := forValidating().signedBy(t, two)
		_, err := known.tokens.identify(t.Context(), token, endpoints()[validate])
		require.NoError(t, err)
		p.publish(one)
		time.Sleep(refreshAfter - time.Second)
		_, err = known.tokens.identify(t.Context(), token, endpoints()[validate])
		require.NoError(t, err)
		require.Equal(t, 1, p.times())
		time.Sleep(time.Second)
		_, err = known.tokens.identify(t.Context(), token, endpoints()[validate])
		require.ErrorIs(t, err, errUnknownKey, "it is remembered, and counts no more")
	})
}

func TestF07KnownKeysAreWaitedForAShortTimeAndStayWhileTheyCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		by := newSigner(t, "one", jose.ES256)
		p := publishing(by)
		known := acceptingTokens(t, true, p)
		token := forValidating().signedBy(t, by)
		_, err := known.tokens.identify(t.Context(), token, endpoints()[validate])
		require.NoError(t, err)
		p.take(2 * readTimeout)
		time.Sleep(refreshAfter)
		start := time.Now()
		_, err = known.tokens.identify(t.Context(), token, endpoints()[validate])
		require.NoError(t, err)
		require.Equal(t, patienceOnce, time.Since(start), "a token that is remembered")
		_, _, err = known.tokens.keys.find(t.Context(), "one")
		require.NoError(t, err)
		require.Equal(t, 2*patienceOnce, time.Since(start), "a key that is known")
		time.Sleep(maxAge)
		_, err = known.tokens.identify(t.Context(), token, endpoints()[validate])
		require.ErrorIs(t, err, errNoKeys, "an hour is how long they may be kept")
		time.Sleep(2 * readTimeout) // The reading under way ends.
	})
}

func TestF07NobodyWaitsForKeysWhereNobodyIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		by := newSigner(t, "one", jose.ES256)
		p := publishing(by)
		p.take(time.Second)
		known := acceptingTokens(t, false, p)
		token, unknown := forValidating().signedBy(t, by), forValidating().signedBy(t, newSigner(t, "two", jose.ES256))
		start := time.Now()
		_, err := known.tokens.identify(t.Context(), token, endpoints()[validate])
		require.ErrorIs(t, err, errNoKeys)
		require.Zero(t, time.Since(start))
		time.Sleep(readEvery + 2*time.Second)
		start = time.Now()
		_, err = known.tokens.identify(t.Context(), token, endpoints()[validate])
		require.NoError(t, err)
		_, err = known.tokens.identify(t.Context(), unknown, endpoints()[validate])
		require.ErrorIs(t, err, errUnknownKey)
		synctest.Wait()
		require.Equal(t, 2, p.times())
		require.Zero(t, time.Since(start))
		time.Sleep(refreshAfter + 2*time.Second)
		start = time.Now()
		_, err = known.tokens.identify(t.Context(), token, endpoints()[validate])
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, 3, p.times())
		require.Zero(t, time.Since(start))
		time.Sleep(2 * time.Second) // The reading under way ends.
	})
}

func TestF07KeysStayWhileTheAPIServerIsAwayAndAreAskedForMoreAndMoreSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := publishing(newSigner(t, "one", jose.ES256))
		logged := &callerLines{}
		ctx := logr.NewContext(t.Context(), logged.logger())
		k := keysOf(p)
		_, _, err := k.find(ctx, "one")
		require.NoError(t, err)
		read := time.Now()
		p.fail(errAway)
		time.Sleep(refreshAfter)
		for time.Since(read) < maxAge {
			_, _, err = k.find(ctx, "one")
			require.NoError(t, err)
			time.Sleep(time.Second)
		}
		require.LessOrEqual(t, p.times(), 1+10+int(maxAge/retryMost))
		require.GreaterOrEqual(t, p.times(), 50)
		_, _, err = k.find(ctx, "one")
		require.ErrorIs(t, err, errNoKeys, "an hour is how long they may be kept")
		require.Len(t, logged.all(), 2, "that they are in use, and once that they cannot be read: %v", logged.all())
		require.InDelta(t, p.times()-1, testutil.ToFloat64(k.Metrics.reads.WithLabelValues("keys", "failed")), 1)

		p.fail(nil)
		time.Sleep(retryMost)
		_, _, err = k.find(ctx, "one")
		require.NoError(t, err)
	})
}

func TestF07WithoutKeysNobodyIsKnownAndNobodyWaitsTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := publishing()
		p.fail(errAway)
		k := keysOf(p)
		start := time.Now()
		for range 100 {
			_, _, err := k.find(t.Context(), "one")
			require.ErrorIs(t, err, errNoKeys)
		}
		require.Equal(t, 1, p.times())
		require.Zero(t, time.Since(start))
	})
}

func TestTokensThatWereVerifiedByOtherKeysAreVerifiedAgain(t *testing.T) {
	one, two := newSigner(t, "one", jose.ES256), newSigner(t, "two", jose.ES256)
	p := publishing(one, two)
	known := acceptingTokens(t, true, p)
	token := forValidating().signedBy(t, two)
	_, err := known.tokens.identify(t.Context(), token, endpoints()[validate])
	require.NoError(t, err)
	p.publish(one)
	known.tokens.keys.notBefore = time.Time{}
	_, _, err = known.tokens.keys.find(t.Context(), "three")
	require.ErrorIs(t, err, errUnknownKey)
	_, err = known.tokens.identify(t.Context(), token, endpoints()[validate])
	require.ErrorIs(t, err, errUnknownKey)
}

func TestWhatIsTakenOfAKeySet(t *testing.T) {
	one := newSigner(t, "one", jose.ES256)
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	good := one.public()
	edit := func(change func(*jose.JSONWebKey)) jose.JSONWebKey {
		changed := good
		change(&changed)
		return changed
	}
	tests := map[string]struct {
		key  jose.JSONWebKey
		want bool
	}{
		"a key as API servers publish it": {good, true},
		"a key of no use":                 {edit(func(k *jose.JSONWebKey) { k.Use = "" }), true},
		"a key for encryption":            {edit(func(k *jose.JSONWebKey) { k.Use = "enc" }), false},
		"a key without a name":            {edit(func(k *jose.JSONWebKey) { k.KeyID = "" }), false},
		"a key for no algorithm":          {edit(func(k *jose.JSONWebKey) { k.Algorithm = "" }), false},
		"a key for another algorithm":     {edit(func(k *jose.JSONWebKey) { k.Algorithm = "RS256" }), false},
		"a secret":                        {jose.JSONWebKey{Key: []byte("0123456789abcdef0123456789abcdef"), KeyID: "one", Algorithm: "HS256"}, false},
		"a secret for RS256":              {jose.JSONWebKey{Key: []byte("0123456789abcdef0123456789abcdef"), KeyID: "one", Algorithm: "RS256"}, false},
		"a private key":                   {jose.JSONWebKey{Key: one.key, KeyID: "one", Algorithm: "ES256"}, false},
		"an RSA key that is too small":    {jose.JSONWebKey{Key: &small.PublicKey, KeyID: "one", Algorithm: "RS256"}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			published, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{tt.key, newSigner(t, "two", jose.ES256).public()}})
			require.NoError(t, err)
			set, err := parseKeys(Published{Issuer: issuerURL, Keys: published})
			require.NoError(t, err)
			require.Contains(t, set.keys, "two", "one key that is of no use does not spoil the others")
			require.Equal(t, tt.want, len(set.keys) == 2)
		})
	}
}

func TestWhatIsNoKeySet(t *testing.T) {
	one, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{newSigner(t, "one", jose.ES256).public()}})
	require.NoError(t, err)
	tests := map[string]struct {
		published Published
		want      string
	}{
		"nothing":        {Published{Issuer: issuerURL}, "decode the key set"},
		"no JSON":        {Published{Issuer: issuerURL, Keys: []byte("<html>")}, "decode the key set"},
		"no keys":        {Published{Issuer: issuerURL, Keys: []byte(`{"keys":[]}`)}, "no key"},
		"unknown keys":   {Published{Issuer: issuerURL, Keys: []byte(`{"keys":[{"kty":"new"},{"kid":1},null,7]}`)}, "no key"},
		"no issuer":      {Published{Keys: one}, "no issuer"},
		"a huge key set": {Published{Issuer: issuerURL, Keys: []byte(`{"keys":[` + strings.Repeat(" ", maxKeySet) + `]}`)}, "larger than 256 KiB"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parseKeys(tt.published)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestNoMoreKeysAreTakenThanAnyAPIServerHas(t *testing.T) {
	key := newSigner(t, "", jose.ES256).public()
	var set jose.JSONWebKeySet
	for i := range maxKeys + 10 {
		key.KeyID = strconv.Itoa(i)
		set.Keys = append(set.Keys, key, key)
	}
	published, err := json.Marshal(set)
	require.NoError(t, err)
	parsed, err := parseKeys(Published{Issuer: issuerURL, Keys: published})
	require.NoError(t, err)
	require.Len(t, parsed.keys, maxKeys)
}
