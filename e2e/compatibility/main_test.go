package compatibility

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

var (
	shared   *controlplane.ControlPlane
	tollgate *install.Tollgate
	programs binaries.Binaries
	// minor is that of the version of Kubernetes: 37 of 1.37.1.
	minor int
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard))) // what clients log here says nothing about Tollgate
	// Several versions may be tried at once.
	name := "compatibility" + os.Getenv(binaries.VersionVariable)
	os.Exit(suite.Run(m, name, controlplane.Options{Nodes: 8}, installTollgate))
}

func installTollgate(ctx context.Context, cp *controlplane.ControlPlane) (func(), error) {
	shared = cp
	var err error
	if programs, err = suite.Binaries(ctx); err != nil {
		return nil, err
	}
	if minor, err = strconv.Atoi(strings.Split(programs.Kubernetes, ".")[1]); err != nil {
		return nil, fmt.Errorf("read version %s of Kubernetes: %w", programs.Kubernetes, err)
	}
	if err := errors.Join(programs.BuildTollgate(ctx), programs.BuildPlugin(ctx)); err != nil {
		return nil, err
	}
	if err := allowTenants(ctx, cp); err != nil {
		return nil, err
	}
	tollgate, err = install.Install(ctx, cp, install.Options{Programs: programs, Patch: quickLease})
	return nil, err
}

// quickLease lets who is started after a crash not wait long for the lease. What is between
// the first two is how long one attempt may take.
func quickLease(config map[string]any) {
	config["leaderElection"] = map[string]any{"leaseDuration": "8s", "renewDeadline": "3s", "retryPeriod": "500ms"}
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
			Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"},
		}},
	}, metav1.CreateOptions{})
	_, bindingErr := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: tenants},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: tenants}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: tenants},
	}, metav1.CreateOptions{})
	return errors.Join(roleErr, bindingErr)
}
