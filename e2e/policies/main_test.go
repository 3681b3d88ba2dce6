package policies

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/devices/auditlog"
	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

var (
	shared   *controlplane.ControlPlane
	tollgate *install.Tollgate
	programs binaries.Binaries
	// audit is what the API server recorded of the writes that the tests look at.
	audit auditlog.Log
)

// auditPolicy makes the API server write only what the tests read.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [create, update, patch]
  resources: [{group: "", resources: [pods, nodes]}]
- level: None
`

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
	options := controlplane.Options{ExtraArgs: map[string][]string{
		// The older versions that clients still write, and that are not served by default.
		controlplane.APIServer: append(auditArgs,
			"--runtime-config=resource.k8s.io/v1beta2=true,resource.k8s.io/v1beta1=true,resource.k8s.io/v1alpha3=true"),
		controlplane.ControllerManager: {"--kube-api-qps=500", "--kube-api-burst=1000", "--node-monitor-period=500ms"},
	}}
	return suite.Run(m, "policies", options, installTollgate)
}

func installTollgate(ctx context.Context, cp *controlplane.ControlPlane) (func(), error) {
	shared = cp
	var err error
	if programs, err = suite.Binaries(ctx); err != nil {
		return nil, err
	}
	if err := errors.Join(programs.BuildTollgate(ctx), programs.BuildPlugin(ctx)); err != nil {
		return nil, err
	}
	if err := allowTenants(ctx, cp); err != nil {
		return nil, err
	}
	tollgate, err = install.Install(ctx, cp, install.Options{Programs: programs, Patch: func(config map[string]any) {
		// So that who is started after a crash does not wait long for the lease. What is
		// between the first two is how long one attempt may take.
		config["leaderElection"] = map[string]any{"leaseDuration": "8s", "renewDeadline": "3s", "retryPeriod": "500ms"}
		config["audit"] = map[string]any{"openReports": true}
	}})
	if err != nil {
		return nil, err
	}
	if err := install.Apply(ctx, cp, filepath.Join(programs.Root, "deploy", "components", "open-reports", "rights")); err != nil {
		return nil, err
	}
	return nil, install.ApplyCRD(ctx, cp, "github.com/openreports/reports-api", "config/crd/openreports.io_reports.yaml")
}

// tenants is the group that everybody is in who is no administrator.
const tenants = "e2e:tenants"

// allowTenants lets tenants do whatever the API server has verbs for. The verbs of
// Tollgate (tolerate, taint) are not among them.
func allowTenants(ctx context.Context, cp *controlplane.ControlPlane) error {
	client, err := kubernetes.NewForConfig(cp.RESTConfig())
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	_, roleErr := client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: tenants},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{rbacv1.APIGroupAll}, Resources: []string{rbacv1.ResourceAll},
			Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"},
		}},
	}, metav1.CreateOptions{})
	_, bindingErr := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: tenants},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: tenants}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: tenants},
	}, metav1.CreateOptions{})
	return errors.Join(roleErr, bindingErr)
}
