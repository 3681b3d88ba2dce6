// Package report prints what benchmarks have measured: the machine, the commit and the command,
// and tables with medians, ranges and intervals.
package report

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
)

// procDir is where Linux shows processes.
const procDir = "/proc"

// busyLoad is the load from which on figures are those of a machine at work.
const busyLoad = 1.0

// Machine is what figures depend on.
type Machine struct {
	cpu, memory, system string
	cores               int
	commit              string
	date                string
	load                float64

	// Command is the command line, if the program says it.
	Command string
}

// Describe returns the machine and the commit of the repository at root.
func Describe(ctx context.Context, root string) (Machine, error) {
	m := Machine{cores: runtime.NumCPU(), date: time.Now().UTC().Format(time.DateOnly)}
	load, err := os.ReadFile(filepath.Join(procDir, "loadavg"))
	if err != nil {
		return m, fmt.Errorf("read load (this needs Linux): %w", err)
	}
	if m.load, err = strconv.ParseFloat(strings.Fields(string(load))[0], 64); err != nil {
		return m, fmt.Errorf("read load: %w", err)
	}
	m.cpu = valueIn(filepath.Join(procDir, "cpuinfo"), "model name", ":")
	m.memory = valueIn(filepath.Join(procDir, "meminfo"), "MemTotal", ":")
	if kib, err := strconv.ParseInt(strings.TrimSuffix(m.memory, " kB"), 10, 64); err == nil {
		m.memory = fmt.Sprintf("%.0f GiB", float64(kib)/(1<<20))
	}
	m.system = strings.Trim(valueIn("/etc/os-release", "PRETTY_NAME", "="), `"`)
	out, err := exec.CommandContext(ctx, "git", "-C", root, "describe", "--always", "--dirty", "--exclude=*").Output() //nolint:gosec // The path is that of this repository.
	if err != nil {
		return m, fmt.Errorf("find commit: %w", err)
	}
	m.commit = strings.TrimSpace(string(out))
	return m, nil
}

// valueIn returns what a file says about a key, or "unknown": that it is not said
// is no reason not to measure.
func valueIn(path, key, separator string) string {
	content, err := os.ReadFile(path) //nolint:gosec // The paths are this file's own.
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(content)) {
		name, value, ok := strings.Cut(line, separator)
		if ok && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// Busy says that other programs are at work, and is empty on a quiet machine.
func (m Machine) Busy() string {
	if m.load < busyLoad {
		return ""
	}
	return fmt.Sprintf("the load of this machine is %.2f: others are at work here, and the figures will show it", m.load)
}

// lines describe the machine for a reader.
func (m Machine) lines() []string {
	lines := []string{
		fmt.Sprintf("%s, %d cores, %s, %s, %s %s/%s", m.cpu, m.cores, m.memory, m.system, runtime.Version(), runtime.GOOS, runtime.GOARCH),
		fmt.Sprintf("commit %s, %s, Kubernetes %s, load %.2f before the start", m.commit, m.date, binaries.KubernetesVersion, m.load),
	}
	if m.Command != "" {
		lines = append(lines, m.Command)
	}
	return lines
}
