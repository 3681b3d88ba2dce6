package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/install"
)

// settings are what the user may choose.
type settings struct {
	kubernetes string
	nodes      int
	eviction   controlplane.Eviction
	tollgate   bool
	scheduler  string
}

// The schedulers that the user may choose.
const (
	schedulerTollgate = "tollgate"
	schedulerStock    = "stock"
)

// schedulerFor returns the scheduler to run, or an error if the one that was asked for
// cannot run beside the other settings.
func schedulerFor(asked string, s settings) (string, error) {
	built := s.kubernetes == binaries.KubernetesVersion
	switch {
	case asked == "" && s.tollgate && built:
		return schedulerTollgate, nil
	case asked == "" || asked == schedulerStock:
		return schedulerStock, nil
	case asked != schedulerTollgate:
		return "", fmt.Errorf("scheduler %q is none of %s, %s", asked, schedulerTollgate, schedulerStock)
	case !built:
		return "", fmt.Errorf("scheduler %s is built for Kubernetes %s, and not for %s: use %s", asked, binaries.KubernetesVersion, s.kubernetes, schedulerStock)
	case !s.tollgate:
		return "", fmt.Errorf("scheduler %s needs the ResourceSlicePatches that are installed with Tollgate: use %s", asked, schedulerStock)
	}
	return schedulerTollgate, nil
}

func (s settings) String() string {
	installed := 0
	if s.tollgate {
		installed = 1
	}
	return fmt.Sprintf("K8S=%s NODES=%d EVICTION=%s TOLLGATE=%d SCHEDULER=%s", s.kubernetes, s.nodes, s.eviction, installed, s.scheduler)
}

// errDown says what to do about a control plane that is not as it should be.
const errDown = "run make cluster-down first"

func (c *cluster) up(ctx context.Context, want settings) error {
	up, err := c.isUp(ctx, want)
	if err != nil || up {
		return err
	}
	if err := c.buildControlPlane(ctx); err != nil {
		return err
	}
	if want.tollgate {
		c.progress("building Tollgate")
		if err := errors.Join(c.programs.BuildTollgate(ctx), c.programs.BuildPlugin(ctx)); err != nil {
			return err
		}
	}
	if want.scheduler == schedulerTollgate {
		c.progress("building Tollgate's kube-scheduler (minutes the first time)")
		if err := c.programs.BuildScheduler(ctx); err != nil {
			return err
		}
	}
	nodes := want.nodes
	if nodes == 0 {
		nodes = controlplane.NoNodes
	}
	c.progress("starting the control plane")
	cp, err := controlplane.Start(ctx, controlplane.Options{
		Dir: c.dir, Program: c.programs.ControlPlane(), Nodes: nodes, Eviction: want.eviction,
		Detached: true, Progress: c.progress,
	})
	if err != nil {
		return err
	}
	if err := c.finish(ctx, cp, want); err != nil {
		// Half a cluster helps nobody. The logs stay.
		return errors.Join(err, cp.Stop(context.WithoutCancel(ctx)))
	}
	c.progress("up: export KUBECONFIG=" + quote(cp.Kubeconfig()))
	return nil
}

// finish installs Tollgate and writes the env file, by which a control plane is
// known to have come up whole.
func (c *cluster) finish(ctx context.Context, cp *controlplane.ControlPlane, want settings) error {
	var tollgate *install.Tollgate
	if want.tollgate {
		c.progress("installing Tollgate")
		var err error
		tollgate, err = install.Install(ctx, cp, install.Options{Programs: c.programs})
		if err != nil {
			return err
		}
		c.progress("Tollgate is ready")
	}
	if want.scheduler == schedulerTollgate {
		c.progress("replacing kube-scheduler with Tollgate's build of it")
		if err := install.Scheduler(ctx, cp, c.programs); err != nil {
			return err
		}
	}
	if err := c.linkCommands(want.tollgate); err != nil {
		return err
	}
	return writeEnv(envFile(c.dir), c.variables(cp, tollgate))
}

// isUp reports whether there is nothing to do. What a command that was
// interrupted has left is stopped.
func (c *cluster) isUp(ctx context.Context, want settings) (bool, error) {
	cp, err := controlplane.Open(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	running := cp.RunningPIDs()
	_, envErr := os.Stat(envFile(c.dir))
	switch {
	case errors.Is(envErr, fs.ErrNotExist):
		c.progress("stopping what an interrupted start has left")
		return false, cp.Stop(ctx)
	case len(running) == 0:
		c.progress("nothing of the control plane that was up runs any more")
		return false, cp.Stop(ctx)
	}
	if dead := cp.Dead(); len(dead) > 0 {
		logs := make([]string, len(dead))
		for i, name := range dead {
			logs[i] = name + " has died (log: " + cp.LogPath(name) + ")"
		}
		return false, fmt.Errorf("%s: %s", strings.Join(logs, ", "), errDown)
	}
	_, installed := running[install.Name]
	has := settings{
		kubernetes: c.versionOf(cp), nodes: cp.Nodes(), eviction: cp.Eviction(), tollgate: installed, scheduler: schedulerStock,
	}
	if cp.SchedulerProgram() != "" {
		has.scheduler = schedulerTollgate
	}
	if has != want {
		return false, fmt.Errorf("up already, but with %s instead of %s: %s", has, want, errDown)
	}
	c.progress("up already, with " + want.String())
	return true, nil
}

// versionOf returns the version of Kubernetes that a control plane was built of.
func (c *cluster) versionOf(cp *controlplane.ControlPlane) string {
	for _, version := range binaries.Versions() {
		if (binaries.Binaries{Root: c.programs.Root, Kubernetes: version}).ControlPlane() == cp.Program() {
			return version
		}
	}
	return "of " + cp.Program()
}

func (c *cluster) down(ctx context.Context) error {
	cp, err := controlplane.Open(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		c.progress("nothing is up")
		return nil
	}
	if err != nil {
		return err
	}
	running := len(cp.RunningPIDs())
	if err := cp.Stop(ctx); err != nil {
		return err
	}
	c.progress(fmt.Sprintf("ended %d processes of %s", running, c.dir))
	return nil
}
