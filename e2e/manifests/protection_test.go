package manifests

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/tollgate-dev/tollgate/e2e/install"
)

var (
	validatingWebhooks = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"}
	mutatingWebhooks   = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}
	policies           = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"}
	bindings           = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"}
	definitions        = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	clusterRoles       = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
	clusterBindings    = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"}
	namespaces         = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// protectedObjects are what the policies are about.
var protectedObjects = map[string]struct {
	resource schema.GroupVersionResource
	name     string
}{
	"validating webhooks":  {validatingWebhooks, "tollgate"},
	"mutating webhooks":    {mutatingWebhooks, "tollgate"},
	"the namespace":        {namespaces, "tollgate-system"},
	"a definition":         {definitions, "tolerationpolicies.tollgate.dev"},
	"the rights":           {clusterRoles, "tollgate"},
	"who has them":         {clusterBindings, "tollgate"},
	"rights for the CA":    {clusterRoles, "tollgate-certificates"},
	"what is asked for":    {clusterRoles, "tollgate-administrator"},
	"who sees policies":    {clusterRoles, "tollgate-view"},
	"who writes the CA in": {clusterBindings, "tollgate-certificates"},
}

// user may change and delete whatever is protected as far as RBAC is concerned, and has
// the roles.
func user(t *testing.T, name string, roles ...string) dynamic.Interface {
	t.Helper()
	client := clientOf(t, shared.RESTConfig()).RbacV1()
	_, err := client.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "test-" + name},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"admissionregistration.k8s.io", "apiextensions.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"*"}},
			{APIGroups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"clusterroles", "clusterrolebindings"}, Verbs: []string{"*"}},
			{APIGroups: []string{""}, Resources: []string{"namespaces", "namespaces/status", "namespaces/finalize"}, Verbs: []string{"*"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = client.ClusterRoles().Delete(context.WithoutCancel(t.Context()), "test-"+name, metav1.DeleteOptions{})
	})
	subject := "test:" + name
	for _, role := range append(roles, "test-"+name) {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "test-" + name + "-" + role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: subject}},
		}
		_, err := client.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() {
			_ = client.ClusterRoleBindings().Delete(context.WithoutCancel(t.Context()), binding.Name, metav1.DeleteOptions{})
		})
	}
	return dynamicAs(t, subject)
}

func dynamicAs(t *testing.T, name string) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(shared.As(name))
	require.NoError(t, err)
	return client
}

// eventually asks again until there is nothing to say.
func eventually(t *testing.T, limit time.Duration, ask func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, limit, true, func(context.Context) (bool, error) {
		last = ask()
		return last == nil, nil
	})
	require.NoError(t, err, "%v", last)
}

var dry = []string{metav1.DryRunAll}

// patch tries a merge patch.
func patch(t *testing.T, as dynamic.Interface, resource schema.GroupVersionResource, name, body string, subresources ...string) error {
	t.Helper()
	_, err := as.Resource(resource).Patch(t.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{DryRun: dry}, subresources...)
	return err
}

const labelled = `{"metadata": {"labels": {"mallory": "was-here"}}}`

// changes tries all ways to change or delete an object.
func changes(t *testing.T, as dynamic.Interface, resource schema.GroupVersionResource, name string) map[string]error {
	t.Helper()
	return map[string]error{
		"a change":   patch(t, as, resource, name, labelled),
		"a deletion": as.Resource(resource).Delete(t.Context(), name, metav1.DeleteOptions{DryRun: dry}),
	}
}

// settled waits until RBAC lets the user write, and says whether policies do.
func settled(t *testing.T, as dynamic.Interface, refused bool) {
	t.Helper()
	eventually(t, patience, func() error {
		for name, object := range protectedObjects {
			err := patch(t, as, object.resource, object.name, labelled)
			if refused && err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
				continue
			}
			if refused || err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	})
}

