package auth

import (
	"crypto/sha256"
	"sync"
	"time"
)

// maxVerified bounds what is remembered. An API server shows one certificate, and one token
// at a time to each endpoint.
const maxVerified = 256

// digest stands for what was shown, so that no token is kept.
type digest [sha256.Size]byte

// verified remembers what was found good, until it expires. What was found bad is not
// remembered: everybody can make as much of that as he likes. B is by what it was found
// good; it counts no longer when that is another. It is safe for concurrent use.
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

func (v *verified[B]) put(shown digest, by B, g grant, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.entries == nil {
		v.entries = map[digest]entry[B]{}
	}
	if len(v.entries) >= maxVerified {
		v.makeRoom(by, now)
	}
	v.entries[shown] = entry[B]{by: by, grant: g}
}

// makeRoom forgets what counts no longer, and some entry if there is none such.
func (v *verified[B]) makeRoom(by B, now time.Time) {
	for shown, e := range v.entries {
		if e.by != by || !now.Before(e.grant.until) {
			delete(v.entries, shown)
		}
	}
	for shown := range v.entries {
		if len(v.entries) < maxVerified {
			return
		}
		delete(v.entries, shown)
	}
}
