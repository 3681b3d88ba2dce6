package rbac

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

func TestF09AllThatIsGrantedIsUsedAndNothingElseIsNeeded(t *testing.T) {
	since := time.Now()
	require.True(t, t.Run("as new, where the API server does not stream lists", func(t *testing.T) {
		t.Setenv("KUBE_FEATURE_WatchListClient", "false") // as an API server without WatchList makes it
		require.NoError(t, restart(t.Context(), func() error {
			kubectl(t, nil, "delete", "-n", "tollgate-system", "secret/tollgate-serving-certificate", "lease/tollgate")
			return nil
		}, func(map[string]any) {}))
	}))
	tour(t)
	require.NoError(t, restart(t.Context(), func() error { return nil }, func(config map[string]any) {
		config["eviction"] = map[string]any{"mode": "Window"}
	}))
	t.Run("mode Window", tourOfWindow)
	require.NoError(t, restart(t.Context(), func() error { return nil }, func(config map[string]any) { delete(config, "eviction") }))

	for _, account := range []string{webhookAccount, evictorAccount} {
		t.Run(account, func(t *testing.T) {
			events := asked(t, since, by(account))
			require.Empty(t, refused(events), "it asked for what RBAC does not grant")
			require.Empty(t, unused(shippedGrants(t, account), events),
				"granted, and not used by anything that it does: take it away, or do here what needs it")
		})
	}
}

func client(t *testing.T) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(shared.RESTConfig())
	require.NoError(t, err)
	return c
}

// isFor reports whether a binding is for a component.
func isFor(account string, subjects []rbacv1.Subject) bool {
	return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
		return s.Kind == rbacv1.ServiceAccountKind && s.Name == account && s.Namespace == "tollgate-system"
	})
}

// shippedGrants returns what a component is granted by all roles that it is bound to.
func shippedGrants(t *testing.T, account string) []grant {
	t.Helper()
	c := client(t).RbacV1()
	var grants []grant
	add := func(rules []rbacv1.PolicyRule, namespace string) {
		expanded, err := expand(rules, namespace)
		require.NoError(t, err)
		grants = append(grants, expanded...)
	}
	everywhere, err := c.ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, binding := range everywhere.Items {
		if isFor(account, binding.Subjects) {
			role, err := c.ClusterRoles().Get(t.Context(), binding.RoleRef.Name, metav1.GetOptions{})
			require.NoError(t, err)
			add(role.Rules, "")
		}
	}
	within, err := c.RoleBindings("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, binding := range within.Items {
		if isFor(account, binding.Subjects) {
			require.Equal(t, "Role", binding.RoleRef.Kind, binding.Name)
			role, err := c.Roles(binding.Namespace).Get(t.Context(), binding.RoleRef.Name, metav1.GetOptions{})
			require.NoError(t, err)
			add(role.Rules, binding.Namespace)
		}
	}
	require.NotEmpty(t, grants)
	return grants
}

// neverAllowed is what no component may do.
var neverAllowed = map[string]grant{
	"read other secrets of its namespace":          {verb: "get", resource: "secrets", name: "other", namespace: "tollgate-system"},
	"list the secrets of its namespace":            {verb: "list", resource: "secrets", namespace: "tollgate-system"},
	"read secrets elsewhere":                       {verb: "get", resource: "secrets", name: "tollgate-serving-certificate", namespace: "default"},
	"list all secrets":                             {verb: "list", resource: "secrets"},
	"read other leases":                            {verb: "get", resource: "leases", group: "coordination.k8s.io", name: "other", namespace: "tollgate-system"},
	"take the lease of a controller":               {verb: "update", resource: "leases", group: "coordination.k8s.io", name: "kube-scheduler", namespace: "kube-system"},
	"write other webhooks":                         {verb: "patch", resource: "validatingwebhookconfigurations", group: "admissionregistration.k8s.io", name: "other"},
	"delete its own webhooks":                      {verb: "delete", resource: "validatingwebhookconfigurations", group: "admissionregistration.k8s.io", name: "tollgate"},
	"create webhooks":                              {verb: "create", resource: "mutatingwebhookconfigurations", group: "admissionregistration.k8s.io"},
	"create pods":                                  {verb: "create", resource: "pods", namespace: "default"},
	"change pods":                                  {verb: "patch", resource: "pods", namespace: "default"},
	"run something in a pod":                       {verb: "create", resource: "pods/exec", namespace: "default"},
	"delete all pods at once":                      {verb: "deletecollection", resource: "pods", namespace: "default"},
	"delete nodes":                                 {verb: "delete", resource: "nodes"},
	"change the status of nodes":                   {verb: "patch", resource: "nodes/status"},
	"change slices":                                {verb: "patch", resource: "resourceslices", group: "resource.k8s.io"},
	"change claims":                                {verb: "patch", resource: "resourceclaims", group: "resource.k8s.io", namespace: "default"},
	"write policies":                               {verb: "patch", resource: "tolerationpolicies", group: "tollgate.dev"},
	"approve evictions":                            {verb: "create", resource: "evictionapprovals", group: "tollgate.dev"},
	"change other Reports":                         {verb: "update", resource: "reports", group: "openreports.io", name: "other", namespace: "default"},
	"grant itself more":                            {verb: "patch", resource: "clusterroles", group: "rbac.authorization.k8s.io", name: "tollgate"},
	"bind itself to more":                          {verb: "create", resource: "clusterrolebindings", group: "rbac.authorization.k8s.io"},
	"act as somebody else":                         {verb: "impersonate", resource: "users"},
	"make tokens":                                  {verb: "create", resource: "serviceaccounts/token", namespace: "tollgate-system"},
	"tolerate what only those may who are granted": {verb: "tolerate", resource: "taints", group: "tollgate.dev"},
}

