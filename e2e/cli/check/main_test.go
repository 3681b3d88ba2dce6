package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard))) // what clients log here says nothing about Tollgate
	os.Exit(suite.Run(m, "cli-check", controlplane.Options{}, installTollgate))
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
	tollgate, err = install.Install(ctx, cp, install.Options{Programs: programs})
	return nil, err
}

// tenants is the group that everybody is in who creates objects here.
const tenants = "e2e:tenants"

// allowTenants lets tenants do whatever the API server has verbs for, and those who are
// bound to tolerates, tolerate and taint some keys.
func allowTenants(ctx context.Context, cp *controlplane.ControlPlane) error {
	client, err := kubernetes.NewForConfig(cp.RESTConfig())
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	var faults []error
	for name, c := range map[string]struct {
		rule     rbacv1.PolicyRule
		subjects []rbacv1.Subject
	}{
		tenants: {
			rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"}},
			[]rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: tenants}},
		},
		"tolerates": {
			rbacv1.PolicyRule{APIGroups: []string{"tollgate.dev"}, Resources: []string{"taints"}, ResourceNames: []string{"dedicated", "example.com/spot"}, Verbs: []string{"tolerate", "taint"}},
			[]rbacv1.Subject{
				{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "rita"},
				{Kind: rbacv1.ServiceAccountKind, Namespace: "iron", Name: "runner"},
			},
		},
	} {
		_, roleErr := client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{c.rule},
		}, metav1.CreateOptions{})
		_, bindingErr := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: c.subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		}, metav1.CreateOptions{})
		faults = append(faults, roleErr, bindingErr)
	}
	return errors.Join(faults...)
}
