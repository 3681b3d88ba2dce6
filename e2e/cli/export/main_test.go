package export

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
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

var (
	shared   *controlplane.ControlPlane
	programs binaries.Binaries
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard))) // what clients log here says nothing about Tollgate
	options := controlplane.Options{Nodes: 3, ExtraArgs: map[string][]string{
		controlplane.APIServer: {"--feature-gates=TaintTolerationComparisonOperators=true"},
	}}
	return suite.Run(m, "export", options, func(ctx context.Context, cp *controlplane.ControlPlane) (func(), error) {
		shared = cp
		var err error
		if programs, err = suite.Binaries(ctx); err != nil {
			return nil, err
		}
		return nil, errors.Join(programs.BuildTollgate(ctx), allow(ctx, cp))
	})
}

// tenants is the group that everybody is in who is no administrator.
const tenants = "e2e:tenants"

// allow lets tenants do whatever the API server has verbs for, and some of them tolerate or
// taint.
func allow(ctx context.Context, cp *controlplane.ControlPlane) error {
	client, err := kubernetes.NewForConfig(cp.RESTConfig())
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	taints := func(verb string, keys ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{"tollgate.dev"}, Resources: []string{"taints"}, ResourceNames: keys, Verbs: []string{verb}}
	}
	everything := rbacv1.PolicyRule{
		APIGroups: []string{rbacv1.APIGroupAll}, Resources: []string{rbacv1.ResourceAll},
		Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"},
	}
	subject := func(kind, name, namespace string) rbacv1.Subject {
		s := rbacv1.Subject{Kind: kind, Name: name, Namespace: namespace}
		if namespace == "" {
			s.APIGroup = rbacv1.GroupName
		}
		return s
	}
	var errs []error
	for name, grant := range map[string]struct {
		to   rbacv1.Subject
		rule rbacv1.PolicyRule
	}{
		tenants:    {subject(rbacv1.GroupKind, tenants, ""), everything},
		"e2e:jane": {subject(rbacv1.UserKind, "jane", ""), taints("tolerate", "dedicated", "example.com/a")},
		"e2e:jim":  {subject(rbacv1.UserKind, "jim", ""), taints("taint", "dedicated", "example.com/b")},
		"e2e:pods": {subject(rbacv1.ServiceAccountKind, "default", "team-a"), taints("tolerate", "other", "example.com/b")},
	} {
		_, err := client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{grant.rule},
		}, metav1.CreateOptions{})
		errs = append(errs, err)
		_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{grant.to},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		}, metav1.CreateOptions{})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
