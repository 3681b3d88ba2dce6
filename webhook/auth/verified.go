package auth

import (
	"crypto/sha256"
	"sync"
	"time"
)

// maxVerified bounds the number of credentials that are remembered. An API server shows one
// certificate, and one token at a time to each endpoint.
const maxVerified = 256

// digest stands for a credential, or for a question about permissions, so that neither is kept.
type digest [sha256.Size]byte

// verified remembers the grants of good credentials, until they expire. Bad ones are not
// remembered: every client can make as many of them as it likes. By is the trust that verified a
// credential; it counts no longer when that is another. It is safe for concurrent use, and its
// zero value is empty.
type verified[B comparable] struct {
	mu      sync.Mutex // guards entries
	entries map[digest]entry[B]
}

type entry[B comparable] struct {
	by    B
	grant grant
}

func (v *verified[B]) get(shown digest, by B, now time.Time) (grant, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	e, ok := v.entries[shown]
	if !ok || e.by != by || !now.Before(e.grant.until) {
		return grant{}, false
	}
	return e.grant, true
}

func (v *verified[B]) put(shown digest, by B, found grant) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.entries == nil || len(v.entries) >= maxVerified {
		v.entries = map[digest]entry[B]{} // Each is verified again when it is shown next.
	}
	v.entries[shown] = entry[B]{by: by, grant: found}
}