func TestWhoMayWriteWebhooksMayNotChangeTollgates(t *testing.T) {
	mallory := user(t, "mallory")
	settled(t, mallory, true)
	for name, object := range protectedObjects {
		for what, err := range changes(t, mallory, object.resource, object.name) {
			require.ErrorContains(t, err, "(ClusterRole tollgate-administrator)", "%s of %s", what, name)
		}
	}
	t.Run("nor with all others at once", func(t *testing.T) {
		selector := metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=tollgate"}
		for _, resource := range []schema.GroupVersionResource{validatingWebhooks, mutatingWebhooks, definitions, clusterRoles, clusterBindings} {
			err := mallory.Resource(resource).DeleteCollection(t.Context(), metav1.DeleteOptions{DryRun: dry}, selector)
			require.ErrorContains(t, err, "(ClusterRole tollgate-administrator)", resource.Resource)
		}
	})
	t.Run("nor the namespace by its subresource", func(t *testing.T) {
		require.ErrorContains(t, patch(t, mallory, namespaces, "tollgate-system", labelled, "status"), "(ClusterRole tollgate-administrator)")
		namespace, err := mallory.Resource(namespaces).Get(t.Context(), "tollgate-system", metav1.GetOptions{})
		require.NoError(t, err)
		namespace.SetLabels(map[string]string{"kubernetes.io/metadata.name": "tollgate-system"})
		_, err = mallory.Resource(namespaces).Update(t.Context(), namespace, metav1.UpdateOptions{DryRun: dry}, "finalize")
		require.ErrorContains(t, err, "(ClusterRole tollgate-administrator)")
	})
	t.Run("but what is not Tollgate's", func(t *testing.T) {
		require.NoError(t, patch(t, mallory, namespaces, "kube-public", `{"metadata": {"annotations": {"a": "b"}}}`))
		require.NoError(t, patch(t, mallory, clusterRoles, "view", labelled))
		others := clientOf(t, shared.RESTConfig()).AdmissionregistrationV1().ValidatingWebhookConfigurations()
		_, err := others.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "others"},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() { _ = others.Delete(context.WithoutCancel(t.Context()), "others", metav1.DeleteOptions{}) })
		for what, err := range changes(t, mallory, validatingWebhooks, "others") {
			require.NoError(t, err, what)
		}
	})
	t.Run("and annotations of the namespace, which mean nothing", func(t *testing.T) {
		require.NoError(t, patch(t, mallory, namespaces, "tollgate-system", `{"metadata": {"annotations": {"a": "b"}}}`))
	})
}

// Those for metrics are not installed here.
func TestEveryClusterRoleIsProtected(t *testing.T) {
	all := template(t, "--set=monitoring.metrics=true")
	policy := as[admissionregistrationv1.ValidatingAdmissionPolicy](t, all, "ValidatingAdmissionPolicy /tollgate-objects")
	require.Equal(t, "of-tollgate", policy.Spec.MatchConditions[0].Name)
	for id, object := range all {
		if strings.HasPrefix(object.GetKind(), "ClusterRole") {
			require.Contains(t, policy.Spec.MatchConditions[0].Expression, "'"+object.GetName()+"'", id)
		}
	}
}

func TestAdministratorsAreNotLockedOut(t *testing.T) {
	administrators := map[string]dynamic.Interface{
		"who administers Tollgate": user(t, "operator", "tollgate-administrator"),
		"who may do everything":    user(t, "root", "cluster-admin"),
	}
	for name, administrator := range administrators {
		t.Run(name, func(t *testing.T) {
			settled(t, administrator, false)
			for name, object := range protectedObjects {
				for what, err := range changes(t, administrator, object.resource, object.name) {
					require.NoError(t, err, "%s of %s", what, name)
				}
			}
		})
	}
}

// remembered is where Tollgate keeps the Services that URLs have replaced, and their paths.
const remembered = `{"op": "add", "path": "/metadata/annotations/tollgate.dev~1replaced-services", "value": "{}"}`

const weaker = `[{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]`

// write tries a JSON patch of the validating webhooks.
func write(t *testing.T, as dynamic.Interface, body string) error {
	t.Helper()
	_, err := as.Resource(validatingWebhooks).Patch(t.Context(), "tollgate", types.JSONPatchType, []byte(body), metav1.PatchOptions{DryRun: dry})
	return err
}

