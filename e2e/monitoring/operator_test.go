package monitoring

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/e2e/install"
)

// operatorModule has the CustomResourceDefinitions of the Prometheus operator.
const operatorModule = "github.com/prometheus-operator/prometheus-operator@v0.85.0"

// The API server holds objects to the schemas of the operator, and names fields that they do not
// have.
func TestTheOperatorsKindsAreAccepted(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", operatorModule)
	cmd.Dir = t.TempDir() // no module's go.mod is asked
	out, err := cmd.Output()
	require.NoError(t, err, "%s", out)
	var module struct{ Dir string }
	require.NoError(t, json.Unmarshal(out, &module))
	for _, kind := range []string{"servicemonitors", "podmonitors", "prometheusrules"} {
		file := filepath.Join(module.Dir, "example", "prometheus-operator-crd", "monitoring.coreos.com_"+kind+".yaml")
		kubectl(t, "create", "-f", file)
		eventually(t, kind, func(ctx context.Context) error {
			out, err := install.Kubectl(ctx, east.ControlPlane, "get", kind, "-A")
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	for _, file := range []string{
		shipped("servicemonitor", "servicemonitor.yaml"), shipped("podmonitor", "podmonitor.yaml"), shipped("rules", "prometheusrule.yaml"),
	} {
		kubectl(t, "create", "--validate=strict", "-f", file)
	}
	out, err = install.Kubectl(t.Context(), east.ControlPlane, "-n", namespace, "get", "servicemonitor/tollgate", "podmonitor/tollgate", "prometheusrule/tollgate", "-o", "name")
	require.NoError(t, err, "%s", out)
}

func kubectl(t *testing.T, args ...string) {
	t.Helper()
	out, err := install.Kubectl(t.Context(), east.ControlPlane, args...)
	require.NoError(t, err, "%s", out)
}
