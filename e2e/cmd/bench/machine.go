package main

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

// busyLoad is the load from which on figures are those of a machine at work.
const busyLoad = 1.0

// machine is what figures depend on.
type machine struct {
	cpu, memory, system string
	cores               int
	commit              string
	date                string
	load                float64
}

func describeMachine(ctx context.Context, root string) (machine, error) {
	m := machine{cores: runtime.NumCPU(), date: time.Now().UTC().Format(time.DateOnly)}
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

// lines describe the machine for a reader.
func (m machine) lines() []string {
	return []string{
		fmt.Sprintf("%s, %d cores, %s, %s, %s %s/%s", m.cpu, m.cores, m.memory, m.system, runtime.Version(), runtime.GOOS, runtime.GOARCH),
		fmt.Sprintf("commit %s, %s, Kubernetes %s, load %.2f before the start", m.commit, m.date, binaries.KubernetesVersion, m.load),
	}
}
