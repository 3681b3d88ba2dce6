package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
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
	// start is when the first taint was about to be written.
	start time.Time
	// late is how long after the time in the taint, plus what they tolerate, timed
	// pods were seen to be marked, the earliest first; sinceStart is that of the
	// earliest by when the taint was written, which has fractions of a second.
	late       []time.Duration
	sinceStart time.Duration
	// lateness is the 99th percentile of what the evictor itself says about that,
	// in seconds, if it does.
	lateness float64
}

// measure lets one evictor, started for it, evict all pods once.
func (s *stage) measure(ctx context.Context, scenario scenario, who evictor) (m measurement, err error) {
	run, err := s.start(ctx, who, scenario.limit)
	if err != nil {
		return m, err
	}
	work := s.workload(scenario)
	defer func() {
		if err == nil {
			err = work.clear(ctx)
		}
		err = errors.Join(err, run.stop(context.WithoutCancel(ctx)))
	}()
	seen, err := observe(ctx, s.client)
	if err != nil {
		return m, err
	}
	defer seen.stop()
	if err := s.prepare(ctx, seen, work, scenario, who); err != nil {
		return m, err
	}
	begin := work.taintAll
	if who.atATime() > 0 {
		begin = run.evictAll
	}
	m, err = s.evict(ctx, seen, scenario, who, begin)
	if err != nil {
		return m, err
	}
	if scenario.timed {
		if err := s.howLate(ctx, seen, &m, run); err != nil {
			return m, err
		}
	}
	return m, s.verify(ctx)
}

// prepare creates the pods, and returns when they run, the evictor has shown on
// one pod that it works, and all have come to rest.
func (s *stage) prepare(ctx context.Context, seen *observer, work workload, scenario scenario, who evictor) error {
	ctx, cancel := context.WithTimeout(ctx, scenario.longest())
	defer cancel()
	if err := work.create(ctx, scenario.pods); err != nil {
		return err
	}
	for g, n := range map[group]int{leaves: scenario.pods, stays: stayPerNode * len(s.nodes), canary: 1} {
		if _, err := seen.waitRunning(ctx, g, n); err != nil {
			return err
		}
	}
	if who.atATime() > 0 {
		// Nobody evicts it, and it needs not be shown that a loop works.
		if err := s.client.CoreV1().Pods(namespace).Delete(ctx, newPod(canary, s.canary, 0).Name, metav1.DeleteOptions{}); err != nil {
			return fmt.Errorf("delete pod: %w", err)
		}
	} else if err := work.taintCanary(ctx); err != nil {
		return err
	}
	if _, err := seen.waitMarked(ctx, canary, 1); err != nil {
		return err
	}
	return s.waitIdle(ctx)
}

// evict begins and measures until the evictor is done.
func (s *stage) evict(ctx context.Context, seen *observer, scenario scenario, who evictor, begin func(context.Context) error) (measurement, error) {
	ctx, cancel := context.WithTimeout(ctx, scenario.longest())
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
	if err := s.watchThemGo(ctx, seen, scenario, begin, &m); err != nil {
		return m, err
	}
	user := who.user(scenario.devices)
	if m.requests, err = s.audit.settled(ctx, offset, user); err != nil {
		return m, err
	}
	if m.requests.deleted != scenario.pods {
		return m, fmt.Errorf("%s had %d deletions accepted, want %d", user, m.requests.deleted, scenario.pods)
	}
	after, err := s.usage()
	if err != nil {
		return m, err
	}
	m.controllerManager = after.cpu[controlplane.ControllerManager] - before.cpu[controlplane.ControllerManager]
	m.apiServer = after.cpu[controlplane.APIServer] - before.cpu[controlplane.APIServer]
	// The counters of processes and of the machine are not brought up to date
	// together, so that nothing can come out as less than that.
	m.others = max(after.others()-before.others(), 0)
	if process := who.process(); process != "" {
		m.evictor = after.cpu[process] - before.cpu[process]
		m.peak, err = peakMemory(s.cp.RunningPIDs()[process])
	}
	return m, err
}

// watchThemGo begins and enters how long the pods take.
func (s *stage) watchThemGo(ctx context.Context, seen *observer, scenario scenario, begin func(context.Context) error, m *measurement) error {
	if scenario.lateKubelets {
		if err := s.cp.Signal(controlplane.Kwok, syscall.SIGSTOP); err != nil {
			return err
		}
	}
	m.start = time.Now()
	if err := begin(ctx); err != nil {
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
	m.first, m.half, m.last = marked[0].Sub(m.start), marked[(n-1)/2].Sub(m.start), marked[n-1].Sub(m.start)
	m.gone = gone[n-1].Sub(m.start)
	return nil
}

// howLate enters how long after their time the pods were marked.
func (s *stage) howLate(ctx context.Context, seen *observer, m *measurement, run started) error {
	rule, err := s.client.ResourceV1().DeviceTaintRules().Get(ctx, ruleForAll, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get rule: %w", err)
	}
	if rule.Spec.Taint.TimeAdded == nil {
		return errors.New("the taint of the rule has no time")
	}
	marked := seen.marked(leaves)
	for place := range len(marked) {
		tolerated := time.Duration(tolerates(place)) * time.Second
		name := newPod(leaves, s.nodes[place%len(s.nodes)], place/len(s.nodes)).Name
		late := marked[name].Sub(rule.Spec.Taint.TimeAdded.Add(tolerated))
		if late < 0 {
			return fmt.Errorf("pod %s was marked %s before its time", name, -late)
		}
		m.late = append(m.late, late)
		if since := marked[name].Sub(m.start.Add(tolerated)); place == 0 || since < m.sinceStart {
			m.sinceStart = since
		}
	}
	slices.Sort(m.late)
	m.lateness, err = run.lateness(ctx)
	return err
}

// poll asks until the answer is yes.
func poll(ctx context.Context, what string, done wait.ConditionWithContextFunc) error {
	if err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, startTimeout, true, done); err != nil {
		return fmt.Errorf("wait for %s: %w", what, err)
	}
	return nil
}
