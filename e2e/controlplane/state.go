package controlplane

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/tollgate-dev/tollgate/e2e/process"
)

// state is what state.json holds: all that is needed to find the processes
// again and to start them again.
type state struct {
	Program    string              `json:"program"`
	Nodes      int                 `json:"nodes"`
	Eviction   Eviction            `json:"eviction"`
	ExtraArgs  map[string][]string `json:"extraArgs,omitempty"`
	Scheduler  schedulerState      `json:"scheduler,omitzero"`
	PodNetwork string              `json:"podNetwork,omitempty"`
	Detached   bool                `json:"detached"`
	Ports      ports               `json:"ports"`
	Processes  []record            `json:"processes"`
}

// schedulerState is what ReplaceScheduler changes.
type schedulerState struct {
	// Program is empty for the one that all components are.
	Program string `json:"program,omitempty"`
	// Configured is true if there is a configuration in the directory.
	Configured bool `json:"configured,omitempty"`
}

// record is one process that was started, in the order of their start.
type record struct {
	Spec     process.Spec     `json:"spec"`
	Identity process.Identity `json:"identity"`
}

func stateFile(dir string) string { return filepath.Join(dir, "state.json") }

func readState(dir string) (*state, error) {
	content, err := os.ReadFile(stateFile(dir))
	if err != nil {
		return nil, fmt.Errorf("read state of control plane: %w", err)
	}
	var s state
	if err := json.Unmarshal(content, &s); err != nil {
		return nil, fmt.Errorf("read state of control plane in %s: %w", dir, err)
	}
	return &s, nil
}

// write replaces the file in one step: who reads it while this program is
// killed finds the old or the new one whole.
func (s *state) write(dir string) error {
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode state of control plane: %w", err)
	}
	next := stateFile(dir) + ".next"
	if err := os.WriteFile(next, content, 0o600); err != nil {
		return fmt.Errorf("write state of control plane: %w", err)
	}
	if err := os.Rename(next, stateFile(dir)); err != nil {
		return fmt.Errorf("write state of control plane: %w", err)
	}
	return nil
}

// record notes a started process, in place of the one that had its name before.
func (s *state) record(p *process.Process) {
	started := record{Spec: p.Spec(), Identity: p.Identity()}
	at := slices.IndexFunc(s.Processes, func(r record) bool { return r.Spec.Name == started.Spec.Name })
	if at < 0 {
		s.Processes = append(s.Processes, started)
		return
	}
	s.Processes[at] = started
}
