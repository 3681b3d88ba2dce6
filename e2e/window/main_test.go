package window

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"testing"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/devices/auditlog"
	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

const (
	// account is the user that Tollgate is.
	account = "system:serviceaccount:tollgate-system:tollgate"

	// auditPolicy logs who makes pods leave, and how.
	auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [delete, deletecollection]
  resources: [{group: "", resources: [pods]}]
- level: Metadata
  verbs: [create]
  resources: [{group: "", resources: [pods/eviction]}]
- level: None
`
)

// shared is the control plane, on which both built-in controllers run, and in it
// Tollgate in mode Window.
var shared struct {
	cp       *controlplane.ControlPlane
	tollgate *install.Tollgate
	audit    auditlog.Log
}

func TestMain(m *testing.M) {
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard))) // what clients log here says nothing about Tollgate
	// TestMain has no *testing.T to take a context from.
	code, err := run(context.Background(), m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func run(ctx context.Context, m *testing.M) (code int, err error) {
	// The tests wait for windows to end, and need no processor for that.
	if err := flag.Set("test.parallel", "8"); err != nil {
		return 1, fmt.Errorf("set flag: %w", err)
	}
	dir, err := os.MkdirTemp("", "tollgate-audit-")
	if err != nil {
		return 1, fmt.Errorf("create directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	log, args, err := auditlog.New(dir, auditPolicy)
	if err != nil {
		return 1, err
	}
	shared.audit = log
	shared.cp, err = suite.Start(ctx, "window", controlplane.Options{
		Nodes: 5, Eviction: controlplane.EvictionBoth, ExtraArgs: map[string][]string{controlplane.APIServer: args},
	})
	if err != nil {
		return 1, err
	}
	defer func() {
		if stopErr := shared.cp.Stop(ctx); stopErr != nil {
			code, err = 1, errors.Join(err, stopErr)
		}
	}()
	if err := installTollgate(ctx); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

func installTollgate(ctx context.Context) error {
	programs, err := suite.Binaries(ctx)
	if err != nil {
		return err
	}
	if err := programs.BuildTollgate(ctx); err != nil {
		return err
	}
	shared.tollgate, err = install.Install(ctx, shared.cp, install.Options{Programs: programs, Patch: func(config map[string]any) {
		config["eviction"] = map[string]any{"mode": "Window"}
		// Who is started anew is given the lease by who ends. A leader that a busy machine
		// made lose it would say things twice.
		config["leaderElection"] = map[string]any{"leaseDuration": "60s", "renewDeadline": "45s", "retryPeriod": "500ms"}
	}})
	return err
}

// restart ends Tollgate and starts it in another mode.
func restart(ctx context.Context, mode string) error {
	if err := shared.tollgate.Terminate(ctx); err != nil {
		return err
	}
	text, err := os.ReadFile(shared.tollgate.ConfigPath)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	config := map[string]any{}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return fmt.Errorf("decode configuration: %w", err)
	}
	config["eviction"] = map[string]any{"mode": mode}
	if text, err = yaml.Marshal(config); err != nil {
		return fmt.Errorf("encode configuration: %w", err)
	}
	if err := os.WriteFile(shared.tollgate.ConfigPath, text, 0o600); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	return shared.tollgate.Start(ctx)
}

// restConfig is the access of the administrator; warnings go to who asks for them.
func restConfig(warnings rest.WarningHandler) *rest.Config {
	config := shared.cp.RESTConfig()
	config.WarningHandler = warnings
	return config
}
