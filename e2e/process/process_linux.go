package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// sysProcAttr keeps the terminal's interrupts away from the process, so that
// who started it decides when it ends.
func sysProcAttr(detached bool) *syscall.SysProcAttr {
	if detached {
		return &syscall.SysProcAttr{Setsid: true}
	}
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// Positions in /proc/PID/stat counted from the field after the program's name,
// which stands in parentheses and may itself hold anything; see proc_pid_stat(5).
const (
	statState     = 0
	statStartTime = 19
)

// identify reads the identity of a running process. A zombie has ended.
func identify(pid int) (Identity, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Identity{}, fmt.Errorf("read state of process %d: %w", pid, err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) <= statStartTime {
		return Identity{}, fmt.Errorf("read state of process %d: %d fields", pid, len(fields))
	}
	if state := fields[statState]; state == "Z" || state == "X" {
		return Identity{}, os.ErrProcessDone
	}
	return Identity{PID: pid, Started: fields[statStartTime]}, nil
}
