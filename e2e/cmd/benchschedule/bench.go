package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/cmd/internal/command"
	"github.com/tollgate-dev/tollgate/e2e/cmd/internal/report"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/install"
)

// scheduler is who schedules.
type scheduler string

const (
	stock scheduler = "kube-scheduler"
	ours  scheduler = "with PatchedDynamicResources"
)

// limit is the rate and the burst of the clients of both: at the default of 50 a second
// it would be that which is measured.
const limit = 5000

// measurement is one scheduling of all pods.
type measurement struct {
	// took is from the first binding to the last; what is before the first is the start
	// of the process.
	took time.Duration
	// processor is what the process used, its start included.
	processor time.Duration
}

type stage struct {
	cp       *controlplane.ControlPlane
	client   kubernetes.Interface
	programs binaries.Binaries
	options  options
}

func bench(ctx context.Context, out, progress io.Writer, o options) (err error) {
	say := command.Progress(progress)
	s, err := newStage(ctx, o, say)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.cp.Stop(context.WithoutCancel(ctx))) }()
	all := map[scheduler][]measurement{}
	for i := range o.rounds {
		// What drifts while it runs falls on both alike.
		for _, who := range []scheduler{stock, ours, ours, stock} {
			m, err := s.measure(ctx, who)
			if err != nil {
				return fmt.Errorf("schedule by %s: %w (logs: %s)", who, err, filepath.Join(s.cp.Dir(), "logs"))
			}
			say("round %d, %s: %.1f pods/s, %.2f s of processor time", i+1, who, s.rate(m), m.processor.Seconds())
			all[who] = append(all[who], m)
		}
	}
	return s.report(out, all)
}

func newStage(ctx context.Context, o options, say func(string, ...any)) (*stage, error) {
	root, err := binaries.Root(".")
	if err != nil {
		return nil, err
	}
	programs := binaries.Binaries{Root: root, Progress: func(step string) { say("%s", step) }}
	say("building Kubernetes %s, etcd and both schedulers (about 6 minutes the first time)", binaries.KubernetesVersion)
	if err := programs.BuildControlPlane(ctx); err != nil {
		return nil, err
	}
	if err := programs.BuildScheduler(ctx); err != nil {
		return nil, err
	}
	say("starting a control plane with %d nodes", o.nodes)
	cp, err := controlplane.Start(ctx, controlplane.Options{
		Dir: filepath.Join(root, ".cluster-benchschedule"), Program: programs.ControlPlane(), Nodes: o.nodes,
		ExtraArgs: map[string][]string{controlplane.ControllerManager: {"--kube-api-qps=500", "--kube-api-burst=1000"}},
	})
	if err != nil {
		return nil, err
	}
	s := &stage{cp: cp, programs: programs, options: o}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, cp.Stop(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// prepare applies what our scheduler reads, and publishes the devices.
func (s *stage) prepare(ctx context.Context) error {
	for _, folder := range []string{"crd", "scheduler"} {
		if err := install.Apply(ctx, s.cp, filepath.Join(s.programs.Root, "deploy", folder)); err != nil {
			return err
		}
	}
	config := s.cp.RESTConfig()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	s.client = client
	return s.publish(ctx)
}

// measure has a scheduler schedule all pods, which are there when it starts.
func (s *stage) measure(ctx context.Context, who scheduler) (measurement, error) {
	if err := s.cp.Kill(ctx, controlplane.Scheduler); err != nil {
		return measurement{}, err
	}
	if err := s.createPods(ctx); err != nil {
		return measurement{}, err
	}
	bindings, err := s.watchBindings(ctx)
	if err != nil {
		return measurement{}, err
	}
	defer bindings.stop()
	if err := s.start(ctx, who); err != nil {
		return measurement{}, err
	}
	took, err := bindings.wait(ctx)
	if err != nil {
		return measurement{}, err
	}
	used, err := report.CPUTime(s.cp.RunningPIDs()[controlplane.Scheduler])
	if err != nil {
		return measurement{}, err
	}
	return measurement{took: took, processor: used}, s.deletePods(ctx)
}

// start starts a scheduler, with the configuration of deploy/ or none but the limits.
func (s *stage) start(ctx context.Context, who scheduler) error {
	options := controlplane.SchedulerOptions{
		Config: filepath.Join(s.programs.Root, "deploy", "scheduler", "default-profile.yaml"),
		Change: func(config map[string]any) {
			if who == stock {
				delete(config, "profiles")
			}
			connection := config["clientConnection"].(map[string]any) //nolint:forcetypeassert // ReplaceScheduler writes into it.
			connection["qps"], connection["burst"] = limit, limit
		},
	}
	if who == ours {
		options.Program = s.programs.Scheduler()
	}
	return s.cp.ReplaceScheduler(ctx, options)
}

// rate is how many pods were scheduled in a second.
func (s *stage) rate(m measurement) float64 {
	return float64(s.options.pods-1) / m.took.Seconds()
}

// report prints the median of each and how they compare.
func (s *stage) report(out io.Writer, all map[scheduler][]measurement) error {
	median := func(who scheduler, of func(measurement) float64) float64 {
		values := make([]float64, 0, len(all[who]))
		for _, m := range all[who] {
			values = append(values, of(m))
		}
		slices.Sort(values)
		return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
	}
	seconds := func(m measurement) float64 { return m.processor.Seconds() }
	_, err := fmt.Fprintf(out, "%d pods with a device each, %d nodes, no patches; medians of %d\n%-30s %8s %12s\n",
		s.options.pods, s.options.nodes, len(all[stock]), "", "pods/s", "processor s")
	for _, who := range []scheduler{stock, ours} {
		if err == nil {
			_, err = fmt.Fprintf(out, "%-30s %8.1f %12.2f\n", who, median(who, s.rate), median(who, seconds))
		}
	}
	if err == nil {
		_, err = fmt.Fprintf(out, "%-30s %8.2f %12.2f\n", "ours to stock",
			median(ours, s.rate)/median(stock, s.rate), median(ours, seconds)/median(stock, seconds))
	}
	if err != nil {
		return fmt.Errorf("print figures: %w", err)
	}
	return nil
}
