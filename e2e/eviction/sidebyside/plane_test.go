package sidebyside

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/faultproxy"
	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

// nodeCount is how many nodes all stories need together, and one more for when both
// evict.
const nodeCount = 12

// patience is far above what anything here takes.
const patience = 2 * time.Minute

// plane is a control plane with one evictor.
type plane struct {
	cp     *controlplane.ControlPlane
	client kubernetes.Interface
	// proxy is between the evictor and the API server.
	proxy *faultproxy.Proxy
	// restart ends the evictor as a crash would, and starts it again.
	restart func(ctx context.Context) error

	mu sync.Mutex
	// taken is how many of the nodes the stories have.
	taken int
	// refusals are the requests of the evictor to delete pods that were refused, by the
	// namespaces of the pods.
	refusals map[string]int
}

func (p *plane) record(w faultproxy.Write) {
	if w.Verb != "delete" || w.Resource != "pods" || w.Status < http.StatusBadRequest {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusals[w.Namespace]++
}

// refused is how often the API server has refused to delete a pod of a namespace.
func (p *plane) refused(namespace string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refusals[namespace]
}

// take returns a node for a story.
func (p *plane) take() (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken == nodeCount-1 {
		return "", fmt.Errorf("all %d nodes are taken", p.taken)
	}
	p.taken++
	return controlplane.NodeName(p.taken), nil
}

// startPlane starts a control plane and its evictor.
func startPlane(t *testing.T, evictor controlplane.Eviction) *plane {
	t.Helper()
	cp, err := suite.Start(t.Context(), "faults-"+string(evictor), controlplane.Options{Nodes: nodeCount, Eviction: evictor})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cp.Stop(context.WithoutCancel(t.Context()))) })
	p := &plane{cp: cp, refusals: map[string]int{}}
	if evictor == controlplane.EvictionTollgate {
		p.installTollgate(t)
	} else {
		p.moveBuiltin(t)
	}
	config := cp.RESTConfig()
	config.WarningHandler = rest.NoWarnings{}
	p.client, err = kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return p
}

// moveBuiltin puts the controller manager behind the proxy. It may send as many requests
// as Tollgate: what is compared is how they deal with faults.
func (p *plane) moveBuiltin(t *testing.T) {
	t.Helper()
	p.startProxy(t, p.tokenOfBuiltin(t))
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, p.proxy.WriteKubeconfig(path))
	err := p.cp.RestartWith(t.Context(), controlplane.ControllerManager,
		"--kubeconfig="+path, "--kube-api-qps=400", "--kube-api-burst=800")
	require.NoError(t, err)
	p.restart = func(ctx context.Context) error { return p.cp.Restart(ctx, controlplane.ControllerManager) }
}

// tokenOfBuiltin is access for the controller manager by a token, instead of its
// certificate: a proxy cannot pass that on. Its controllers have tokens of their own.
func (p *plane) tokenOfBuiltin(t *testing.T) *rest.Config {
	t.Helper()
	const namespace, name = metav1.NamespaceSystem, "controller-manager"
	config := p.cp.RESTConfig()
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err = client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	access := rest.AnonymousClientConfig(config)
	access.BearerToken = token.Status.Token
	return access
}

// installTollgate installs Tollgate behind the proxy. It is alone, as the controller
// manager is, and need not wait for its lease.
func (p *plane) installTollgate(t *testing.T) {
	t.Helper()
	programs, err := suite.Binaries(t.Context())
	require.NoError(t, err)
	require.NoError(t, programs.BuildTollgate(t.Context()))
	path := filepath.Join(p.cp.Dir(), "tollgate", install.Name+".kubeconfig")
	tollgate, err := install.Install(t.Context(), p.cp, install.Options{Programs: programs, Patch: func(config map[string]any) {
		client, err := clientcmd.BuildConfigFromFlags("", path)
		require.NoError(t, err)
		p.startProxy(t, client)
		require.NoError(t, p.proxy.WriteKubeconfig(path))
		config["leaderElection"] = map[string]any{"enabled": false}
	}})
	require.NoError(t, err)
	p.restart = func(ctx context.Context) error {
		if err := tollgate.Kill(ctx); err != nil {
			return err
		}
		return tollgate.Start(ctx)
	}
}

func (p *plane) startProxy(t *testing.T, client *rest.Config) {
	t.Helper()
	var err error
	p.proxy, err = faultproxy.Start(faultproxy.Options{Client: client, Record: p.record})
	require.NoError(t, err)
	t.Cleanup(p.proxy.Close)
}
