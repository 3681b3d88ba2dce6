package rbac

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/devices/auditlog"
	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

const (
	// accounts begins the users that the components are, webhookAccount and evictorAccount.
	accounts       = "system:serviceaccount:tollgate-system:"
	webhookAccount = "tollgate-webhook"
	evictorAccount = "tollgate"

	// auditPolicy has all written down that Tollgate asks for.
	auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ["` + accounts + webhookAccount + `", "` + accounts + evictorAccount + `"]
- level: None
`
)

var (
	shared   *controlplane.ControlPlane
	webhook  *install.Tollgate
	evictor  *install.Tollgate
	programs binaries.Binaries
	audit    auditlog.Log
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard))) // what clients log here says nothing about Tollgate
	dir, err := os.MkdirTemp("", "tollgate-audit-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	log, auditArgs, err := auditlog.New(dir, auditPolicy)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	audit = log
	// PodGroups, and claims that are made for them.
	const gates = "--feature-gates=GenericWorkload=true,DRAWorkloadResourceClaims=true"
	return suite.Run(m, "rbac", controlplane.Options{Nodes: 4, ExtraArgs: map[string][]string{
		controlplane.APIServer:         append(auditArgs, gates, "--runtime-config=scheduling.k8s.io/v1beta1=true"),
		controlplane.ControllerManager: {gates},
		controlplane.Scheduler:         {gates},
	}}, installTollgate)
}

func installTollgate(ctx context.Context, cp *controlplane.ControlPlane) (func(), error) {
	shared = cp
	var err error
	if programs, err = suite.Binaries(ctx); err != nil {
		return nil, err
	}
	if err := programs.BuildTollgate(ctx); err != nil {
		return nil, err
	}
	if out, err := install.Kubectl(ctx, cp, "apply", "-f", "testdata/tenants.yaml"); err != nil {
		return nil, fmt.Errorf("apply testdata/tenants.yaml: %w\n%s", err, out)
	}
	if err := install.ApplyCRD(ctx, cp, "github.com/openreports/reports-api", "config/crd/openreports.io_reports.yaml"); err != nil {
		return nil, err
	}
	webhook, err = install.Install(ctx, cp, install.Options{
		Name: "webhook", Programs: programs, Patch: configure, Account: webhookAccount,
		Args:   []string{"--components=webhook", "--evictor-user=" + accounts + evictorAccount},
		Rights: "testdata/apart/rights", Webhooks: "testdata/apart/webhooks",
	})
	if err != nil {
		return nil, err
	}
	evictor, err = install.Install(ctx, cp, install.Options{
		Name: "evictor", Programs: programs, Replica: true, Patch: configure, Account: evictorAccount, Args: []string{"--components=evictor"},
	})
	return nil, err
}

// configure has certificates renewed during the tests. The lease is given back by whoever
// ends, so it may be long: who loses it asks anew for what was refused.
func configure(config map[string]any) {
	config["leaderElection"] = map[string]any{"leaseDuration": "60s", "renewDeadline": "45s", "retryPeriod": "500ms"}
	config["audit"] = map[string]any{"openReports": true}
	config["certificates"] = map[string]any{"servingDuration": "30s", "caDuration": "1h"}
}

// restart ends both components, does something, and starts them with another configuration.
func restart(ctx context.Context, meanwhile func() error, change func(config map[string]any)) error {
	components := []*install.Tollgate{webhook, evictor}
	for _, component := range components {
		if err := component.Terminate(ctx); err != nil {
			return err
		}
	}
	errs := []error{meanwhile()}
	for _, component := range components {
		errs = append(errs, reconfigure(component, change), component.Start(ctx))
	}
	return errors.Join(errs...)
}

// reconfigure changes the configuration that a component starts with.
func reconfigure(component *install.Tollgate, change func(config map[string]any)) error {
	text, err := os.ReadFile(component.ConfigPath)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	config := map[string]any{}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return fmt.Errorf("decode configuration: %w", err)
	}
	change(config)
	if text, err = yaml.Marshal(config); err != nil {
		return fmt.Errorf("encode configuration: %w", err)
	}
	if err := os.WriteFile(component.ConfigPath, text, 0o600); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	return nil
}
