package replicas

import (
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// rounds is how often to repeat what can be repeated: TOLLGATE_REPLICAS_ROUNDS, or what
// is given where that is not set.
func rounds(t *testing.T, otherwise int) int {
	t.Helper()
	text := os.Getenv("TOLLGATE_REPLICAS_ROUNDS")
	if text == "" {
		return otherwise
	}
	count, err := strconv.Atoi(text)
	require.NoError(t, err, "TOLLGATE_REPLICAS_ROUNDS")
	return count
}
