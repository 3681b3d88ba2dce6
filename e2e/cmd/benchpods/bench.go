package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/cmd/internal/command"
	"github.com/tollgate-dev/tollgate/e2e/cmd/internal/report"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
	"github.com/tollgate-dev/tollgate/e2e/install"
)

const (
	driver    = "gpu.example.com"
	namespace = metav1.NamespaceDefault
	taintKey  = "dedicated"
	// atOnce is how many requests this program makes at a time.
	atOnce = 32
	// patience is how long a step may take.
	patience = 15 * time.Minute
	// perSlice is how many devices a ResourceSlice has at most.
	perSlice = 100
)

// kind is a kind of pods.
type kind struct {
	name            string
	claim, tolerant bool
}

var kinds = []kind{
	{name: "plain"},
	{name: "with a claim", claim: true},
	{name: "with a claim, and a toleration that a policy guards", claim: true, tolerant: true},
}

type stage struct {
	cp       *controlplane.ControlPlane
	client   kubernetes.Interface
	policies client.Client
	options  options
	say      func(format string, args ...any)
	created  int
}

func bench(ctx context.Context, out, progress io.Writer, o options) (err error) {
	say := command.Progress(progress)
	root, err := binaries.Root(".")
	if err != nil {
		return err
	}
	m, err := report.Describe(ctx, root)
	if err != nil {
		return err
	}
	m.Command = o.command
	if busy := m.Busy(); busy != "" {
		say("%s", busy)
	}
	programs := binaries.Binaries{
		Root: root, Built: os.Getenv(binaries.BuiltVariable) != "", Progress: func(step string) { say("%s", step) },
	}
	say("building Kubernetes %s, etcd and Tollgate (about 6 minutes the first time)", binaries.KubernetesVersion)
	if err := errors.Join(programs.BuildControlPlane(ctx), programs.BuildTollgate(ctx)); err != nil {
		return err
	}
	s := &stage{options: o, say: say}
	if err := s.start(ctx, programs); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.cp.Stop(context.WithoutCancel(ctx))) }()
	table, err := s.measureAll(ctx, programs)
	if err != nil {
		return fmt.Errorf("%w (logs: %s)", err, filepath.Join(s.cp.Dir(), "logs"))
	}
	return report.Write(out, m, []report.Table{table}, o.markdown)
}

// start starts a control plane that schedules faster than pods are created, and publishes the devices.
func (s *stage) start(ctx context.Context, programs binaries.Binaries) (err error) {
	s.say("starting a control plane with %d nodes", s.options.nodes)
	fast := []string{"--kube-api-qps=5000", "--kube-api-burst=5000"}
	s.cp, err = controlplane.Start(ctx, controlplane.Options{
		Dir: filepath.Join(programs.Root, ".cluster-benchpods"), Program: programs.ControlPlane(), Nodes: s.options.nodes,
		ExtraArgs: map[string][]string{controlplane.ControllerManager: fast, controlplane.Scheduler: fast},
	})
	if err != nil {
		return err
	}
	config := s.cp.RESTConfig()
	known := scheme.Scheme
	if err := v1alpha1.AddToScheme(known); err != nil {
		return fmt.Errorf("register kinds: %w", err)
	}
	if s.policies, err = client.New(config, client.Options{Scheme: known}); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	if s.client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	return s.publish(ctx)
}

// publish creates the class, the template of claims, and a device for each pod that there will be.
func (s *stage) publish(ctx context.Context) error {
	resources := s.client.ResourceV1()
	if _, err := resources.DeviceClasses().Create(ctx, dra.Class(driver), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create class: %w", err)
	}
	if _, err := resources.ResourceClaimTemplates(namespace).Create(ctx, dra.Template("gpu", driver, ""), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create template: %w", err)
	}
	all := s.options.pods + len(kinds)*s.options.rate*s.options.seconds
	each := all/s.options.nodes + 1
	for i := range s.options.nodes {
		node := controlplane.NodeName(i + 1)
		slices := (each + perSlice - 1) / perSlice
		for j := range slices {
			var devices []resourcev1.Device
			for k := range min(perSlice, each-j*perSlice) {
				devices = append(devices, dra.Device(fmt.Sprintf("gpu-%d-%d", j, k)))
			}
			slice := dra.Slice(driver, node, devices...)
			slice.Name += "-" + strconv.Itoa(j)
			slice.Spec.Pool.ResourceSliceCount = int64(slices)
			slice.Spec.AllNodes, slice.Spec.NodeName = nil, &node
			if _, err := resources.ResourceSlices().Create(ctx, slice, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("publish devices: %w", err)
			}
		}
	}
	return nil
}

