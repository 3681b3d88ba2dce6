package rbac

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
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

	events := asked(t, since, all)
	require.Empty(t, refused(events), "Tollgate asked for what RBAC does not grant")
	require.Empty(t, unused(shippedGrants(t), events),
		"granted, and not used by anything that Tollgate does: take it away, or do here what needs it")
}

func client(t *testing.T) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(shared.RESTConfig())
	require.NoError(t, err)
	return c
}

// isTollgate reports whether a binding is for the program.
func isTollgate(subjects []rbacv1.Subject) bool {
	return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
		return s.Kind == rbacv1.ServiceAccountKind && s.Name == "tollgate" && s.Namespace == "tollgate-system"
	})
}

// shippedGrants returns what the program is granted by all roles that it is bound to.
func shippedGrants(t *testing.T) []grant {
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
		if isTollgate(binding.Subjects) {
			role, err := c.ClusterRoles().Get(t.Context(), binding.RoleRef.Name, metav1.GetOptions{})
			require.NoError(t, err)
			add(role.Rules, "")
		}
	}
	within, err := c.RoleBindings("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, binding := range within.Items {
		if isTollgate(binding.Subjects) {
			require.Equal(t, "Role", binding.RoleRef.Kind, binding.Name)
			role, err := c.Roles(binding.Namespace).Get(t.Context(), binding.RoleRef.Name, metav1.GetOptions{})
			require.NoError(t, err)
			add(role.Rules, binding.Namespace)
		}
	}
	require.NotEmpty(t, grants)
	return grants
}

func TestF09WhatTollgateMayNotDo(t *testing.T) {
	for sentence, never := range map[string]grant{
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
		"grant itself more":                            {verb: "patch", resource: "clusterroles", group: "rbac.authorization.k8s.io", name: "tollgate"},
		"bind itself to more":                          {verb: "create", resource: "clusterrolebindings", group: "rbac.authorization.k8s.io"},
		"act as somebody else":                         {verb: "impersonate", resource: "users"},
		"make tokens":                                  {verb: "create", resource: "serviceaccounts/token", namespace: "tollgate-system"},
		"tolerate what only those may who are granted": {verb: "tolerate", resource: "taints", group: "tollgate.dev"},
	} {
		t.Run(sentence, func(t *testing.T) {
			resource, subresource := never.resource, ""
			for i := range resource {
				if resource[i] == '/' {
					resource, subresource = resource[:i], resource[i+1:]
					break
				}
			}
			review, err := client(t).AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{
					User: account, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:tollgate-system", "system:authenticated"},
					ResourceAttributes: &authorizationv1.ResourceAttributes{
						Verb: never.verb, Group: never.group, Resource: resource, Subresource: subresource, Name: never.name, Namespace: never.namespace,
					},
				},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
			require.False(t, review.Status.Allowed, "%s: %s", never, review.Status.Reason)
		})
	}
}
