package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/cmd/internal/report"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/policy/vap"
)

// settle is for how long after the last answer the CPU time is still counted: watchers see the last pods
// by then.
const settle = 200 * time.Millisecond

// engine is what judges the pods that are created.
type engine string

const (
	noEngine       engine = "no engine"
	vapEngine      engine = "VAP"
	bareEngine     engine = "bare"
	tollgateEngine engine = "Tollgate"
)

// engines are all of them, in the order of the columns.
var engines = []engine{noEngine, vapEngine, bareEngine, tollgateEngine}

// creation is one measurement: the creation of all pods of a kind.
type creation struct {
	took      time.Duration
	latencies []time.Duration // sorted
	pods      int
	// apiServer and engine are CPU time. ValidatingAdmissionPolicies are a part of the API server.
	apiServer, engine time.Duration
}

// scene is what is measured in turns: so many policies, and pods of one kind.
type scene struct {
	policies int
	guarded  bool
}

func (c scene) String() string {
	label := strconv.Itoa(c.policies) + " policies, "
	if c.policies == 1 {
		label = "1 policy, "
	}
	if c.guarded {
		return label + "guarded pods"
	}
	return label + "plain pods"
}

// created are the measurements of a scene, by round and engine.
type created []map[engine][]creation

// through has pods created through the API server, under each engine in turns.
func (s *stage) through(ctx context.Context) (tables []report.Table, err error) {
	if s.options.pods == 0 {
		return nil, nil
	}
	plane, err := s.newPlane(s.options.dryRun)
	if err != nil {
		return nil, err
	}
	if plane.bare, err = s.start(ctx, bare); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop(context.WithoutCancel(ctx), plane.bare)) }()
	var scenes []scene
	all := map[scene]created{}
	numbers := []int{1, s.options.policies[0]}
	if s.options.quick {
		numbers = numbers[:1]
	}
	for _, n := range numbers {
		err = plane.compare(ctx, n, all)
		for _, kind := range []scene{{n, false}, {n, true}} {
			if len(all[kind]) > 0 {
				scenes = append(scenes, kind)
			}
		}
		if err != nil {
			break
		}
	}
	return s.tabulateCreations(scenes, all), err
}

// newPlane connects the clients that create pods, or that only pretend to.
func (s *stage) newPlane(dryRun bool) (*plane, error) {
	p := &plane{stage: s, on: noEngine, dryRun: dryRun}
	for range connections {
		config := s.cp.RESTConfig()
		config.ContentType = "application/vnd.kubernetes.protobuf"
		// Clients whose connections are dialled by functions of their own share none.
		config.Dial = (&net.Dialer{}).DialContext
		c, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, fmt.Errorf("make client: %w", err)
		}
		p.clients = append(p.clients, c)
	}
	return p, nil
}

// plane is the API server with one engine at a time.
type plane struct {
	*stage

	clients []kubernetes.Interface
	dryRun  bool
	bare    *server
	// on is the engine that judges now, and off ends it.
	on  engine
	off func(context.Context) error
	// pid is the process of the engine, zero where it has none of its own.
	pid int
	// policies are those of Tollgate.
	policies []client.Object
}

// compare measures plain and guarded pods under n policies, of which one guards what guarded pods
// tolerate.
func (p *plane) compare(ctx context.Context, n int, into map[scene]created) error {
	p.policies = guards(n, func(i int) bool { return i == 0 }, v1alpha1.TolerationGrant{Namespaces: []string{granted}})
	if err := p.create(ctx, p.policies); err != nil {
		return err
	}
	plain, guarded := scene{n, false}, scene{n, true}
	for round := range p.options.rounds {
		done := map[scene]map[engine][]creation{plain: {}, guarded: {}}
		// There and back: what drifts while it runs falls on all alike.
		order, kinds := slices.Clone(engines), []scene{plain, guarded}
		for range 2 {
			for _, e := range order {
				if err := p.turn(ctx, e); err != nil {
					return fmt.Errorf("turn to %s: %w", e, err)
				}
				for _, kind := range kinds {
					m, err := p.measure(ctx, kind.guarded)
					if err != nil {
						return fmt.Errorf("create pods under %s: %w", e, err)
					}
					p.say("round %d, %s, %s: %.0f pods/s, %.2f and %.2f ms CPU a pod in the API server and the engine",
						round+1, kind, e, float64(m.pods)/m.took.Seconds(), perPod(m.apiServer, m), perPod(m.engine, m))
					done[kind][e] = append(done[kind][e], m)
				}
			}
			slices.Reverse(order)
			slices.Reverse(kinds)
		}
		for kind, by := range done {
			into[kind] = append(into[kind], by)
		}
	}
	if err := p.turn(ctx, noEngine); err != nil {
		return err
	}
	return p.clearPolicies(ctx)
}

