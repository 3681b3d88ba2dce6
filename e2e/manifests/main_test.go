package manifests

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

const (
	// patience is far above what anything here takes.
	patience = time.Minute
	// installed is the overlay that TestMain applies. Its webhooks call Tollgate, of which no replica runs.
	installed = "manual"
)

var (
	shared   *controlplane.ControlPlane
	programs binaries.Binaries
	// policyFiles is the folder from which the API server reads policies.
	policyFiles string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tollgate-manifests-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	policyFiles = filepath.Join(dir, "policies")
	config := filepath.Join(dir, "admission.yaml")
	if err := writeAdmissionConfig(config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	options := controlplane.Options{Nodes: 3, ExtraArgs: map[string][]string{
		controlplane.APIServer: {"--admission-control-config-file=" + config},
	}}
	return suite.Run(m, "manifests", options, func(ctx context.Context, cp *controlplane.ControlPlane) (func(), error) {
		shared = cp
		var err error
		if programs, err = suite.Binaries(ctx); err != nil {
			return nil, err
		}
		return nil, install.Apply(ctx, cp, overlay(installed))
	})
}

func writeAdmissionConfig(path string) error {
	if err := os.Mkdir(policyFiles, 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, fmt.Appendf(nil, `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionPolicy
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ValidatingAdmissionPolicyConfiguration
    staticManifestsDir: %s
`, policyFiles), 0o600)
}

// overlay is the folder of an overlay.
func overlay(name string) string {
	return filepath.Join(programs.Root, "deploy", "overlays", name)
}
