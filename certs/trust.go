package certs

import (
	"crypto/x509"
	"slices"
	"time"
)

// trust records since when each CA of a bundle has been in all existing configurations, as
// seen by one replica.
type trust struct {
	cas []trustedCA
}

type trustedCA struct {
	cert *x509.Certificate
	from time.Time
}

// see records the bundle that all configurations hold now.
func (t *trust) see(bundle []*x509.Certificate, now time.Time) {
	cas := make([]trustedCA, 0, len(bundle))
	for _, cert := range bundle {
		from := now
		if i := slices.IndexFunc(t.cas, func(k trustedCA) bool { return k.cert.Equal(cert) }); i >= 0 {
			from = t.cas[i].from
		}
		cas = append(cas, trustedCA{cert: cert, from: from})
	}
	t.cas = cas
}

// since returns the time since which the issuer of p is trusted, or false if it is not.
func (t *trust) since(p *pair) (time.Time, bool) {
	for _, k := range t.cas {
		if p.issuer.Equal(k.cert) {
			return k.from, true
		}
	}
	return time.Time{}, false
}
