package monitoring

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

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
	// namespace is Tollgate's.
	namespace = "tollgate-system"
)

var (
	shared   *controlplane.ControlPlane
	tollgate *install.Tollgate
	programs binaries.Binaries
	scraper  *prometheus
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	program := os.Getenv("TOLLGATE_PROMETHEUS")
	if program == "" {
		fmt.Fprintln(os.Stderr, "not run: make test-monitoring builds the Prometheus that these tests need")
		return 0
	}
	return suite.Run(m, "monitoring", controlplane.Options{Nodes: 4},
		func(ctx context.Context, cp *controlplane.ControlPlane) (func(), error) {
			shared = cp
			if err := installTollgate(ctx); err != nil {
				return nil, err
			}
			var err error
			scraper, err = startPrometheus(ctx, program)
			if err != nil {
				return nil, err
			}
			if err := makeActivity(ctx); err != nil {
				return nil, err
			}
			stopSpreading, err := keepSpreading(ctx)
			if err != nil {
				return nil, err
			}
			return func() { stopSpreading(); scraper.stop() }, nil //nolint:contextcheck // ctx may be over by then
		})
}

// installTollgate installs Tollgate with metrics as they are served in a cluster, and the
// rights to scrape them.
func installTollgate(ctx context.Context) error {
	var err error
	if programs, err = suite.Binaries(ctx); err != nil {
		return err
	}
	if err := programs.BuildTollgate(ctx); err != nil {
		return err
	}
	tollgate, err = install.Install(ctx, shared, install.Options{Programs: programs, Patch: func(config map[string]any) {
		metrics, ok := config["metrics"].(map[string]any)
		if ok {
			metrics["authorization"] = "RBAC"
		}
	}})
	if err != nil {
		return err
	}
	return apply(ctx, shipped("endpoint", "rbac.yaml"))
}

// shipped is the path of a file of deploy/monitoring.
func shipped(parts ...string) string {
	return filepath.Join(append([]string{programs.Root, "deploy", "monitoring"}, parts...)...)
}

func apply(ctx context.Context, file string) error {
	if out, err := install.Kubectl(ctx, shared, "apply", "-f", file); err != nil {
		return fmt.Errorf("apply %s: %w\n%s", file, err, out)
	}
	return nil
}

func newClient() (kubernetes.Interface, error) {
	client, err := kubernetes.NewForConfig(shared.RESTConfig())
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
func secret(ctx context.Context, name, key string) (value []byte, err error) {
	client, err := newClient()
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
