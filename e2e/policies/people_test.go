package policies

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tollgate-dev/tollgate/e2e/install"
)

// person is somebody who uses the API, and what the API server warned them of.
type person struct {
	kubernetes.Interface

	name   string
	groups []string
	config *rest.Config
	heard  *warnings
}

func newPerson(t *testing.T, config *rest.Config) *person {
	t.Helper()
	p := &person{name: config.Impersonate.UserName, groups: config.Impersonate.Groups, config: config, heard: &warnings{}}
	config.WarningHandler = p.heard
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	p.Interface = client
	return p
}

// admin is the administrator, of the group system:masters.
func admin(t *testing.T) *person {
	t.Helper()
	return newPerson(t, shared.RESTConfig())
}

// tenant is a user whom RBAC lets do everything but tolerate and taint.
func tenant(t *testing.T, name string, groups ...string) *person {
	t.Helper()
	return newPerson(t, shared.As(name, append(groups, tenants)...))
}

// serviceAccount is a ServiceAccount that RBAC lets do what it lets a tenant do.
func serviceAccount(t *testing.T, namespace, name string) *person {
	t.Helper()
	return tenant(t, "system:serviceaccount:"+namespace+":"+name, "system:serviceaccounts", "system:serviceaccounts:"+namespace)
}

// kubelet has the credentials of a node, and nothing beyond.
func kubelet(t *testing.T, node string) *person {
	t.Helper()
	return newPerson(t, shared.As("system:node:"+node, "system:nodes"))
}

// scheduler is the user that kube-scheduler is.
func scheduler(t *testing.T) *person {
	t.Helper()
	return newPerson(t, shared.As("system:kube-scheduler"))
}

// resource returns a client of a resource; the namespace is empty for what has none.
func (p *person) resource(t *testing.T, gvr schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(p.config)
	require.NoError(t, err)
	if namespace == "" {
		return client.Resource(gvr)
	}
	return client.Resource(gvr).Namespace(namespace)
}

// kubectl runs kubectl and returns what it prints, warnings included.
func (p *person) kubectl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	if p.name != "" {
		args = append(args, "--as="+p.name)
		for _, group := range p.groups {
			args = append(args, "--as-group="+group)
		}
	}
	out, err := install.Kubectl(afterwards(t), shared, args...)
	return string(out), err
}

// mustKubectl runs kubectl as the administrator; it must succeed.
func mustKubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := admin(t).kubectl(t, args...)
	require.NoError(t, err, "kubectl %v: %s", args, out)
	return out
}

// warnings keeps what the API server warns a client of.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

// take returns what came since it was called last.
func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	texts := w.texts
	w.texts = nil
	return texts
}

// allow gives somebody a verb on taints of Tollgate by RBAC, for the length of the
// test; keys are taint keys, and none is all of them.
func allow(t *testing.T, verb string, subject rbacv1.Subject, keys ...string) {
	t.Helper()
	ctx, client := t.Context(), admin(t).RbacV1()
	role, err := client.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-" + verb + "-"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"tollgate.dev"}, Resources: []string{"taints"}, ResourceNames: keys, Verbs: []string{verb},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	binding, err := client.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		Subjects:   []rbacv1.Subject{subject},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := afterwards(t)
		require.NoError(t, client.ClusterRoleBindings().Delete(ctx, binding.Name, metav1.DeleteOptions{}))
		require.NoError(t, client.ClusterRoles().Delete(ctx, role.Name, metav1.DeleteOptions{}))
	})
}

// userNamed is a subject of RBAC and of policies.
func userNamed(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}
}

// afterwards returns a context for what a test does once it is over.
func afterwards(t *testing.T) context.Context {
	t.Helper()
	return context.WithoutCancel(t.Context())
}
