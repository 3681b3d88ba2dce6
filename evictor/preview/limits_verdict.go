package preview

import "github.com/tollgate-dev/tollgate/policy"

// Verdict is the judgment of limits about a write. The zero Verdict is that of a write to
// which no limit applies.
type Verdict struct {
	// Findings are the limits that the write exceeds.
	Findings []policy.Finding
	// Beyond are sentences about limits that the write exceeds, as EvictionApprovals allow.
	Beyond []string

	// own is the write in the ledger, nil for a dry run and for one that is unproven. Without a
	// ledger no limit applies.
	ledger *Ledger
	own    *Admission
}

// Exceeded reports whether the write must not be made.
func (v Verdict) Exceeded() bool {
	return policy.Decide(v.Findings).Verdict == policy.Denied
}

// Settle records whether the write was made: one that was not counts for no other write.
// It must be called once.
func (v Verdict) Settle(written bool) {
	if v.ledger != nil && !written {
		v.ledger.Withdraw(v.own)
	}
}
