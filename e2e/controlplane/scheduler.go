package controlplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// SchedulerOptions says what schedules in the place of a control plane's
// kube-scheduler. The zero value is that kube-scheduler itself.
type SchedulerOptions struct {
	// Program is another kube-scheduler; empty is that of the control plane.
	Program string
	// Config is the path of a KubeSchedulerConfiguration; empty is none. It is
	// copied, with the kubeconfig of the control plane in it.
	Config string
	// Change changes the copy before it is written. It may be nil.
	Change func(config map[string]any)
}

// ReplaceScheduler ends the scheduler, starts another in its place and returns when
// that is healthy, which it is not before it knows the objects that it watches. Later
// restarts keep it.
func (c *ControlPlane) ReplaceScheduler(ctx context.Context, options SchedulerOptions) error {
	if options.Config != "" {
		if err := c.writeSchedulerConfig(options); err != nil {
			return err
		}
	}
	c.mu.Lock()
	c.state.Scheduler = schedulerState{Program: options.Program, Configured: options.Config != ""}
	c.mu.Unlock()
	return c.Restart(ctx, Scheduler)
}

func schedulerConfigIn(dir string) string { return filepath.Join(dir, "scheduler.yaml") }

// writeSchedulerConfig makes the copy. A scheduler that has a configuration ignores
// the flag that names a kubeconfig.
func (c *ControlPlane) writeSchedulerConfig(options SchedulerOptions) error {
	text, err := os.ReadFile(options.Config)
	if err != nil {
		return fmt.Errorf("read configuration of scheduler: %w", err)
	}
	config := map[string]any{}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return fmt.Errorf("decode configuration of scheduler %s: %w", options.Config, err)
	}
	connection, ok := config["clientConnection"].(map[string]any)
	if !ok {
		connection = map[string]any{}
		config["clientConnection"] = connection
	}
	connection["kubeconfig"] = kubeconfigOf(c.dir, Scheduler)
	if options.Change != nil {
		options.Change(config)
	}
	if text, err = yaml.Marshal(config); err != nil {
		return fmt.Errorf("encode configuration of scheduler: %w", err)
	}
	if err := os.WriteFile(schedulerConfigIn(c.dir), text, 0o600); err != nil {
		return fmt.Errorf("write configuration of scheduler: %w", err)
	}
	return nil
}
