package report

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime returns what a process has used, to the nanosecond, where /proc counts in hundredths of a
// second. See clock_getcpuclockid(3) for the number of its clock.
func CPUTime(pid int) (time.Duration, error) {
	const clockOfScheduler = 2
	var used unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|clockOfScheduler), &used); err != nil { //nolint:gosec // PIDs have 22 bits.
		return 0, fmt.Errorf("read CPU time of process %d: %w", pid, err)
	}
	return time.Duration(used.Nano()), nil
}