// turn ends the engine that judges, and returns when the other one does.
func (p *plane) turn(ctx context.Context, to engine) error {
	if p.on == to {
		return nil
	}
	if p.off != nil {
		if err := p.off(ctx); err != nil {
			return err
		}
	}
	p.on, p.off, p.pid = to, nil, 0
	start := map[engine]func(context.Context) error{
		noEngine:  func(context.Context) error { return nil },
		vapEngine: p.startAdmissionPolicies, bareEngine: p.startBare, tollgateEngine: p.startTollgate,
	}[to]
	if err := start(ctx); err != nil {
		return err
	}
	judges := to == vapEngine || to == tollgateEngine
	return until(ctx, string(to)+" judges", func(ctx context.Context) error {
		before, _, err := p.bare.counts(ctx)
		if err != nil {
			return err
		}
		_, err = p.clients[0].CoreV1().Pods(refused).Create(ctx, pod(refused, true), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !judges && err != nil || judges && !apierrors.IsForbidden(err) {
			return fmt.Errorf("a guarded pod that nothing is granted to: %w", errors.Join(err, errors.New("not as it should be")))
		}
		after, _, err := p.bare.counts(ctx)
		if err == nil && (after > before) != (to == bareEngine) {
			err = fmt.Errorf("the bare webhook was asked %d times", after-before)
		}
		return err
	})
}

// startAdmissionPolicies has the API server judge by what the policies are exported as.
func (p *plane) startAdmissionPolicies(ctx context.Context) error {
	var exported []client.Object
	for _, object := range p.policies {
		policy, ok := object.(*v1alpha1.TolerationPolicy)
		if !ok {
			return fmt.Errorf("export %s: it is no TolerationPolicy", object.GetName())
		}
		out, err := vap.Tolerations(policy, vap.DefaultSettings())
		if err != nil {
			return fmt.Errorf("export policies: %w", err)
		}
		for _, object := range out.Objects {
			object, ok := object.(client.Object)
			if !ok {
				return errors.New("export policies: what is exported is no object")
			}
			exported = append(exported, object)
		}
	}
	p.off = func(ctx context.Context) error { return p.remove(ctx, exported) }
	return p.create(ctx, exported)
}

// startBare registers the webhook that allows everything.
func (p *plane) startBare(ctx context.Context) error {
	configuration := []client.Object{validating(p.bare.url+pathReview, p.ca)}
	p.pid = p.bare.pid
	p.off = func(ctx context.Context) error { return p.remove(ctx, configuration) }
	return p.create(ctx, configuration)
}

func (p *plane) startTollgate(ctx context.Context) error {
	installed, v, err := p.installTollgate(ctx)
	if err != nil {
		return err
	}
	p.pid = v.pid
	p.off = func(ctx context.Context) error { return p.uninstallTollgate(ctx, installed, v) }
	return p.waitReady(ctx, len(p.policies))
}

func (p *plane) remove(ctx context.Context, objects []client.Object) error {
	for _, object := range objects {
		if err := p.client.Delete(ctx, object); err != nil {
			return fmt.Errorf("delete %s: %w", object.GetName(), err)
		}
	}
	return nil
}

// measure creates pods and deletes them again.
func (p *plane) measure(ctx context.Context, guarded bool) (creation, error) {
	// Connections are opened, and what an engine has to fill is filled.
	if _, err := p.createPods(ctx, granted, guarded, min(p.options.pods, batch)); err != nil {
		return creation{}, err
	}
	m := creation{pods: p.options.pods}
	apiServer := p.cp.RunningPIDs()[controlplane.APIServer]
	pids := []int{apiServer}
	if p.pid != 0 {
		pids = append(pids, p.pid)
	}
	if err := rested(ctx, pids...); err != nil {
		return m, err
	}
	cpus := func() (spent [2]time.Duration, err error) {
		if spent[0], err = report.CPUTime(apiServer); err == nil && p.pid != 0 {
			spent[1], err = report.CPUTime(p.pid)
		}
		return spent, err
	}
	before, err := cpus()
	if err != nil {
		return m, err
	}
	start := time.Now()
	if m.latencies, err = p.createPods(ctx, granted, guarded, m.pods); err != nil {
		return m, err
	}
	m.took = time.Since(start)
	time.Sleep(settle)
	after, err := cpus()
	if err != nil {
		return m, err
	}
	m.apiServer, m.engine = after[0]-before[0], after[1]-before[1]
	return m, p.deletePods(ctx, granted)
}

// createPods creates pods in a namespace on all connections at once, and returns how long each took.
func (p *plane) createPods(ctx context.Context, namespace string, guarded bool, n int) ([]time.Duration, error) {
	var options metav1.CreateOptions
	if p.dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	took := make([][]time.Duration, connections)
	jobs, ctx := errgroup.WithContext(ctx)
	for i, c := range p.clients {
		jobs.Go(func() error {
			// Each its own: clients write to what they encode.
			template := pod(namespace, guarded)
			for range (n + i) / connections {
				start := time.Now()
				if _, err := c.CoreV1().Pods(namespace).Create(ctx, template, options); err != nil {
					return fmt.Errorf("create pod: %w", err)
				}
				took[i] = append(took[i], time.Since(start))
			}
			return nil
		})
	}
	if err := jobs.Wait(); err != nil {
		return nil, err
	}
	return slices.Sorted(slices.Values(slices.Concat(took...))), nil
}

// deletePods deletes all pods of a namespace, so that etcd does not grow and no watcher holds more of them under one
// engine than under another.
func (p *plane) deletePods(ctx context.Context, namespace string) error {
	err := p.client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(namespace), client.GracePeriodSeconds(0))
	if err != nil {
		return fmt.Errorf("delete pods: %w", err)
	}
	return until(ctx, "the pods are gone", func(ctx context.Context) error {
		var left corev1.PodList
		err := p.client.List(ctx, &left, client.InNamespace(namespace), client.Limit(1))
		if err == nil && len(left.Items) > 0 {
			err = errors.New("some are there")
		}
		return err
	})
}