func TestTollgateItselfWritesTheCAAndNothingElse(t *testing.T) {
	settled(t, user(t, "watching"), true)
	tollgate := dynamicAs(t, "system:serviceaccount:tollgate-system:tollgate")
	ca := `{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "` + bundle(t) + `"}`
	require.NoError(t, write(t, tollgate, "["+ca+"]"))
	require.NoError(t, write(t, tollgate, "["+ca+","+remembered+"]"))
	for name, body := range map[string]string{
		"another failure policy": weaker,
		"fewer rules":            `[{"op": "remove", "path": "/webhooks/0/rules/0"}]`,
		"no webhooks":            `[{"op": "remove", "path": "/webhooks"}]`,
		"another order":          `[{"op": "move", "from": "/webhooks/0", "path": "/webhooks/1"}]`,
		"another address":        `[{"op": "replace", "path": "/webhooks/0/clientConfig", "value": {"url": "https://10.0.0.7:9443/validate"}}]`,
		"an annotation":          `[{"op": "add", "path": "/metadata/annotations/cert-manager.io~1inject-ca-from", "value": "a/b"}]`,
	} {
		require.ErrorContains(t, write(t, tollgate, body), "(ClusterRole tollgate-administrator)", name)
	}
}

func TestCertManagerWritesTheCAWhereItIsAskedTo(t *testing.T) {
	const cainjector = "system:serviceaccount:cert-manager:cert-manager-cainjector"
	client := clientOf(t, shared.RESTConfig()).RbacV1()
	binding, err := client.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-cainjector-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "test-injects"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: cainjector}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = client.ClusterRoleBindings().Delete(context.WithoutCancel(t.Context()), binding.Name, metav1.DeleteOptions{})
	})
	settled(t, user(t, "injects"), true)
	injector := dynamicAs(t, cainjector)
	inject := `[{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "` + bundle(t) + `"}]`
	require.ErrorContains(t, write(t, injector, inject), "(ClusterRole tollgate-administrator)", "nobody asked for it")

	annotate := func(ctx context.Context, value string) {
		body := `{"metadata": {"annotations": {"cert-manager.io/inject-ca-from": ` + value + `}}}`
		_, err := clientOf(t, shared.RESTConfig()).AdmissionregistrationV1().ValidatingWebhookConfigurations().
			Patch(ctx, "tollgate", types.MergePatchType, []byte(body), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	t.Cleanup(func() { annotate(context.WithoutCancel(t.Context()), "null") })
	annotate(t.Context(), `"tollgate-system/tollgate-serving"`)
	require.NoError(t, write(t, injector, inject))
	for name, body := range map[string]string{
		"another failure policy": weaker,
		"another address":        `[{"op": "replace", "path": "/webhooks/0/clientConfig", "value": {"url": "https://10.0.0.7:9443/validate"}}]`,
		"where a URL leads":      "[" + remembered + "]",
	} {
		require.ErrorContains(t, write(t, injector, body), "(ClusterRole tollgate-administrator)", name)
	}
}

// Who is kept out by mistake deletes the bindings: no policy in the API is asked about
// policies. Policies from files are, so they hold until the file is gone.
func TestPoliciesAreTheWayOutUnlessTheyAreFiles(t *testing.T) {
	mallory, operator := user(t, "finder"), user(t, "keeper", "tollgate-administrator")
	settled(t, mallory, true)
	settled(t, operator, false)
	inTheAPI := map[string]schema.GroupVersionResource{"tollgate-webhooks": bindings, "tollgate-objects": policies}
	for name, resource := range inTheAPI {
		for what, err := range changes(t, mallory, resource, name) {
			require.NoError(t, err, "%s of %s", what, name)
		}
	}

	out, err := install.Kubectl(t.Context(), shared, "kustomize", filepath.Join(programs.Root, "deploy", "protection", "static"))
	require.NoError(t, err, "%s", out)
	file := filepath.Join(policyFiles, "tollgate.yaml")
	require.NoError(t, os.WriteFile(file+".new", out, 0o600))
	require.NoError(t, os.Rename(file+".new", file))
	t.Cleanup(func() { _ = os.Remove(file) })
	// API servers look at the folder once a minute at least.
	eventually(t, 3*patience, func() error {
		for name, resource := range inTheAPI {
			for what, err := range changes(t, mallory, resource, name) {
				if err == nil || !strings.Contains(err.Error(), "tollgate-policies.static.k8s.io") {
					return fmt.Errorf("%s of %s: %w", what, name, err)
				}
			}
		}
		return nil
	})
	for name, resource := range inTheAPI {
		for what, err := range changes(t, operator, resource, name) {
			require.NoError(t, err, "%s of %s", what, name)
		}
	}

	require.NoError(t, os.Remove(file))
	eventually(t, 3*patience, func() error { return patch(t, mallory, bindings, "tollgate-webhooks", labelled) })
}