func (s *stage) measureAll(ctx context.Context, programs binaries.Binaries) (report.Table, error) {
	o := s.options
	table := report.Table{
		Title: fmt.Sprintf("What Tollgate uses for a pod that is created and started beside %d pods with a claim each, on %d nodes", o.pods, o.nodes),
		Explanation: fmt.Sprintf("%d pods of a kind, %d in a second; CPU time of Tollgate in ms a pod, less what it uses at rest",
			o.rate*o.seconds, o.rate),
		Columns: []string{"ms"},
	}
	if _, err := install.Install(ctx, s.cp, install.Options{Programs: programs, Managed: true}); err != nil {
		return table, err
	}
	pid := s.cp.RunningPIDs()[install.Name]
	guard := &v1alpha1.TolerationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: taintKey},
		Spec: v1alpha1.TolerationPolicySpec{
			Taints: []v1alpha1.TaintSelector{{Key: taintKey}},
			Grants: []v1alpha1.TolerationGrant{{Namespaces: []string{namespace}}},
		},
	}
	if err := s.policies.Create(ctx, guard); err != nil {
		return table, fmt.Errorf("create policy: %w", err)
	}
	if err := s.until(ctx, "the policy is ready", func(ctx context.Context) (bool, error) {
		err := s.policies.Get(ctx, client.ObjectKeyFromObject(guard), guard)
		return meta.IsStatusConditionTrue(guard.Status.Conditions, v1alpha1.ConditionReady), err
	}); err != nil {
		return table, err
	}
	s.say("creating %d pods with a claim each; Tollgate is process %d", o.pods, pid)
	if err := s.create(ctx, kinds[1], o.pods, 0); err != nil {
		return table, err
	}
	for _, k := range kinds {
		rest, err := s.rest(ctx, pid)
		if err != nil {
			return table, err
		}
		s.say("at rest Tollgate uses %.1f %% of a core; creating pods: %s", 100*rest, k.name)
		before, err := report.CPUTime(pid)
		if err != nil {
			return table, err
		}
		began := time.Now()
		if err := s.create(ctx, k, o.rate*o.seconds, time.Second/time.Duration(o.rate)); err != nil {
			return table, err
		}
		after, err := report.CPUTime(pid)
		if err != nil {
			return table, err
		}
		used := (after - before).Seconds() - rest*time.Since(began).Seconds()
		table.Rows = append(table.Rows, report.Row{Label: k.name, Cells: []string{fmt.Sprintf("%.2f", 1000*used/float64(o.rate*o.seconds))}})
	}
	return table, nil
}

// create creates pods, one each pause, and returns when all of them run.
func (s *stage) create(ctx context.Context, k kind, pods int, pause time.Duration) error {
	tick := time.NewTicker(max(pause, time.Nanosecond))
	defer tick.Stop()
	jobs, limited := errgroup.WithContext(ctx)
	jobs.SetLimit(atOnce)
	for range pods {
		if pause > 0 {
			select {
			case <-limited.Done():
			case <-tick.C:
			}
		}
		s.created++
		pod := s.pod(k, "pod-"+strconv.Itoa(s.created))
		jobs.Go(func() error {
			_, err := s.client.CoreV1().Pods(namespace).Create(limited, pod, metav1.CreateOptions{})
			return err
		})
	}
	if err := jobs.Wait(); err != nil {
		return fmt.Errorf("create pods: %w", err)
	}
	return s.until(ctx, "all pods run", func(ctx context.Context) (bool, error) {
		pending, err := s.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
			FieldSelector: "status.phase=" + string(corev1.PodPending), Limit: 1,
		})
		return err == nil && len(pending.Items) == 0, err
	})
}

func (s *stage) pod(k kind, name string) *corev1.Pod {
	pod := dra.Pod(name)
	pod.Labels = map[string]string{"app": "web", "pod-template-hash": "7d4b9c6f5d"}
	for i := range 40 {
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%02d", i), Value: "a value of a setting"})
	}
	if k.claim {
		pod = dra.FromTemplate(pod, "gpu")
	}
	if k.tolerant {
		pod.Spec.Tolerations = []corev1.Toleration{{Key: taintKey, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
	}
	return pod
}

// rest returns what share of a core a process uses while nothing happens.
func (s *stage) rest(ctx context.Context, pid int) (float64, error) {
	const over = 20 * time.Second
	begin := time.Now()
	before, err := report.CPUTime(pid)
	if err != nil {
		return 0, err
	}
	if err := s.until(ctx, "a while is over", func(context.Context) (bool, error) { return time.Since(begin) > over, nil }); err != nil {
		return 0, err
	}
	after, err := report.CPUTime(pid)
	return (after - before).Seconds() / time.Since(begin).Seconds(), err
}

func (s *stage) until(ctx context.Context, what string, done func(context.Context) (bool, error)) error {
	if err := wait.PollUntilContextTimeout(ctx, time.Second, patience, false, done); err != nil {
		return fmt.Errorf("wait until %s: %w", what, err)
	}
	return nil
}
