package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/tollgate-dev/tollgate/e2e/process"
)

// Adopt records a process that belongs to the control plane without being a
// component, so that Stop ends it too, whoever calls that.
func (c *ControlPlane) Adopt(p *process.Process) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.processes[p.Spec().Name] = p
	c.state.record(p)
	return c.state.write(c.dir)
}

// Process returns a component, or an adopted process, by its name.
func (c *ControlPlane) Process(name string) (*process.Process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.processes[name]
	if !ok {
		return nil, fmt.Errorf("find process %q: not started", name)
	}
	return p, nil
}

// RunningPIDs are the ids of the processes that run, by their names.
func (c *ControlPlane) RunningPIDs() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	pids := map[string]int{}
	for name, p := range c.processes {
		if p.Alive() {
			pids[name] = p.Identity().PID
		}
	}
	return pids
}

// Dead are the names of the processes that were started and have ended, in the
// order in which they were started.
func (c *ControlPlane) Dead() []string {
	running := c.RunningPIDs()
	c.mu.Lock()
	defer c.mu.Unlock()
	var dead []string
	for _, r := range c.state.Processes {
		if _, ok := running[r.Spec.Name]; !ok {
			dead = append(dead, r.Spec.Name)
		}
	}
	return dead
}

// Kill ends a component as a crash would, and returns when it has ended.
func (c *ControlPlane) Kill(ctx context.Context, name string) error {
	p, err := c.Process(name)
	if err != nil {
		return err
	}
	return p.Kill(ctx)
}

// Signal sends a signal to a component: SIGSTOP and SIGCONT freeze and thaw it.
func (c *ControlPlane) Signal(name string, signal syscall.Signal) error {
	p, err := c.Process(name)
	if err != nil {
		return err
	}
	return p.Signal(signal)
}

// Restart ends a component if it runs, starts it as it was, and returns when it
// is healthy again.
func (c *ControlPlane) Restart(ctx context.Context, name string) error {
	if !slices.Contains(Components(), name) {
		return fmt.Errorf("restart %q: no such component", name)
	}
	if p, err := c.Process(name); err == nil {
		if err := p.Kill(ctx); err != nil {
			return err
		}
	}
	return c.run(ctx, name)
}

// Stop ends all processes, those adopted first, and removes everything but the
// logs. It does so too when some or all have died or have been stopped before.
// What Tollgate needs to say goodbye is not for Stop: the data are thrown away,
// so nothing is asked to end in peace.
func (c *ControlPlane) Stop(ctx context.Context) error {
	c.mu.Lock()
	records := slices.Clone(c.state.Processes)
	c.mu.Unlock()
	var errs []error
	for _, r := range slices.Backward(records) {
		p, err := c.Process(r.Spec.Name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, p.Kill(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop control plane: %w", err)
	}
	return clean(c.dir, stateEntries()...)
}

// stateEntries are what Stop removes: all but the logs. The state comes last,
// so that a Stop that is interrupted can be repeated.
func stateEntries() []string {
	return []string{"etcd", "pki", "kwok", "flexvolume", "tollgate", "scheduler.yaml", "egress.yaml", "bin", "env.next", "env", "kubeconfig", "state.json.next", "state.json"}
}

func clean(dir string, entries ...string) error {
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(dir, entry)); err != nil {
			return fmt.Errorf("clean directory of control plane: %w", err)
		}
	}
	return nil
}

// launch starts a component and records it.
func (c *ControlPlane) launch(name string) error {
	c.mu.Lock()
	spec := c.state.spec(c.dir, name)
	c.mu.Unlock()
	p, err := process.Start(spec)
	if err != nil {
		return err
	}
	return c.Adopt(p)
}

// run starts a component and returns when it is healthy.
func (c *ControlPlane) run(ctx context.Context, name string) error {
	if err := c.launch(name); err != nil {
		return err
	}
	return c.waitHealthy(ctx, name)
}
