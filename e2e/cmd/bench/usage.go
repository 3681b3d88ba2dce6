package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// procDir is where Linux shows processes.
const procDir = "/proc"

// tick is the unit of times in /proc, whatever the kernel's own is: see sysconf(3)
// on _SC_CLK_TCK, which is 100 on all architectures that Go runs on.
const tick = 10 * time.Millisecond

// usage is the CPU time that has been used up to a moment.
type usage struct {
	at  time.Time
	cpu map[string]time.Duration
	// self is this program's, machine that of all processes there are.
	self, machine time.Duration
}

// others is the CPU time of processes that have no part in the measurement.
func (u usage) others() time.Duration {
	rest := u.machine - u.self
	for _, used := range u.cpu {
		rest -= used
	}
	return rest
}

// usage looks at all processes of the control plane.
func (s *stage) usage() (usage, error) {
	u := usage{at: time.Now(), cpu: map[string]time.Duration{}}
	var err error
	for name, pid := range s.cp.RunningPIDs() {
		if u.cpu[name], err = processCPU(strconv.Itoa(pid)); err != nil {
			return usage{}, err
		}
	}
	if u.self, err = processCPU("self"); err != nil {
		return usage{}, err
	}
	u.machine, err = machineCPU()
	return u, err
}

// busy is the share of one core that the control plane and Tollgate use at rest,
// with watches open, leases renewed and garbage collected, or somewhat more.
const busy = 0.15

// waitIdle returns when what the creation of pods has set off is over.
func (s *stage) waitIdle(ctx context.Context) error {
	before, err := s.usage()
	if err != nil {
		return err
	}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the control plane to come to rest: %w", ctx.Err())
		case <-ticker.C:
		}
		now, err := s.usage()
		if err != nil {
			return err
		}
		var used time.Duration
		for name, cpu := range now.cpu {
			used += cpu - before.cpu[name]
		}
		if used.Seconds() < busy*now.at.Sub(before.at).Seconds() {
			return nil
		}
		before = now
	}
}

// Positions of the times in user and in kernel mode in /proc/PID/stat, counted
// from the field after the program's name; see proc_pid_stat(5).
const (
	statUser   = 11
	statSystem = 12
)

func processCPU(pid string) (time.Duration, error) {
	stat, err := os.ReadFile(filepath.Join(procDir, pid, "stat")) //nolint:gosec // The path is below /proc.
	if err != nil {
		return 0, fmt.Errorf("read CPU time (this needs Linux): %w", err)
	}
	// The name stands in parentheses and may itself hold anything.
	return sumTicks(strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])), statUser, statSystem)
}

// machineCPU is the time that all cores together were not idle. Of the columns in
// proc_stat(5), time given to guests stands in those for users already.
func machineCPU() (time.Duration, error) {
	stat, err := os.ReadFile(filepath.Join(procDir, "stat"))
	if err != nil {
		return 0, fmt.Errorf("read CPU time (this needs Linux): %w", err)
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	const user, nice, system, irq, softirq = 1, 2, 3, 6, 7
	return sumTicks(strings.Fields(line), user, nice, system, irq, softirq)
}

func sumTicks(fields []string, positions ...int) (time.Duration, error) {
	var sum time.Duration
	for _, position := range positions {
		if position >= len(fields) {
			return 0, fmt.Errorf("read CPU time: %d fields", len(fields))
		}
		ticks, err := strconv.ParseInt(fields[position], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read CPU time: %w", err)
		}
		sum += time.Duration(ticks) * tick
	}
	return sum, nil
}

// peakMemory is the most resident memory, in bytes, that a process has held.
func peakMemory(pid int) (int64, error) {
	status, err := os.ReadFile(filepath.Join(procDir, strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, fmt.Errorf("read memory of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(status)) {
		value, ok := strings.CutPrefix(line, "VmHWM:")
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read memory of process %d: %w", pid, err)
		}
		return kib << 10, nil
	}
	return 0, fmt.Errorf("read memory of process %d: no VmHWM", pid)
}
