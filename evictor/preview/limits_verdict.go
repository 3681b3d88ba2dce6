package preview

import "github.com/tollgate-dev/tollgate/policy"

// Verdict is what limits have against a write. The zero Verdict is that of a write for
// which no limit holds.
type Verdict struct {
	// Findings name the limits that the write is beyond.
	Findings []policy.Finding
	// Approved are the names of the EvictionApprovals that let it through all the same,
	// and Beyond says so in sentences.
	Approved, Beyond []string

	settled func(written bool)
}

// Exceeded reports whether the write must not be made.
func (v Verdict) Exceeded() bool {
	return policy.Decide(v.Findings).Verdict == policy.Denied
}

// Settle says what became of the write, so that one that is not made does not count
// against others. It is to be called once.
func (v Verdict) Settle(written bool) {
	if v.settled != nil {
		v.settled(written)
	}
}
