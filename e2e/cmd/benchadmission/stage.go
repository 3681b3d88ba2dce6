package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/cmd/internal/command"
	"github.com/tollgate-dev/tollgate/e2e/cmd/internal/report"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/e2e/process"
)

const (
	// patience is how long a step may take before anything is measured.
	patience = 3 * time.Minute
	// interval is how often a step is looked at.
	interval = 50 * time.Millisecond
	// atOnce is how many objects are created at a time while nothing is measured.
	atOnce = 8
)

// stage is where the measurements are made.
type stage struct {
	cp       *controlplane.ControlPlane
	client   client.Client
	programs binaries.Binaries
	options  options
	say      func(format string, args ...any)

	// ca and certificates are what the servers of this program have in common.
	ca           []byte
	certificates string
}

// bench measures what the options ask for, and prints it.
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
	if busy := m.Busy(); busy != "" {
		say("%s", busy)
	}
	s, err := newStage(ctx, root, o, say)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.cp.Stop(context.WithoutCancel(ctx))) }()
	m.Command = o.command
	var tables []report.Table
	for _, part := range []func(context.Context) ([]report.Table, error){s.straight, s.plain, s.through} {
		measured, failed := part(ctx)
		tables = append(tables, measured...)
		if failed != nil {
			err = fmt.Errorf("%w (logs: %s)", failed, filepath.Join(s.cp.Dir(), "logs"))
			break
		}
	}
	// A run takes long: what was measured before it failed, or was interrupted, is printed too.
	return errors.Join(err, report.Write(out, m, tables, o.markdown))
}

