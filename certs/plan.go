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
	next := rescue(s, now, k)
	if next == stepNone {
		next = due(s, now, w, k)
	}
	if next == stepNone {
		return action{again: nextLook(s, now, w)}
	}
	return action{step: next}
}

// rescue is for states that cannot go on as they are.
func rescue(s *state, now time.Time, k seen) step {
	switch {
	case s.ca == nil && k.remembered != nil && k.remembered.whole(now):
		return stepRestore
	case s.ca.usable(now) || s.serving.usable(now):
		return stepNone
	case s.next.usable(now):
		// Nothing works any more, so that there is nothing to be careful about.
		return stepFinishRollOver
	}
	return stepCreate
}

// due is the step whose time has come. There is a CA to sign, or at least a
// certificate to serve until there is one.
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
