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
	// stepRestore writes what this replica remembers.
	stepRestore
	// stepKeepTrust adds to the bundle what the configurations trust beside it.
	stepKeepTrust
	// stepIssue replaces the serving certificate.
	stepIssue
	// stepBeginRollOver adds the next CA to the bundle.
	stepBeginRollOver
	// stepNotePublished starts the delay of the roll-over.
	stepNotePublished
	// stepFinishRollOver makes the next CA sign.
	stepFinishRollOver
	// stepDropExpired takes CAs out of the bundle that have expired.
	stepDropExpired
)

// String returns the step as it is logged.
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

// wanted is what the options ask for.
type wanted struct {
	hosts           []string
	caLifetime      time.Duration
	servingLifetime time.Duration
	bundleDelay     time.Duration
}

// seen is what a replica knows beside the Secret.
type seen struct {
	// published is set if every configuration that exists holds the bundle.
	published bool
	// trusted are the CAs of ours in the configurations. Replicas may serve what
	// any of them issued, so that none is dropped before it expires: not by a
	// Secret that was restored from a backup, or made anew, or by a replica that
	// missed a roll-over.
	trusted []*x509.Certificate
	// remembered is the last state that was whole, or nil.
	remembered *state
}

// action is what to do now, and if that is nothing, when to ask again.
type action struct {
	step  step
	again time.Time
}

// plan decides on the next step. It is pure. After each step it is asked again,
// until there is none left to take.
func plan(s *state, now time.Time, w *wanted, k seen) action {
	switch {
	case s.ca == nil && k.remembered != nil && k.remembered.whole(now):
		return action{step: stepRestore}
	case !s.ca.usable(now) && !s.serving.usable(now):
		// Nothing works any more, so that there is nothing to be careful about.
		if s.next.usable(now) {
			return action{step: stepFinishRollOver}
		}
		return action{step: stepCreate}
	case forgetsTrusted(s, now, k.trusted):
		return action{step: stepKeepTrust}
	case s.next.usable(now) && k.published && !s.published.IsZero() && !now.Before(s.published.Add(w.bundleDelay)):
		return action{step: stepFinishRollOver}
	case s.ca.usable(now) && servingIsDue(s, now, w):
		return action{step: stepIssue}
	case !s.next.usable(now) && (s.rollOver || !s.ca.usable(now) || !now.Before(renewal(s.ca.cert))):
		return action{step: stepBeginRollOver}
	case s.next.usable(now) && k.published && s.published.IsZero():
		return action{step: stepNotePublished}
	case slices.ContainsFunc(s.bundle, func(c *x509.Certificate) bool { return expired(c, now) }):
		return action{step: stepDropExpired}
	}
	return action{again: nextLook(s, now, w)}
}

// forgetsTrusted reports whether publishing the bundle would take trust away. A
// bundle that is full takes nothing more.
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

// renewable reports whether a new serving certificate would last longer than the
// present one, which towards the end of the CA it would not.
func renewable(s *state) bool {
	return s.ca.cert.NotAfter.After(s.serving.leaf.NotAfter)
}

// nextLook is the first moment at which time alone makes the plan another one.
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
	// A roll-over whose delay is over but whose bundle is not in place waits for
	// the configurations, not for the clock.
	moments = slices.DeleteFunc(moments, func(t time.Time) bool { return !t.After(now) })
	return slices.MinFunc(moments, time.Time.Compare)
}
