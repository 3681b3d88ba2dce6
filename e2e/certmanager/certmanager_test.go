package certmanager

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/filelock"
	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/e2e/process"
)

// certManager is the namespace that cert-manager is usually in.
const certManager = "cert-manager"

// The programs of cert-manager, by the names of their processes and ServiceAccounts.
const (
	controller = "cert-manager"
	cainjector = "cert-manager-cainjector"
)

// installCertManager builds cert-manager, applies its CRDs, and starts it.
func installCertManager(ctx context.Context) error {
	if err := buildCertManager(ctx); err != nil {
		return err
	}
	if err := applyCRDs(ctx); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(shared.RESTConfig())
	if err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: certManager}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	for _, name := range []string{controller, cainjector} {
		if err := authorize(ctx, client, name); err != nil {
			return err
		}
		if err := startCertManager(name); err != nil {
			return err
		}
	}
	return nil
}

func certManagerProgram() string { return filepath.Join(programs.Root, "bin", "certmanager") }

func buildCertManager(ctx context.Context) error {
	release, err := filelock.Acquire(ctx, filepath.Join(programs.Root, "bin"))
	if err != nil {
		return err
	}
	defer release()
	build := exec.CommandContext(ctx, "go", "build", "-o", certManagerProgram(), "./cmd/certmanager")
	build.Dir = filepath.Join(programs.Root, "e2e")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build cert-manager: %w\n%s", err, out)
	}
	return nil
}

// applyCRDs applies those that come with the module.
func applyCRDs(ctx context.Context) error {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/cert-manager/cert-manager")
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("find cert-manager: %w", err)
	}
	crds := filepath.Join(strings.TrimSpace(string(out)), "deploy", "crds")
	var files, names []string
	for _, name := range []string{"certificaterequests", "certificates", "clusterissuers", "issuers"} {
		files = append(files, "-f", filepath.Join(crds, "cert-manager.io_"+name+".yaml"))
		names = append(names, "crd/"+name+".cert-manager.io")
	}
	// They are too large for the annotation of a client-side apply.
	if out, err := install.Kubectl(ctx, shared, append([]string{"apply", "--server-side"}, files...)...); err != nil {
		return fmt.Errorf("apply CRDs of cert-manager: %w\n%s", err, out)
	}
	wait := append([]string{"wait", "--for=condition=Established", "--timeout=60s"}, names...)
	if out, err := install.Kubectl(ctx, shared, wait...); err != nil {
		return fmt.Errorf("wait for CRDs of cert-manager: %w\n%s", err, out)
	}
	return nil
}

// roleOf returns what a program may do. cainjector has the rights that its chart gives
// it, since Tollgate's objects are protected from others; for cert-manager itself
// "everything" is nothing that Tollgate has to do with.
func roleOf(name string) *rbacv1.ClusterRole {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if name != cainjector {
		role.Rules = []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
		return role
	}
	read := []string{"get", "list", "watch"}
	role.Rules = []rbacv1.PolicyRule{
		{APIGroups: []string{"cert-manager.io"}, Resources: []string{"certificates"}, Verbs: read},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: read},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"get", "create", "update", "patch"}},
		{
			APIGroups: []string{"admissionregistration.k8s.io"},
			Resources: []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"},
			Verbs:     append(read, "update", "patch"),
		},
	}
	return role
}

// authorize gives a program a ServiceAccount, its rights and a kubeconfig.
func authorize(ctx context.Context, client kubernetes.Interface, name string) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().ServiceAccounts(certManager).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create service account %s: %w", name, err)
	}
	if _, err := client.RbacV1().ClusterRoles().Create(ctx, roleOf(name), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create role of %s: %w", name, err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: certManager, Name: name}},
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("bind service account %s: %w", name, err)
	}
	token, err := client.CoreV1().ServiceAccounts(certManager).CreateToken(ctx, name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(24 * time.Hour / time.Second))},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create token for %s: %w", name, err)
	}
	config := shared.RESTConfig()
	return controlplane.WriteKubeconfig(kubeconfigOf(name), config.Host, config.CAData, clientcmdapi.AuthInfo{Token: token.Status.Token})
}

func kubeconfigOf(name string) string { return filepath.Join(shared.Dir(), name+".kubeconfig") }

// startCertManager starts one of its programs, which must not be running.
func startCertManager(name string) error {
	command := map[string]string{controller: "controller", cainjector: "cainjector"}[name]
	if command == "" {
		return errors.New("cert-manager has no program " + name)
	}
	p, err := process.Start(process.Spec{
		Name: name,
		Path: certManagerProgram(),
		Args: []string{command, "--kubeconfig", kubeconfigOf(name)},
		Log:  shared.LogPath(name),
	})
	if err != nil {
		return err
	}
	return shared.Adopt(p)
}
