package certs

import (
	"fmt"
	"slices"
	"time"
)

// apply returns the state after a step, and the kinds of the certificates that it issued.
func apply(a step, s *state, now time.Time, w *wanted, k seen) (*state, []certificateKind, error) {
	after := *s
	after.bundle, after.problems = slices.Clone(s.bundle), nil
	var issued []certificateKind
	switch a {
	case stepNone, stepIssue, stepKeepTrust, stepDropExpired:
	case stepNotePublished:
		after.published = now
	case stepRestore:
		after = *k.remembered
		after.bundle = slices.Clone(k.remembered.bundle)
	case stepBeginRollOver:
		next, err := newAuthority(now, w.caLifetime)
		if err != nil {
			return nil, nil, err
		}
		after.next, after.published, after.rollOver = next, time.Time{}, false
		issued = append(issued, kindCA)
	case stepCreate:
		ca, err := newAuthority(now, w.caLifetime)
		if err != nil {
			return nil, nil, err
		}
		after.ca, after.rollOver = ca, false
		issued = append(issued, kindCA)
	case stepFinishRollOver:
		after.ca, after.next, after.published = s.next, nil, time.Time{}
	default:
		return nil, nil, fmt.Errorf("step %d is unknown", a)
	}
	if a == stepCreate || a == stepFinishRollOver || a == stepIssue {
		serving, err := after.ca.issue(now, w.servingLifetime, servingHosts(s, now, w))
		if err != nil {
			return nil, nil, err
		}
		after.serving = serving
		issued = append(issued, kindServing)
	}
	after.bundle = append(after.bundle, k.trusted...)
	after.trim(now)
	return &after, issued, nil
}

// servingHosts returns the wanted hosts and, if the current certificate is replaced early,
// also its hosts: replicas with different hosts, as during an update, would otherwise
// replace each other's certificates for ever.
func servingHosts(s *state, now time.Time, w *wanted) []string {
	hosts := slices.Clone(w.hosts)
	if !s.serving.usable(now) || !now.Before(renewal(s.serving.leaf)) {
		return hosts
	}
	hosts = append(hosts, s.serving.leaf.DNSNames...)
	for _, ip := range s.serving.leaf.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}
