package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/cmd/internal/command"
	"github.com/tollgate-dev/tollgate/e2e/cmd/internal/report"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

// stage is where the measurements are made.
type stage struct {
	cp     *controlplane.ControlPlane
	client kubernetes.Interface
	// objects reads and writes our kinds.
	objects  client.Client
	programs binaries.Binaries
	audit    auditLog
	nodes    []string
	// canary is a further node, on which it is seen that an evictor works.
	canary string
	// workers is Tollgate's setting of that name, zero for the default.
	workers int
	say     func(format string, args ...any)
}

// bench measures what the options ask for, and prints it.
func bench(ctx context.Context, out, progress io.Writer, o options) error {
	say := command.Progress(progress)
	root, err := binaries.Root(".")
	if err != nil {
		return err
	}
	m, err := report.Describe(ctx, root)
	if err != nil {
		return err
	}
	if busy := m.Busy(); busy != "" {
		say("%s", busy)
	}
	tables, err := evict(ctx, root, o, say)
	if err != nil {
		return err
	}
	if o.decidedPods >= fewestDecided {
		t, err := compareDecisions(ctx, o.decidedPods, say)
		if err != nil {
			return err
		}
		tables = append(tables, t)
	}
	say("done")
	return report.Write(out, m, tables, o.markdown)
}

// evict measures on a control plane of its own.
func evict(ctx context.Context, root string, o options, say func(string, ...any)) (tables []report.Table, err error) {
	scenarios := o.scenarios()
	if len(scenarios) == 0 {
		return nil, nil
	}
	s, err := newStage(ctx, root, o, say)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.cp.Stop(context.WithoutCancel(ctx))) }()
	for _, scenario := range scenarios {
		say("%s", scenario.title)
		rounds, err := s.compare(ctx, scenario, o.rounds)
		if err != nil {
			return nil, fmt.Errorf("%w (logs: %s)", err, filepath.Join(s.cp.Dir(), "logs"))
		}
		tables = append(tables, tabulate(scenario, rounds)...)
	}
	return tables, nil
}

func newStage(ctx context.Context, root string, o options, say func(string, ...any)) (*stage, error) {
	programs := binaries.Binaries{Root: root, Progress: func(step string) { say("%s", step) }}
	say("building Kubernetes %s, etcd and Tollgate (about 6 minutes the first time)", binaries.KubernetesVersion)
	if err := programs.BuildControlPlane(ctx); err != nil {
		return nil, err
	}
	if err := programs.BuildTollgate(ctx); err != nil {
		return nil, err
	}
	dir := filepath.Join(root, ".cluster-bench")
	audit := auditLog{path: filepath.Join(dir, "logs", "audit.log")}
	policy, err := writeAuditPolicy()
	if err != nil {
		return nil, err
	}
	// The API server has read it by the time it is ready.
	defer func() { _ = os.Remove(policy) }()

	say("starting a control plane with %d nodes", o.nodes+1)
	cp, err := controlplane.Start(ctx, controlplane.Options{
		Dir: dir, Program: programs.ControlPlane(), Nodes: o.nodes + 1,
		// Which evictor runs is said at each restart of the controller manager.
		Eviction: controlplane.EvictionBuiltin,
		ExtraArgs: map[string][]string{controlplane.APIServer: {
			"--audit-policy-file=" + policy, "--audit-log-path=" + audit.path, "--audit-log-maxsize=" + strconv.Itoa(auditMegabytes),
		}},
	})
	if errors.Is(err, controlplane.ErrRunning) {
		return nil, fmt.Errorf("%w: another bench is running, or was killed: end what runs from there", err)
	}
	if err != nil {
		return nil, err
	}
	config := cp.RESTConfig()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make client: %w", err), cp.Stop(context.WithoutCancel(ctx)))
	}
	objects, err := newObjects(config)
	if err != nil {
		return nil, errors.Join(err, cp.Stop(context.WithoutCancel(ctx)))
	}
	s := &stage{
		cp: cp, client: clientset, objects: objects, programs: programs, audit: audit,
		canary: controlplane.NodeName(o.nodes + 1), workers: o.workers, say: say,
	}
	for i := range o.nodes {
		s.nodes = append(s.nodes, controlplane.NodeName(i+1))
	}
	return s, nil
}

func newObjects(config *rest.Config) (client.Client, error) {
	config = rest.CopyConfig(config)
	config.ContentType = ""
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register kinds: %w", err)
	}
	objects, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return objects, nil
}

// round holds what was measured in one round, by evictor.
type round map[evictor][]measurement

// compare measures the evictors in turn.
func (s *stage) compare(ctx context.Context, scenario scenario, rounds int) ([]round, error) {
	var done []round
	for i := range rounds {
		r := round{}
		for _, who := range scenario.order {
			m, err := s.measure(ctx, scenario, who)
			if err != nil {
				return nil, fmt.Errorf("evict by %s: %w", who, err)
			}
			s.say("round %d, %s: all %d marked after %.2f s and gone after %.2f s, %.2f requests a pod",
				i+1, who, scenario.pods, m.last.Seconds(), m.gone.Seconds(), m.requests.perPod(scenario.pods))
			r[who] = append(r[who], m)
		}
		done = append(done, r)
	}
	return done, nil
}
