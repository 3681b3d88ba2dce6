package app_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/app"
)

func TestAReplicaSaysWhatItIsAndWhetherItLeads(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	var leads atomic.Bool
	app.Register(registry, "v1.2.3", "Replace", leads.Load)
	for value, now := range map[int]bool{0: false, 1: true} {
		leads.Store(now)
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(fmt.Sprintf(`
# HELP tollgate_info 1, with the version of this replica, the Go version of its build, and its eviction.mode.
# TYPE tollgate_info gauge
tollgate_info{eviction_mode="Replace",go_version=%q,version="v1.2.3"} 1
# HELP tollgate_leading 1 while this replica holds the lease and may evict and write. The sum over all replicas is 1, except between two leaders.
# TYPE tollgate_leading gauge
tollgate_leading %d
`, runtime.Version(), value))))
	}
}
