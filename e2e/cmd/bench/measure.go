package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/install"
)

// evictor is who evicts.
type evictor string

const (
	tollgate evictor = "Tollgate"
	builtin  evictor = "built-in"
)

// user is who the evictor is to the API server.
func (e evictor) user() string {
	if e == tollgate {
		return tollgateUser
	}
	return builtinUser
}

// process is the name of the process that evicts.
func (e evictor) process() string {
	if e == tollgate {
		return install.Name
	}
	return controlplane.ControllerManager
}

const (
	// startTimeout is how long a step before the measurement may take.
	startTimeout = 3 * time.Minute
	// podTimeout is how long the eviction of one pod may take: the built-in
	// evictor at its default limits does about seven in a second.
	podTimeout = time.Second
)

// measurement is one eviction of all pods.
type measurement struct {
	// These are from before the first taint is written until the first pod, half
	// of them and the last is seen to be marked, and until the last is gone.
	first, half, last, gone time.Duration
	// requests are those of the evictor until it falls silent, and so is the CPU
	// time below.
	requests requests
	// evictor is the CPU time of the process that evicts. For the built-in one
	// that is the controller manager, which does other things too.
	evictor, controllerManager, apiServer, others time.Duration
	// peak is the most memory that the evicting process has held.
	peak int64
}

// measure lets one evictor, started for it, evict all pods once.
func (s *stage) measure(ctx context.Context, scenario scenario, who evictor) (m measurement, err error) {
	stop, err := s.start(ctx, who, scenario.limit)
	if err != nil {
		return m, err
	}
	defer func() {
		if err == nil {
			err = s.clear(ctx)
		}
		err = errors.Join(err, stop(context.WithoutCancel(ctx)))
	}()
	seen, err := observe(ctx, s.client)
	if err != nil {
		return m, err
	}
	defer seen.stop()
	if err := s.prepare(ctx, seen, scenario.pods); err != nil {
		return m, err
	}
	m, err = s.evict(ctx, seen, scenario, who)
	if err != nil {
		return m, err
	}
	return m, s.verify(ctx)
}

// start starts the evictor and sees to it that the other one does not run. What
// it returns ends the evictor.
func (s *stage) start(ctx context.Context, who evictor, limit int) (stop func(context.Context) error, err error) {
	var args []string
	if limit > 0 {
		args = append(args, "--kube-api-qps="+strconv.Itoa(limit), "--kube-api-burst="+strconv.Itoa(limit))
	}
	if who == builtin {
		return func(context.Context) error { return nil }, s.cp.RestartWith(ctx, controlplane.ControllerManager, args...)
	}
	args = append(args, "--controllers=*,-taint-eviction-controller,-device-taint-eviction-controller")
	if err := s.cp.RestartWith(ctx, controlplane.ControllerManager, args...); err != nil {
		return nil, err
	}
	installed, err := install.Install(ctx, s.cp, install.Options{Programs: s.programs, Patch: func(config map[string]any) {
		if limit > 0 {
			config["clientConnection"] = map[string]any{"qps": limit, "burst": limit}
		}
		if s.workers > 0 {
			config["eviction"] = map[string]any{"workers": s.workers}
		}
	}})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		return errors.Join(installed.Terminate(ctx), s.unregister(ctx))
	}, nil
}

// unregister takes the webhooks away, which would else be called in vain.
func (s *stage) unregister(ctx context.Context) error {
	registrations := s.client.AdmissionregistrationV1()
	err := errors.Join(
		registrations.MutatingWebhookConfigurations().Delete(ctx, install.Name, metav1.DeleteOptions{}),
		registrations.ValidatingWebhookConfigurations().Delete(ctx, install.Name, metav1.DeleteOptions{}),
	)
	if err != nil {
		return fmt.Errorf("unregister webhooks: %w", err)
	}
	return nil
}

// prepare creates the pods, and returns when they run, the evictor has shown on
// one pod that it works, and all have come to rest.
func (s *stage) prepare(ctx context.Context, seen *observer, pods int) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.createPod(ctx, newPod(canary, s.canary, 0)); err != nil {
		return err
	}
	if err := s.create(ctx, pods); err != nil {
		return err
	}
	for g, n := range map[group]int{leaves: pods, stays: stayPerNode * len(s.nodes), canary: 1} {
		if _, err := seen.waitRunning(ctx, g, n); err != nil {
			return err
		}
	}
	if err := s.taint(ctx, true, s.canary); err != nil {
		return err
	}
	if _, err := seen.waitMarked(ctx, canary, 1); err != nil {
		return err
	}
	return s.waitIdle(ctx)
}

// evict taints all nodes and measures until the evictor is done.
func (s *stage) evict(ctx context.Context, seen *observer, scenario scenario, who evictor) (measurement, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout+time.Duration(scenario.pods)*podTimeout)
	defer cancel()
	offset, err := s.audit.size()
	if err != nil {
		return measurement{}, err
	}
	before, err := s.usage()
	if err != nil {
		return measurement{}, err
	}
	var m measurement
	if err := s.watchThemGo(ctx, seen, scenario, &m); err != nil {
		return m, err
	}
	if m.requests, err = s.audit.settled(ctx, offset, who.user()); err != nil {
		return m, err
	}
	if m.requests.deleted != scenario.pods {
		return m, fmt.Errorf("%s had %d deletions accepted, want %d", who.user(), m.requests.deleted, scenario.pods)
	}
	after, err := s.usage()
	if err != nil {
		return m, err
	}
	m.evictor = after.cpu[who.process()] - before.cpu[who.process()]
	m.controllerManager = after.cpu[controlplane.ControllerManager] - before.cpu[controlplane.ControllerManager]
	m.apiServer = after.cpu[controlplane.APIServer] - before.cpu[controlplane.APIServer]
	// The counters of processes and of the machine are not brought up to date
	// together, so that nothing can come out as less than that.
	m.others = max(after.others()-before.others(), 0)
	m.peak, err = peakMemory(s.cp.RunningPIDs()[who.process()])
	return m, err
}

// watchThemGo taints all nodes and enters how long the pods take.
func (s *stage) watchThemGo(ctx context.Context, seen *observer, scenario scenario, m *measurement) error {
	if scenario.lateKubelets {
		if err := s.cp.Signal(controlplane.Kwok, syscall.SIGSTOP); err != nil {
			return err
		}
	}
	start := time.Now()
	if err := s.taint(ctx, true, s.nodes...); err != nil {
		return err
	}
	marked, err := seen.waitMarked(ctx, leaves, scenario.pods)
	if err != nil {
		return err
	}
	if scenario.lateKubelets {
		if err := s.cp.Signal(controlplane.Kwok, syscall.SIGCONT); err != nil {
			return err
		}
	}
	gone, err := seen.waitGone(ctx, leaves, scenario.pods)
	if err != nil {
		return err
	}
	n := scenario.pods
	m.first, m.half, m.last = marked[0].Sub(start), marked[(n-1)/2].Sub(start), marked[n-1].Sub(start)
	m.gone = gone[n-1].Sub(start)
	return nil
}

// poll asks until the answer is yes.
func poll(ctx context.Context, what string, done wait.ConditionWithContextFunc) error {
	if err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, startTimeout, true, done); err != nil {
		return fmt.Errorf("wait for %s: %w", what, err)
	}
	return nil
}
