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
	for _, why := range reasons {
		fmt.Fprintf(&zeros, "tollgate_certificate_errors_total{reason=%q} 0\n", why)
	}
	require.NoError(t, testutil.GatherAndCompare(r.registry, strings.NewReader(`
# HELP tollgate_certificate_errors_total Errors that prevented a certificate from being issued, stored, published or used, by reason.
# TYPE tollgate_certificate_errors_total counter
`+zeros.String()+`
# HELP tollgate_certificate_expiry_timestamp_seconds Time at which the serving certificate of this replica, or the CA that signs, expires, in seconds since the epoch.
# TYPE tollgate_certificate_expiry_timestamp_seconds gauge
tollgate_certificate_expiry_timestamp_seconds{certificate="ca"} 1.961658e+09
tollgate_certificate_expiry_timestamp_seconds{certificate="serving"} 1.932714e+09
# HELP tollgate_certificate_lifetime_seconds Time between the beginning and the end of the validity of the certificate, in seconds. Tollgate renews its own certificates when a third of this time is left.
# TYPE tollgate_certificate_lifetime_seconds gauge
tollgate_certificate_lifetime_seconds{certificate="ca"} 3.15363e+07
tollgate_certificate_lifetime_seconds{certificate="serving"} 2.5923e+06
# HELP tollgate_certificate_renewals_total Certificates that this replica issued or, if they come from files, began to use.
# TYPE tollgate_certificate_renewals_total counter
tollgate_certificate_renewals_total{certificate="ca"} 1
tollgate_certificate_renewals_total{certificate="serving"} 1
`)))
	problems, err := testutil.GatherAndLint(r.registry)
	require.NoError(t, err)
	require.Empty(t, problems)
}
