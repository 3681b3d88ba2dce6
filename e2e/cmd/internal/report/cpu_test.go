package report

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestTheCPUTimeOfAProcessIsWhatItSaysItself(t *testing.T) {
	t.Parallel()
	own := func() time.Duration {
		var used unix.Timespec
		require.NoError(t, unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &used))
		return time.Duration(used.Nano())
	}
	before := own()
	used, err := CPUTime(os.Getpid())
	require.NoError(t, err)
	require.GreaterOrEqual(t, used, before)
	require.LessOrEqual(t, used, own())
	_, err = CPUTime(1 << 23)
	require.ErrorContains(t, err, "read CPU time of process 8388608", "PIDs end before that")
}
