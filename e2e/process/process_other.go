//go:build !linux

package process

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// sysProcAttr keeps the terminal's interrupts away from the process, so that
// who started it decides when it ends.
func sysProcAttr(detached bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: detached, Setpgid: !detached}
}

// identify asks ps, which every other Unix has, for a running process. A
// zombie has ended.
func identify(pid int) (Identity, error) {
	out, err := exec.Command("ps", "-o", "stat=,lstart=", "-p", strconv.Itoa(pid)).Output() //nolint:noctx // It answers at once.
	if err != nil {
		return Identity{}, fmt.Errorf("ask for process %d: %w", pid, err)
	}
	state, started, found := strings.Cut(strings.TrimSpace(string(out)), " ")
	if !found || strings.HasPrefix(state, "Z") {
		return Identity{}, os.ErrProcessDone
	}
	return Identity{PID: pid, Started: strings.TrimSpace(started)}, nil
}
