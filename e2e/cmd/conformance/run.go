package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/install"
)

// interruptDelay is how long the specs may clean up after they were interrupted.
const interruptDelay = time.Minute

// conform runs the specs on both control planes at once and compares them.
func conform(ctx context.Context, out io.Writer, o options) error {
	selected, err := readSelection(specsFile, o.specs)
	if err != nil {
		return err
	}
	root, err := binaries.Root(".")
	if err != nil {
		return err
	}
	if o.seed == 0 {
		o.seed = time.Now().Unix()
	}
	s := &stage{
		programs: binaries.Binaries{Root: root, Progress: stopwatch(out)}, selected: selected, options: o,
	}
	if err := s.build(ctx); err != nil {
		return err
	}
	s.programs.Progress(fmt.Sprintf("starting both control planes; the order of the specs is that of --seed=%d", o.seed))
	var without, with *results
	group, both := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		without, err = s.run(both, side{name: "without", eviction: controlplane.EvictionBuiltin})
		return err
	})
	group.Go(func() (err error) {
		with, err = s.run(both, side{name: "with", eviction: controlplane.EvictionTollgate, tollgate: true})
		return err
	})
	if err := group.Wait(); err != nil {
		return err
	}
	c := compare(selected, without, with)
	_, _ = fmt.Fprintf(out, "\n%s", c.tables())
	if err := c.verdict(out, o.specs == ""); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "\nno spec that passes without Tollgate fails with it\n")
	if o.update {
		return publish(root, c.tables())
	}
	return nil
}

// stopwatch prints each step with the minutes since the start. It is safe for concurrent use.
func stopwatch(w io.Writer) func(step string) {
	start := time.Now()
	var mu sync.Mutex
	return func(step string) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = fmt.Fprintf(w, "%5.1fmin  %s\n", time.Since(start).Minutes(), step)
	}
}

// stage is what both sides share.
type stage struct {
	programs binaries.Binaries
	selected *selection
	options  options
}

// side is one of the two control planes.
type side struct {
	name     string
	eviction controlplane.Eviction
	tollgate bool
}

func (s *stage) build(ctx context.Context) error {
	say := s.programs.Progress
	say("building Kubernetes " + binaries.KubernetesVersion + ", etcd and Tollgate")
	if err := errors.Join(s.programs.BuildControlPlane(ctx), s.programs.BuildTollgate(ctx)); err != nil {
		return err
	}
	say("building Kubernetes' own end-to-end specs (some minutes the first time)")
	return s.programs.BuildConformance(ctx)
}

// run starts a control plane, runs the specs on it and stops it.
func (s *stage) run(ctx context.Context, side side) (_ *results, err error) {
	dir := filepath.Join(s.programs.Root, ".cluster-conformance-"+side.name)
	// What a command that was killed has left.
	if old, err := controlplane.Open(dir); err == nil {
		if err := old.Stop(ctx); err != nil {
			return nil, err
		}
	}
	cp, err := controlplane.Start(ctx, controlplane.Options{
		Dir: dir, Program: s.programs.ControlPlane(), Nodes: s.options.nodes, Eviction: side.eviction,
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cp.Stop(context.WithoutCancel(ctx))) }()
	if side.tollgate {
		if _, err := install.Install(ctx, cp, install.Options{Programs: s.programs, Args: s.options.tollgateArgs}); err != nil {
			return nil, err
		}
	}
	return s.runSpecs(ctx, cp, side)
}

// runSpecs runs the specs: several at once, and those alone that say so. That some have failed is in the report.
func (s *stage) runSpecs(ctx context.Context, cp *controlplane.ControlPlane, side side) (*results, error) {
	say := func(step string) { s.programs.Progress(side.name + " Tollgate: " + step) }
	report, logPath := filepath.Join(cp.Dir(), "logs", "e2e.json"), cp.LogPath("e2e")
	log, err := os.Create(logPath) //nolint:gosec // The path is this program's own.
	if err != nil {
		return nil, fmt.Errorf("create log of the specs: %w", err)
	}
	defer func() { _ = log.Close() }()

	args := append(s.selected.flags(),
		"--procs="+strconv.Itoa(s.options.procs),
		"--flake-attempts=2",
		"--seed="+strconv.FormatInt(s.options.seed, 10),
		"--timeout=2h",
		"--no-color",
		"--silence-skips",
		"--output-dir="+filepath.Dir(report),
		"--json-report="+filepath.Base(report),
		s.programs.Conformance(),
		"--",
		"--kubeconfig="+cp.Kubeconfig(),
		"--kubectl-path="+s.programs.Kubectl(),
		"--provider=skeleton",
		"--dump-logs-on-failure=false",
	)
	cmd := exec.CommandContext(ctx, s.programs.Ginkgo(), args...) //nolint:gosec // The program was just built.
	output := &progress{log: log, say: say}
	cmd.Dir, cmd.Stdout, cmd.Stderr = cp.Dir(), output, output
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = interruptDelay
	say("running the specs (log: " + logPath + ")")
	runErr := cmd.Run()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	ran, err := readReport(report)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("run the specs %s Tollgate: %w (log: %s)", side.name, err, logPath), runErr)
	}
	say(fmt.Sprintf("all specs have ended: %d", len(ran.ran)))
	return ran, nil
}
