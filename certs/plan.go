package certs

import (
	"crypto/x509"
	"slices"
	"time"
)

// step is one change of the Secret.
type step uint8

const (
	// stepNone leaves the Secret as it is.
	stepNone step = iota
	// stepCreate makes a CA that signs at once.
	stepCreate
	// stepRestore writes the state that this replica remembers.
	stepRestore
	// stepKeepTrust adds to the bundle the CAs that only the configurations hold.
	stepKeepTrust
	// stepIssue replaces the serving certificate.
	stepIssue
	// stepBeginRollOver adds the next CA to the bundle.
	stepBeginRollOver
	// stepNotePublished starts the delay of the roll-over.
	stepNotePublished
	// stepFinishRollOver makes the next CA sign.
	stepFinishRollOver
	// stepDropExpired removes expired CAs from the bundle.
	stepDropExpired
)

// String returns the name of the step for logs.
func (s step) String() string {
	switch s {
	case stepNone:
		return "none"
	case stepCreate:
		return "create CA"
	case stepRestore:
		return "restore"
	case stepKeepTrust:
		return "keep trusted CAs"
	case stepIssue:
		return "issue serving certificate"
	case stepBeginRollOver:
		return "begin CA roll-over"
	case stepNotePublished:
		return "note that next CA is published"
	case stepFinishRollOver:
		return "finish CA roll-over"
	case stepDropExpired:
		return "drop expired CA"
	}
	return "unknown"
}

// wanted is the configuration of the plan.
type wanted struct {
	hosts           []string
	caLifetime      time.Duration
	servingLifetime time.Duration
	bundleDelay     time.Duration
}

// seen is the input of the plan besides the Secret.
type seen struct {
	// published is true if every existing configuration holds the bundle.
	published bool
	// trusted are the CAs of Tollgate in the configurations. Replicas may serve
	// certificates of any of them, so none is dropped before it expires: not by a Secret
	// that was restored or recreated, or by a replica that missed a roll-over.
	trusted []*x509.Certificate
	// remembered is the last whole state, or nil.
	remembered *state
}

// action is the next step; if it is stepNone, again is the time of the next plan.
type action struct {
	step  step
	again time.Time
}

// plan returns the next step. It is pure. It is called after each step until it returns
// stepNone.
func plan(s *state, now time.Time, w *wanted, k seen) action {
	next := rescue(s, now, k)
	if next == stepNone {
		next = due(s, now, w, k)
	}
	if next == stepNone {
		return action{again: nextLook(s, now, w)}
	}
	return action{step: next}
}

// rescue returns the step for a state without a usable CA or certificate.
func rescue(s *state, now time.Time, k seen) step {
	switch {
	case s.ca == nil && k.remembered != nil && k.remembered.whole(now):
		return stepRestore
	case s.ca.usable(now) || s.serving.usable(now):
		return stepNone
	case s.next.usable(now):
		// No pair works, so there is no trust to preserve.
		return stepFinishRollOver
	}
	return stepCreate
}

// due returns the step that is due by time, for a state with a CA or at least a serving
// certificate.
func due(s *state, now time.Time, w *wanted, k seen) step {
	known := k.published && s.next.usable(now)
	switch {
	case forgetsTrusted(s, now, k.trusted):
		return stepKeepTrust
	case known && !s.published.IsZero() && !now.Before(s.published.Add(w.bundleDelay)):
		return stepFinishRollOver
	case s.ca.usable(now) && servingIsDue(s, now, w):
		return stepIssue
	case !s.next.usable(now) && (s.rollOver || !s.ca.usable(now) || !now.Before(renewal(s.ca.cert))):
		return stepBeginRollOver
	case known && s.published.IsZero():
		return stepNotePublished
	case slices.ContainsFunc(s.bundle, func(c *x509.Certificate) bool { return expired(c, now) }):
		return stepDropExpired
	}
	return stepNone
}

// forgetsTrusted reports whether publishing the bundle would remove a trusted CA. A full
// bundle accepts no more.
func forgetsTrusted(s *state, now time.Time, trusted []*x509.Certificate) bool {
	return len(s.bundle) < maxBundle && slices.ContainsFunc(trusted, func(c *x509.Certificate) bool {
		return !expired(c, now) && !s.trusts(c)
	})
}

func servingIsDue(s *state, now time.Time, w *wanted) bool {
	if !s.serving.usable(now) || !s.serving.covers(w.hosts) {
		return true
	}
	return renewable(s) && !now.Before(renewal(s.serving.leaf))
}

// renewable reports whether a new serving certificate would expire later than the current
// one; not so near the end of the CA.
func renewable(s *state) bool {
	return s.ca.cert.NotAfter.After(s.serving.leaf.NotAfter)
}

// nextLook returns the first time at which the plan changes without an event.
func nextLook(s *state, now time.Time, w *wanted) time.Time {
	moments := []time.Time{s.serving.leaf.NotAfter}
	if s.ca.usable(now) && renewable(s) {
		moments = append(moments, renewal(s.serving.leaf))
	}
	if s.ca.usable(now) && !s.next.usable(now) {
		moments = append(moments, renewal(s.ca.cert))
	}
	if s.next.usable(now) && !s.published.IsZero() {
		moments = append(moments, s.published.Add(w.bundleDelay))
	}
	for _, c := range s.bundle {
		moments = append(moments, c.NotAfter)
	}
	// After the delay, a roll-over without a published bundle waits for the
	// configurations, not for the clock.
	moments = slices.DeleteFunc(moments, func(t time.Time) bool { return !t.After(now) })
	return slices.MinFunc(moments, time.Time.Compare)
}
