package conditions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/devices/auditlog"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

// Who runs the commands.
const (
	// boss may do everything.
	boss = "boss"
	// nobody may do nothing but ask what is served.
	nobody = "nobody"
	// tenant may do everything with what is in the namespace team.
	tenant = "tenant"
)

var (
	shared   *controlplane.ControlPlane
	programs binaries.Binaries
	audit    auditlog.Log
	// team is the namespace of the tenant.
	team string
	// kubeconfigs are those of the users.
	kubeconfigs = map[string]string{}
)

// auditPolicy makes the API server write what the users ask for.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  nonResourceURLs: ["*"]
- level: Metadata
  users: [kubernetes-admin]
- level: None
`

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard))) // what clients log here says nothing about Tollgate
	dir, err := os.MkdirTemp("", "tollgate-conditions-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var args []string
	if audit, args, err = auditlog.New(dir, auditPolicy); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	options := controlplane.Options{Nodes: controlplane.NoNodes, ExtraArgs: map[string][]string{controlplane.APIServer: args}}
	return suite.Run(m, "cli-conditions", options, func(ctx context.Context, cp *controlplane.ControlPlane) (func(), error) {
		shared = cp
		if programs, err = suite.Binaries(ctx); err != nil {
			return nil, err
		}
		return nil, errors.Join(programs.BuildTollgate(ctx), programs.BuildPlugin(ctx), allow(ctx, cp), writeKubeconfigs(dir))
	})
}

// writeKubeconfigs gives each user a kubeconfig, by which the administrator acts as the user.
func writeKubeconfigs(dir string) error {
	for user, groups := range map[string][]string{boss: {"system:masters"}, nobody: nil, tenant: nil} {
		config, err := clientcmd.LoadFromFile(shared.Kubeconfig())
		if err != nil {
			return fmt.Errorf("read kubeconfig: %w", err)
		}
		for name := range config.AuthInfos {
			auth := config.AuthInfos[name].DeepCopy()
			auth.Impersonate, auth.ImpersonateGroups = user, slices.Concat(groups, []string{"system:authenticated"})
			config.AuthInfos = map[string]*clientcmdapi.AuthInfo{name: auth}
		}
		kubeconfigs[user] = dir + "/" + user + ".kubeconfig"
		if err := clientcmd.WriteToFile(*config, kubeconfigs[user]); err != nil {
			return fmt.Errorf("write kubeconfig of %s: %w", user, err)
		}
	}
	return nil
}

// allow gives the tenant a namespace.
func allow(ctx context.Context, cp *controlplane.ControlPlane) error {
	client, err := kubernetes.NewForConfig(cp.RESTConfig())
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	if team, err = cp.CreateNamespace(ctx, "team-"); err != nil {
		return err
	}
	_, err = client.RbacV1().RoleBindings(team).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: tenant}, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: tenant}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("let %s into namespace %s: %w", tenant, team, err)
	}
	return nil
}
