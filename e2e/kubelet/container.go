package kubelet

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/e2e/process"
)

// retryInterval is how often is tried again what failed for want of something else.
const retryInterval = time.Second

// container is one container of a pod, through all its restarts.
type container struct {
	spec   *corev1.Container
	policy corev1.RestartPolicy
	// prepare says what to run, with what is in the cluster by then.
	prepare func(ctx context.Context) (process.Spec, error)
	podIP   string
	// changed is called when the state has changed.
	changed func()

	mu      sync.Mutex
	state   containerState   // guarded by mu
	process *process.Process // that runs or ran last; guarded by mu
}

// containerState is what the status of a pod says of a container.
type containerState struct {
	// waiting is why it does not run; empty while it does and after it has for good.
	waiting, message string
	// startedAt is when the run began that goes on.
	startedAt time.Time
	// ended is the last run that is over; nil if none is.
	ended *ending
	// finished is true if no run will follow.
	finished       bool
	restarts       int32
	started, ready bool
}

// ending is how a run ended.
type ending struct {
	code           int32
	begin, end     time.Time
	reason, detail string
}

func (c *container) current() containerState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

func (c *container) update(change func(*containerState)) {
	c.mu.Lock()
	change(&c.state)
	c.mu.Unlock()
	c.changed()
}

// run keeps the container running until it is told to end, which is done within the grace
// that it is told. If ctx ends, the container is killed.
func (c *container) run(ctx context.Context, end <-chan time.Duration) {
	var waits backoff
	for {
		p, ok := c.start(ctx, end)
		if !ok {
			c.update(func(s *containerState) { s.finished = true })
			return
		}
		begin := time.Now()
		asked := c.attend(ctx, p, end)
		exit := exitOf(p.Exit(), begin, time.Now())
		c.update(func(s *containerState) {
			s.ended, s.started, s.ready = &exit, false, false
			s.finished = asked || !again(c.policy, exit.code)
			s.waiting, s.message = "CrashLoopBackOff", p.Exit()
		})
		if c.current().finished || !c.rest(ctx, end, waits.after(exit.end.Sub(begin))) {
			c.update(func(s *containerState) { s.finished = true })
			return
		}
		c.update(func(s *containerState) { s.restarts++ })
	}
}

// start starts the process, as soon as there is all that it needs.
func (c *container) start(ctx context.Context, end <-chan time.Duration) (*process.Process, bool) {
	for {
		spec, err := c.prepare(ctx)
		if err == nil {
			var p *process.Process
			if p, err = process.Start(spec); err == nil {
				c.update(func(s *containerState) {
					s.waiting, s.message, s.startedAt = "", "", time.Now()
					c.process = p
				})
				return p, true
			}
		}
		c.update(func(s *containerState) { s.waiting, s.message = "CreateContainerError", err.Error() })
		if !c.rest(ctx, end, retryInterval) {
			return nil, false
		}
	}
}

// kill ends the process that runs, if one does.
func (c *container) kill(ctx context.Context) error {
	c.mu.Lock()
	p := c.process
	c.mu.Unlock()
	if p == nil {
		return nil
	}
	return p.Kill(ctx)
}

// rest waits, and says whether the container is to go on.
func (c *container) rest(ctx context.Context, end <-chan time.Duration, duration time.Duration) bool {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-end:
		return false
	case <-timer.C:
		return true
	}
}

// attend carries out the probes of a process until it has ended, and says whether it was
// asked to end.
func (c *container) attend(ctx context.Context, p *process.Process, end <-chan time.Duration) (asked bool) {
	over := make(chan struct{})
	go func() {
		// What is killed ends, so that no context is needed.
		_ = p.Wait(context.WithoutCancel(ctx))
		close(over)
	}()
	// A kubelet asks a container that ends whether it is ready, and nothing else.
	alive, stopAlive := context.WithCancel(ctx)
	ready, stopReady := context.WithCancel(ctx)
	var probes sync.WaitGroup
	defer probes.Wait() // Both are stopped by then.
	defer stopReady()
	defer stopAlive()
	probes.Go(func() { c.watch(alive, ready, p) })

	select {
	case <-over:
		return false
	case <-ctx.Done():
		_ = p.Kill(context.WithoutCancel(ctx))
		return true
	case grace := <-end:
		stopAlive()
		if hook := c.spec.Lifecycle; hook != nil && hook.PreStop != nil && hook.PreStop.Sleep != nil {
			sleep := min(time.Duration(hook.PreStop.Sleep.Seconds)*time.Second, grace)
			pause(ctx, sleep)
			grace -= sleep
		}
		if err := p.Terminate(ctx, grace); err != nil {
			_ = p.Kill(context.WithoutCancel(ctx))
		}
		return true
	}
}

// watch carries out the probes: that of the start first, then both others.
func (c *container) watch(alive, ready context.Context, p *process.Process) {
	kill := func(ok bool) {
		if !ok {
			_ = p.Kill(context.WithoutCancel(alive))
		}
	}
	starting, started := context.WithCancel(alive)
	defer started()
	if c.spec.StartupProbe != nil {
		failed := false
		c.probe(starting, c.spec.StartupProbe, func(ok bool) {
			failed = !ok
			kill(ok)
			started()
		})
		if failed {
			return
		}
	}
	if alive.Err() != nil {
		return
	}
	c.update(func(s *containerState) { s.started, s.ready = true, c.spec.ReadinessProbe == nil })
	var both sync.WaitGroup
	both.Go(func() { c.probe(alive, c.spec.LivenessProbe, kill) })
	both.Go(func() {
		c.probe(ready, c.spec.ReadinessProbe, func(ok bool) {
			if c.current().ready != ok {
				c.update(func(s *containerState) { s.ready = ok })
			}
		})
	})
	both.Wait()
}

// probe carries out a probe, if there is one.
func (c *container) probe(ctx context.Context, spec *corev1.Probe, tell func(ok bool)) {
	if spec == nil {
		return
	}
	ask, err := asker(spec, c.spec, c.podIP)
	if err != nil {
		c.update(func(s *containerState) { s.message = err.Error() })
		return
	}
	probe(ctx, spec, ask, tell)
}

// again reports whether a container is started once more.
func again(policy corev1.RestartPolicy, code int32) bool {
	switch policy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return code != 0
	case corev1.RestartPolicyAlways:
		return true
	default:
		return true
	}
}

// exitOf reads what a process said when it ended. Signals are told by codes above 128, as
// container engines do.
func exitOf(text string, begin, end time.Time) ending {
	out := ending{begin: begin, end: end, reason: "Error", detail: text}
	if code, ok := strings.CutPrefix(text, "exit status "); ok {
		number, _ := strconv.Atoi(code)
		out.code = int32(number) //nolint:gosec // It is a byte.
	} else {
		codes := map[string]int32{"signal: killed": 137, "signal: terminated": 143}
		out.code = max(codes[text], 1)
	}
	if out.code == 0 {
		out.reason = "Completed"
	}
	return out
}
