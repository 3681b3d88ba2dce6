package callers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

// What the API server calls itself towards its webhooks, and the ServiceAccounts that may
// attest for which API groups they send reviews.
const (
	apiServer = "kube-apiserver-webhook-client"
	everyone  = "attests-all"
	forApps   = "attests-apps"
)

var (
	shared   *controlplane.ControlPlane
	tollgate *install.Tollgate
	// trusted signs for the API server's webhook client.
	trusted *authority
	client  kubernetes.Interface
	// traces receives the spans of the API server and of Tollgate.
	traces *collector
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard)))
	dir, err := os.MkdirTemp("", "tollgate-callers-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	config, err := writeCredentials(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// TestMain has no *testing.T to take a context from.
	if traces, err = startCollector(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer traces.server.Stop()
	tracing, err := traces.apiServerArgs(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	options := controlplane.Options{Nodes: 1, ExtraArgs: map[string][]string{controlplane.APIServer: append(tracing,
		"--admission-control-config-file="+config,
		"--feature-gates=APIServerWebhookAuthenticationToken=true",
	)}}
	return suite.Run(m, "callers", options, func(ctx context.Context, cp *controlplane.ControlPlane) (func(), error) {
		return nil, installTollgate(ctx, cp, filepath.Join(dir, "ca.crt"))
	})
}

// writeCredentials writes what an administrator gives the API server to show, and returns
// the configuration that says so.
func writeCredentials(dir string) (string, error) {
	var err error
	if trusted, err = newAuthority(); err != nil {
		return "", err
	}
	certificate, key, err := trusted.issue(apiServer, lasting)
	if err != nil {
		return "", err
	}
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.AuthInfos["*"] = &clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
	plugin := "{apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: " +
		filepath.Join(dir, "webhooks.kubeconfig") + "}"
	admission := filepath.Join(dir, "admission.yaml")
	return admission, errors.Join(
		clientcmd.WriteToFile(*kubeconfig, filepath.Join(dir, "webhooks.kubeconfig")),
		os.WriteFile(filepath.Join(dir, "ca.crt"), trusted.pem, 0o600),
		os.WriteFile(admission, []byte(`apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- {name: MutatingAdmissionWebhook, configuration: `+plugin+`}
- {name: ValidatingAdmissionWebhook, configuration: `+plugin+`}
`), 0o600),
	)
}

func installTollgate(ctx context.Context, cp *controlplane.ControlPlane, ca string) error {
	shared = cp
	programs, err := suite.Binaries(ctx)
	if err != nil {
		return err
	}
	if err := programs.BuildTollgate(ctx); err != nil {
		return err
	}
	if client, err = kubernetes.NewForConfig(cp.RESTConfig()); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	if err := errors.Join(allowAttesting(ctx, everyone, "*"), allowAttesting(ctx, forApps, "apps")); err != nil {
		return err
	}
	tollgate, err = install.Install(ctx, cp, install.Options{Programs: programs, Patch: func(config map[string]any) {
		config["tracing"] = map[string]any{"enabled": true, "endpoint": traces.address, "samplingRatePerMillion": 1000000}
		webhook, _ := config["webhook"].(map[string]any)
		webhook["authentication"] = map[string]any{
			"mode":     "Required",
			"clientCA": map[string]any{"file": ca, "commonNames": []string{apiServer}},
		}
	}})
	return err
}

// allowAttesting makes a ServiceAccount that may have tokens for reviews of an API group.
func allowAttesting(ctx context.Context, name, group string) error {
	_, accountErr := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	_, roleErr := client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"admissionReviewAPIGroups"},
			ResourceNames: []string{group}, Verbs: []string{"attest"},
		}},
	}, metav1.CreateOptions{})
	_, bindingErr := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: name}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	}, metav1.CreateOptions{})
	return errors.Join(accountErr, roleErr, bindingErr)
}