func newStage(ctx context.Context, root string, o options, say func(string, ...any)) (*stage, error) {
	programs := binaries.Binaries{
		Root: root, Built: os.Getenv(binaries.BuiltVariable) != "", Progress: func(step string) { say("%s", step) },
	}
	say("building Kubernetes %s, etcd and Tollgate (about 6 minutes the first time)", binaries.KubernetesVersion)
	if err := errors.Join(programs.BuildControlPlane(ctx), programs.BuildTollgate(ctx)); err != nil {
		return nil, err
	}
	say("starting a control plane")
	cp, err := controlplane.Start(ctx, controlplane.Options{
		Dir: filepath.Join(root, ".cluster-benchadmission"), Program: programs.ControlPlane(), Nodes: controlplane.NoNodes,
	})
	if err != nil {
		return nil, err
	}
	s := &stage{cp: cp, programs: programs, options: o, say: say}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, cp.Stop(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// prepare creates what pods need, and ends all components but etcd and the API server: no pod is
// scheduled here, and what has no part in admission would take from what is measured.
func (s *stage) prepare(ctx context.Context) error {
	known := scheme.Scheme
	if err := v1alpha1.AddToScheme(known); err != nil {
		return fmt.Errorf("register kinds: %w", err)
	}
	config := s.cp.RESTConfig()
	// Policies of a benchmark are not what it warns of.
	config.WarningHandler = rest.NoWarnings{}
	var err error
	if s.client, err = client.New(config, client.Options{Scheme: known}); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	objects := []client.Object{
		&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "tolerate"},
			Rules: []rbacv1.PolicyRule{{
				APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"taints"},
				ResourceNames: []string{taintKey}, Verbs: []string{"tolerate"},
			}},
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "tolerate"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "tolerate"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: granted, Name: granted}},
		},
	}
	for _, name := range []string{granted, refused, spared} {
		objects = append(objects,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}})
	}
	for _, object := range objects {
		if err := s.client.Create(ctx, object); err != nil {
			return fmt.Errorf("create %s: %w", object.GetName(), err)
		}
	}
	if err := install.Apply(ctx, s.cp, filepath.Join(s.programs.Root, "deploy", "crd")); err != nil {
		return err
	}
	if err := s.writeCertificates(); err != nil {
		return err
	}
	for _, name := range []string{controlplane.Scheduler, controlplane.ControllerManager, controlplane.Kwok} {
		if err := s.cp.Kill(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) writeCertificates() error {
	s.certificates = filepath.Join(s.cp.Dir(), "tollgate")
	certificate, key, err := certutil.GenerateSelfSignedCertKey(loopback, []net.IP{net.ParseIP(loopback)}, nil)
	if err != nil {
		return fmt.Errorf("make certificate: %w", err)
	}
	s.ca = certificate
	err = errors.Join(
		os.MkdirAll(s.certificates, 0o700),
		os.WriteFile(filepath.Join(s.certificates, certificateFile), certificate, 0o600),
		os.WriteFile(filepath.Join(s.certificates, keyFile), key, 0o600),
	)
	if err != nil {
		return fmt.Errorf("write certificate: %w", err)
	}
	return nil
}

// start starts a server of this program as a process of its own.
func (s *stage) start(ctx context.Context, name string) (*server, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	ports, err := controlplane.FreePorts(ctx, 1)
	if err != nil {
		return nil, err
	}
	p, err := process.Start(process.Spec{
		Name: name, Path: program, Args: []string{"answer", name, strconv.Itoa(ports[0]), s.certificates}, Log: s.cp.LogPath(name),
	})
	if err != nil {
		return nil, err
	}
	if err := s.cp.Adopt(p); err != nil {
		return nil, err
	}
	v := &server{
		name: name, url: "https://" + net.JoinHostPort(loopback, strconv.Itoa(ports[0])), pid: p.Identity().PID, ca: s.ca,
	}
	if err := v.connect(); err != nil {
		return nil, err
	}
	v.allocated = func(ctx context.Context) (float64, error) {
		_, bytes, err := v.counts(ctx)
		return bytes, err
	}
	return v, controlplane.WaitReady(ctx, p, v.clients[0], v.url+pathCounts)
}

// stop ends a server of this program.
func (s *stage) stop(ctx context.Context, v *server) error {
	v.disconnect()
	return s.cp.Kill(ctx, v.name)
}

// counts returns what a server of this program tells of itself.
func (s *server) counts(ctx context.Context) (reviews int, allocated float64, err error) {
	answer, err := get(ctx, s.clients[0], s.url+pathCounts)
	if err == nil {
		_, err = fmt.Sscan(string(answer), &reviews, &allocated)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("ask %s what it has done: %w", s.name, err)
	}
	return reviews, allocated, nil
}

// installTollgate installs the program as a user would, and returns it as a server.
func (s *stage) installTollgate(ctx context.Context) (*install.Tollgate, *server, error) {
	installed, err := install.Install(ctx, s.cp, install.Options{Programs: s.programs, Managed: true, Patch: func(config map[string]any) {
		config["webhook"].(map[string]any)["excludedNamespaces"] = []string{spared} //nolint:forcetypeassert // Install makes it.
	}})
	if err != nil {
		return nil, nil, err
	}
	var bundle []byte
	if err := until(ctx, "the webhooks are registered", func(ctx context.Context) (err error) {
		bundle, err = s.caOfTollgate(ctx)
		return err
	}); err != nil {
		return nil, nil, err
	}
	v := &server{
		name: install.Name, url: installed.WebhookURL, pid: s.cp.RunningPIDs()[install.Name], ca: bundle,
		allocated: func(ctx context.Context) (float64, error) { return allocatedIn(ctx, installed.MetricsURL) },
	}
	return installed, v, v.connect()
}

// uninstallTollgate ends the program and takes away what makes the API server call it.
func (s *stage) uninstallTollgate(ctx context.Context, installed *install.Tollgate, v *server) error {
	v.disconnect()
	if err := installed.Terminate(ctx); err != nil {
		return err
	}
	out, err := install.Kubectl(ctx, s.cp, "delete", "validatingwebhookconfiguration,mutatingwebhookconfiguration", install.Name)
	if err != nil {
		return fmt.Errorf("unregister tollgate: %w\n%s", err, out)
	}
	return nil
}

// allocatedIn returns what a scrape says was allocated.
func allocatedIn(ctx context.Context, url string) (float64, error) {
	const metric = "go_memstats_alloc_bytes_total"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, fmt.Errorf("scrape metrics: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("scrape metrics: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return 0, fmt.Errorf("read metrics: %w", err)
	}
	for _, m := range families[metric].GetMetric() {
		return m.GetCounter().GetValue(), nil
	}
	return math.NaN(), fmt.Errorf("read metrics: no %s", metric)
}

const (
	// restInterval is over how long it is looked whether a process is at rest.
	restInterval = 500 * time.Millisecond
	// busy is the share of a core that an API server, or Tollgate, uses at rest, or somewhat more.
	busy = 0.15
)

// rested returns when processes have done what a change of policies or webhooks, or the deletion of pods,
// has set off.
func rested(ctx context.Context, pids ...int) error {
	var before time.Duration
	return untilEvery(ctx, restInterval, "all is at rest", func(context.Context) error {
		var now time.Duration
		for _, pid := range pids {
			used, err := report.CPUTime(pid)
			if err != nil {
				return err
			}
			now += used
		}
		used := now - before
		before = now
		if used.Seconds() > busy*restInterval.Seconds() {
			return fmt.Errorf("%s of CPU time in %s", used, restInterval)
		}
		return nil
	})
}

// until returns when a step is done.
func until(ctx context.Context, what string, done func(context.Context) error) error {
	return untilEvery(ctx, interval, what, done)
}

// untilEvery looks every so often.
func untilEvery(ctx context.Context, every time.Duration, what string, done func(context.Context) error) error {
	last := errors.New("not tried")
	err := wait.PollUntilContextTimeout(ctx, every, patience, true, func(ctx context.Context) (bool, error) {
		last = done(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s: %w: %w", what, err, last)
	}
	return nil
}