// neverAllowedToTheWebhook is what the component may not do that the network reaches: what
// evicts, what approves, and what is written for others to read.
var neverAllowedToTheWebhook = map[string]grant{
	"delete pods":                        {verb: "delete", resource: "pods", namespace: "default"},
	"evict pods":                         {verb: "create", resource: "pods/eviction", namespace: "default"},
	"set the condition of pods":          {verb: "patch", resource: "pods/status", namespace: "default"},
	"change nodes":                       {verb: "patch", resource: "nodes"},
	"say that an approval was used":      {verb: "patch", resource: "evictionapprovals/status", group: "tollgate.dev"},
	"say what a breaker has counted":     {verb: "patch", resource: "evictionpolicies/status", group: "tollgate.dev"},
	"say since when a patch is in force": {verb: "patch", resource: "resourceslicepatches/status", group: "tollgate.dev"},
	"make rules":                         {verb: "create", resource: "devicetaintrules", group: "resource.k8s.io"},
	"delete rules":                       {verb: "delete", resource: "devicetaintrules", group: "resource.k8s.io"},
	"say how far a rule is":              {verb: "patch", resource: "devicetaintrules/status", group: "resource.k8s.io"},
	"write Reports":                      {verb: "create", resource: "reports", group: "openreports.io", namespace: "default"},
	"write events":                       {verb: "create", resource: "events", namespace: "default"},
	"take the lease":                     {verb: "update", resource: "leases", group: "coordination.k8s.io", name: "tollgate", namespace: "tollgate-system"},
}

// neverAllowedToTheEvictor is what the component may not do that nobody calls.
var neverAllowedToTheEvictor = map[string]grant{
	"read the key of the webhooks": {verb: "get", resource: "secrets", name: "tollgate-serving-certificate", namespace: "tollgate-system"},
	"write its webhooks":           {verb: "patch", resource: "validatingwebhookconfigurations", group: "admissionregistration.k8s.io", name: "tollgate"},
}

func TestF09WhatTollgateMayNotDo(t *testing.T) {
	for account, more := range map[string]map[string]grant{webhookAccount: neverAllowedToTheWebhook, evictorAccount: neverAllowedToTheEvictor} {
		for _, table := range []map[string]grant{neverAllowed, more} {
			for sentence, never := range table {
				t.Run(account+", "+sentence, func(t *testing.T) { requireForbidden(t, account, never) })
			}
		}
	}
}

// requireForbidden asks the API server whether a component may do something.
func requireForbidden(t *testing.T, account string, never grant) {
	t.Helper()
	resource, subresource, _ := strings.Cut(never.resource, "/")
	review, err := client(t).AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: accounts + account, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:tollgate-system", "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: never.verb, Group: never.group, Resource: resource, Subresource: subresource, Name: never.name, Namespace: never.namespace,
			},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.False(t, review.Status.Allowed, "%s: %s", never, review.Status.Reason)
}

// Not by what the authorizer says of it, but by its token.
func TestF09TheTokenOfTheWebhookNeitherDeletesAPodNorApproves(t *testing.T) {
	write(t, nil, "create", `apiVersion: v1
kind: Namespace
metadata: {name: token}
---
kind: EvictionApproval
metadata: {name: token}
spec: {node: `+controlplane.NodeName(4)+`, taint: {key: token.example.com/x, effect: NoExecute}, maxPods: 10}
`)
	write(t, nil, "create", podOn("token", "stays", controlplane.NodeName(4), ""))
	loaded, err := clientcmd.BuildConfigFromFlags("", webhook.Kubeconfig)
	require.NoError(t, err)
	token, err := dynamic.NewForConfig(loaded)
	require.NoError(t, err)
	pods := token.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace("token")
	approvals := token.Resource(schema.GroupVersionResource{Group: "tollgate.dev", Version: "v1alpha1", Resource: "evictionapprovals"})

	_, err = pods.Get(t.Context(), "stays", metav1.GetOptions{})
	require.NoError(t, err, "it may look")
	err = pods.Delete(t.Context(), "stays", metav1.DeleteOptions{})
	require.True(t, apierrors.IsForbidden(err), err)
	_, err = approvals.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err, "it may look")
	used := []byte(`{"status":{"usedAt":"2026-01-01T00:00:00Z"}}`)
	_, err = approvals.Patch(t.Context(), "token", types.MergePatchType, used, metav1.PatchOptions{}, "status")
	require.True(t, apierrors.IsForbidden(err), err)
	kubectl(t, nil, "delete", "evictionapproval/token", "namespace/token", "--wait=false")
}
