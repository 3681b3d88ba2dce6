package decision_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/e2e/cmd/bench/decision"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestBothDecideAboutEveryPod(t *testing.T) {
	const pods = 120
	for name, devicesPerPool := range map[string]int{"one pool": decision.OnePool, "pools of 8": 8} {
		t.Run(name, func(t *testing.T) {
			c := decision.NewCluster(pods, devicesPerPool, noon)
			queued := 0
			logger := funcr.NewJSON(func(line string) {
				if strings.Contains(line, "Adding immediate pod eviction") {
					queued++
				}
			}, funcr.Options{Verbosity: 3})
			took, err := c.Builtin(t.Context(), logger)
			require.NoError(t, err)
			require.Positive(t, took)
			require.Equal(t, pods, queued)

			took, err = c.Tollgate(noon)
			require.NoError(t, err)
			require.Positive(t, took)
		})
	}
}
