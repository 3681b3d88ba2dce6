package certs

import (
	"crypto/x509"
	"slices"
	"time"
)

// maxBundle caps the CAs in the bundle, however often a new one is requested.
const maxBundle = 8

// state is the usable content of the Secret. problems names the rest.
type state struct {
	// bundle are the trusted CAs. It contains ca, next and the issuer of serving.
	bundle []*x509.Certificate
	// ca signs. It is nil if the Secret has no usable key for one of the bundle.
	ca *pair
	// next becomes ca after its publication; nil outside of a roll-over.
	next *pair
	// serving was issued by a CA of the bundle, or is nil.
	serving *pair
	// published is zero until next was seen in all configurations.
	published time.Time
	// rollOver is true if a new CA was requested.
	rollOver bool
	problems []error
}

func (s *state) trusts(cert *x509.Certificate) bool {
	return slices.ContainsFunc(s.bundle, cert.Equal)
}

// whole reports whether the state has a usable CA and serving certificate.
func (s *state) whole(now time.Time) bool {
	return s != nil && s.ca.usable(now) && s.serving.usable(now)
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

// step is one change of the Secret, as logs name it. The empty step changes nothing.
type step string

const (
	// stepCreate makes a CA that signs at once.
	stepCreate step = "create CA"
	// stepRestore writes the state that this replica remembers.
	stepRestore step = "restore"
	// stepKeepTrust adds to the bundle the CAs that only the configurations hold.
	stepKeepTrust step = "keep trusted CAs"
	// stepIssue replaces the serving certificate.
	stepIssue step = "issue serving certificate"
	// stepBeginRollOver adds the next CA to the bundle.
	stepBeginRollOver step = "begin CA roll-over"
	// stepNotePublished starts the delay of the roll-over.
	stepNotePublished step = "note that next CA is published"
	// stepFinishRollOver makes the next CA sign.
	stepFinishRollOver step = "finish CA roll-over"
	// stepDropExpired removes expired CAs from the bundle.
	stepDropExpired step = "drop expired CA"
)

// plan returns the next step, or, if there is none, the time at which there is one without
// another event. It is pure. It is called after each step until there is no other.
func plan(s *state, now time.Time, o *Options, k seen) (step, time.Time) { //nolint:gocyclo // The table of all steps, in their order.
	ca, next, serving := s.ca.usable(now), s.next.usable(now), s.serving.usable(now)
	published := k.published && next
	// Near the end of the CA, a new serving certificate would expire with the current one.
	renewable := ca && serving && s.ca.leaf.NotAfter.After(s.serving.leaf.NotAfter)
	var a step
	switch {
	case s.ca == nil && k.remembered.whole(now):
		a = stepRestore
	case !ca && !serving && next:
		// No pair works, so there is no trust to preserve.
		a = stepFinishRollOver
	case !ca && !serving:
		a = stepCreate
	case lacksTrusted(s, now, k.trusted):
		a = stepKeepTrust
	case published && !s.published.IsZero() && !now.Before(s.published.Add(o.bundleDelay)):
		a = stepFinishRollOver
	case ca && (!serving || !s.serving.covers(o.Hosts) || renewable && !now.Before(renewal(s.serving.leaf))):
		a = stepIssue
	case !next && (s.rollOver || !ca || !now.Before(renewal(s.ca.leaf))):
		a = stepBeginRollOver
	case published && s.published.IsZero():
		a = stepNotePublished
	case slices.ContainsFunc(s.bundle, func(c *x509.Certificate) bool { return expired(c, now) }):
		a = stepDropExpired
	}
	if a != "" {
		return a, time.Time{}
	}
	moments := []time.Time{s.serving.leaf.NotAfter}
	if renewable {
		moments = append(moments, renewal(s.serving.leaf))
	}
	if next {
		moments = append(moments, s.published.Add(o.bundleDelay))
	} else {
		moments = append(moments, renewal(s.ca.leaf))
	}
	for _, c := range s.bundle {
		moments = append(moments, c.NotAfter)
	}
	// After the delay, a roll-over without a published bundle waits for the
	// configurations, not for the clock.
	moments = slices.DeleteFunc(moments, func(t time.Time) bool { return !t.After(now) })
	return "", slices.MinFunc(moments, time.Time.Compare)
}

// lacksTrusted reports whether publishing the bundle would remove a trusted CA. A full
// bundle accepts no more.
func lacksTrusted(s *state, now time.Time, trusted []*x509.Certificate) bool {
	return len(s.bundle) < maxBundle && slices.ContainsFunc(trusted, func(c *x509.Certificate) bool {
		return !expired(c, now) && !s.trusts(c)
	})
}

// covers reports whether the leaf is valid for all hosts.
func (p *pair) covers(hosts []string) bool {
	return !slices.ContainsFunc(hosts, func(h string) bool { return p.leaf.VerifyHostname(h) != nil })
}

// apply returns the state after a step, and the kinds of the certificates that it issued.
func apply(a step, s *state, now time.Time, o *Options, k seen) (*state, []string, error) { //nolint:gocyclo // The effects of all steps.
	after := *s
	var issued []string
	var err error
	switch a {
	case stepRestore:
		after = *k.remembered
	case stepCreate:
		after.ca, err = newAuthority(now, o.CALifetime)
	case stepBeginRollOver:
		after.next, err = newAuthority(now, o.CALifetime)
		after.published = time.Time{}
	case stepNotePublished:
		after.published = now
	case stepFinishRollOver:
		after.ca, after.next = s.next, nil
	case stepKeepTrust, stepIssue, stepDropExpired: // These keep the authorities.
	}
	if a == stepCreate || a == stepBeginRollOver {
		after.rollOver = false
		issued = append(issued, kindCA)
	}
	if err == nil && (a == stepCreate || a == stepFinishRollOver || a == stepIssue) {
		hosts := slices.Clone(o.Hosts)
		if current := s.serving; current.usable(now) && now.Before(renewal(current.leaf)) {
			// Replicas with different hosts, as during an update, would otherwise replace each
			// other's certificates for ever.
			hosts = append(hosts, current.leaf.DNSNames...)
			for _, ip := range current.leaf.IPAddresses {
				hosts = append(hosts, ip.String())
			}
		}
		after.serving, err = after.ca.issue(now, o.ServingLifetime, hosts)
		issued = append(issued, kindServing)
	}
	if err != nil {
		return nil, nil, err
	}
	after.trim(now, k.trusted)
	return &after, issued, nil
}

// trim drops expired CAs with their keys, and adds the trusted ones to the bundle. The CAs
// in use come first, then the newest.
func (s *state) trim(now time.Time, trusted []*x509.Certificate) {
	var all []*x509.Certificate
	if s.ca.usable(now) {
		all = append(all, s.ca.leaf)
	} else {
		s.ca = nil
	}
	if s.next.usable(now) {
		all = append(all, s.next.leaf)
	} else {
		s.next, s.published = nil, time.Time{}
	}
	if s.serving != nil {
		all = append(all, s.serving.issuer)
	}
	old := slices.Concat(s.bundle, trusted)
	slices.SortStableFunc(old, func(a, b *x509.Certificate) int { return b.NotBefore.Compare(a.NotBefore) })
	s.bundle, s.problems = nil, nil
	for _, c := range append(all, old...) {
		if !expired(c, now) && !s.trusts(c) && len(s.bundle) < maxBundle {
			s.bundle = append(s.bundle, c)
		}
	}
}
