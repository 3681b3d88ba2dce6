package monitoring

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

const (
	// patience is far above what anything here takes.
	patience = 2 * time.Minute
	// interval is how often it is looked whether something has come about.
	interval = 200 * time.Millisecond
	// nodes is how many nodes each cluster has.
	nodes = 4
	// namespace is Tollgate's.
	namespace = "tollgate-system"
)

// cluster is a control plane with Tollgate. Its name is the value of the label cluster.
type cluster struct {
	*controlplane.ControlPlane

	name     string
	tollgate *install.Tollgate
}

var (
	// The same happens in both. One Prometheus has the metrics of both: it scrapes east, and the
	// Prometheus Agent of west writes to it.
	east, west     = &cluster{name: "east"}, &cluster{name: "west"}
	programs       binaries.Binaries
	scraper, agent *prometheus
)

func both() []*cluster { return []*cluster{east, west} }

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	program := os.Getenv("TOLLGATE_PROMETHEUS")
	if program == "" {
		fmt.Fprintln(os.Stderr, "not run: make test-monitoring builds the Prometheus that these tests need")
		return 0
	}
	return suite.Run(m, "monitoring", controlplane.Options{Nodes: nodes},
		func(ctx context.Context, cp *controlplane.ControlPlane) (func(), error) {
			east.ControlPlane = cp
			var running running
			if err := running.start(ctx, program); err != nil {
				running.stop()
				return nil, err
			}
			return running.stop, nil
		})
}

// running has what stops that which runs beside the control plane of east.
type running []func()

func (r *running) stop() {
	for _, stop := range slices.Backward(*r) {
		stop()
	}
}

// start starts west, Tollgate in both clusters, what scrapes them, and what there is to see.
func (r *running) start(ctx context.Context, program string) (err error) {
	if west.ControlPlane, err = suite.Start(ctx, "monitoring-west", controlplane.Options{Nodes: nodes}); err != nil {
		return err
	}
	*r = append(*r, func() { _ = west.Stop(context.WithoutCancel(ctx)) })
	if err := installTollgate(ctx); err != nil {
		return err
	}
	if scraper, err = startCentral(ctx, program); err != nil {
		return err
	}
	*r = append(*r, scraper.stop)
	if agent, err = startAgent(ctx, program, scraper); err != nil {
		return err
	}
	*r = append(*r, agent.stop)
	if err := each(ctx, func(ctx context.Context, c *cluster) error { return c.makeActivity(ctx) }); err != nil {
		return err
	}
	for _, c := range both() {
		stop, err := c.keepSpreading(ctx)
		if err != nil {
			return err
		}
		*r = append(*r, stop)
	}
	return nil
}

// each calls do for both clusters at once.
func each(ctx context.Context, do func(ctx context.Context, c *cluster) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range both() {
		group.Go(func() error {
			if err := do(ctx, c); err != nil {
				return fmt.Errorf("cluster %s: %w", c.name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// installTollgate installs Tollgate in both clusters, with metrics as they are served in a
// cluster, and the rights to scrape them.
func installTollgate(ctx context.Context) (err error) {
	if programs, err = suite.Binaries(ctx); err != nil {
		return err
	}
	if err := programs.BuildTollgate(ctx); err != nil {
		return err
	}
	return each(ctx, func(ctx context.Context, c *cluster) (err error) {
		c.tollgate, err = install.Install(ctx, c.ControlPlane, install.Options{Programs: programs, Patch: func(config map[string]any) {
			metrics, ok := config["metrics"].(map[string]any)
			if ok {
				metrics["authorization"] = "RBAC"
			}
		}})
		if err != nil {
			return err
		}
		return c.apply(ctx, shipped("endpoint", "rbac.yaml"))
	})
}

// shipped is the path of a file of deploy/monitoring.
func shipped(parts ...string) string {
	return filepath.Join(append([]string{programs.Root, "deploy", "monitoring"}, parts...)...)
}

func (c *cluster) apply(ctx context.Context, file string) error {
	if out, err := install.Kubectl(ctx, c.ControlPlane, "apply", "-f", file); err != nil {
		return fmt.Errorf("apply %s: %w\n%s", file, err, out)
	}
	return nil
}

func (c *cluster) client() (kubernetes.Interface, error) {
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return client, nil
}

// poll returns when check does without an error, and the last one if that takes too long.
func poll(ctx context.Context, what string, check func(ctx context.Context) error) error {
	last := errors.New("never looked")
	err := wait.PollUntilContextTimeout(ctx, interval, patience, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w: %w", what, err, last)
	}
	return nil
}

// secret returns a value of a Secret in Tollgate's namespace, once it is there.
func (c *cluster) secret(ctx context.Context, name, key string) (value []byte, err error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	err = poll(ctx, "secret "+name, func(ctx context.Context) error {
		var s *corev1.Secret
		s, err := client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read secret: %w", err)
		}
		if value = s.Data[key]; len(value) == 0 {
			return fmt.Errorf("no %s in it", key)
		}
		return nil
	})
	return value, err
}
