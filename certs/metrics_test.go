package certs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	c := newCluster(t, validatingConfiguration(), mutatingConfiguration())
	r := newReplica(t, c, clocktesting.NewFakeClock(start()), nil)
	require.NoError(t, r.once(t.Context()))
	var zeros strings.Builder
	for _, why := range reasons() {
		fmt.Fprintf(&zeros, "tollgate_certificate_errors_total{reason=%q} 0\n", why)
	}
	require.NoError(t, testutil.GatherAndCompare(r.registry, strings.NewReader(`
# HELP tollgate_certificate_errors_total What stood in the way of a certificate being issued, stored, published or used.
# TYPE tollgate_certificate_errors_total counter
`+zeros.String()+`
# HELP tollgate_certificate_expiry_timestamp_seconds When the serving certificate in use by this replica, and the CA that signs, expire, in seconds since the epoch.
# TYPE tollgate_certificate_expiry_timestamp_seconds gauge
tollgate_certificate_expiry_timestamp_seconds{certificate="ca"} 1.961658e+09
tollgate_certificate_expiry_timestamp_seconds{certificate="serving"} 1.932714e+09
# HELP tollgate_certificate_lifetime_seconds For how long the certificate is valid, from its beginning to its end. One of Tollgate's own is renewed when a third of that is left.
# TYPE tollgate_certificate_lifetime_seconds gauge
tollgate_certificate_lifetime_seconds{certificate="ca"} 3.15363e+07
tollgate_certificate_lifetime_seconds{certificate="serving"} 2.5923e+06
# HELP tollgate_certificate_renewals_total Certificates issued by this replica, or, if they come from files, taken into use.
# TYPE tollgate_certificate_renewals_total counter
tollgate_certificate_renewals_total{certificate="ca"} 1
tollgate_certificate_renewals_total{certificate="serving"} 1
`)))
	problems, err := testutil.GatherAndLint(r.registry)
	require.NoError(t, err)
	require.Empty(t, problems)
}
