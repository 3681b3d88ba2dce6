package check

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

func TestRolesInFilesAllowWhatRBACDoes(t *testing.T) {
	t.Parallel()
	w := newWorld(nil)
	for _, o := range parsed(t, `
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: taints}, rules: [{apiGroups: [tollgate.dev], resources: [taints], resourceNames: [a], verbs: [tolerate]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: all}, rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}, {nonResourceURLs: [/metrics, /healthz/*], verbs: [get]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: sub}, rules: [{apiGroups: [""], resources: [pods/log, "*/scale"], verbs: [get]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: pods, namespace: apple}, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: a}, roleRef: {kind: ClusterRole, name: taints}, subjects: [{kind: User, name: alice}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: b}, roleRef: {kind: ClusterRole, name: all}, subjects: [{kind: Group, name: admins}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: c}, roleRef: {kind: ClusterRole, name: none}, subjects: [{kind: User, name: bob}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: d, namespace: apple}, roleRef: {kind: Role, name: pods}, subjects: [{kind: User, name: bob}, {kind: ServiceAccount, name: runner}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: e, namespace: apple}, roleRef: {kind: ClusterRole, name: sub}, subjects: [{kind: User, name: bob}]}
`) {
		w.add(o.Unstructured)
	}
	r, err := newRBAC(w)
	require.NoError(t, err)
	in := func(namespace, resource, subresource string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{Verb: "get", Namespace: namespace, Resource: resource, Subresource: subresource, ResourceRequest: true}
	}
	taint := func(verb, name string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{Verb: verb, APIGroup: "tollgate.dev", Resource: "taints", Name: name, ResourceRequest: true}
	}
	for sentence, c := range map[string]struct {
		who   user.DefaultInfo
		asks  authorizer.AttributesRecord
		allow bool
	}{
		"a key that the role names":          {user.DefaultInfo{Name: "alice"}, taint("tolerate", "a"), true},
		"another key":                        {user.DefaultInfo{Name: "alice"}, taint("tolerate", "b"), false},
		"every key":                          {user.DefaultInfo{Name: "alice"}, taint("tolerate", ""), false},
		"another verb":                       {user.DefaultInfo{Name: "alice"}, taint("taint", "a"), false},
		"somebody else":                      {user.DefaultInfo{Name: "bob"}, taint("tolerate", "a"), false},
		"a group with all rights":            {user.DefaultInfo{Name: "x", Groups: []string{"admins"}}, taint("taint", ""), true},
		"the group of masters":               {user.DefaultInfo{Name: "x", Groups: []string{"system:masters"}}, taint("taint", ""), true},
		"a role in its namespace":            {user.DefaultInfo{Name: "bob"}, in("apple", "pods", ""), true},
		"a role elsewhere":                   {user.DefaultInfo{Name: "bob"}, in("banana", "pods", ""), false},
		"a service account of the namespace": {user.DefaultInfo{Name: "system:serviceaccount:apple:runner"}, in("apple", "pods", ""), true},
		"one of another":                     {user.DefaultInfo{Name: "system:serviceaccount:banana:runner"}, in("apple", "pods", ""), false},
		"a subresource":                      {user.DefaultInfo{Name: "bob"}, in("apple", "pods", "log"), true},
		"a subresource of all":               {user.DefaultInfo{Name: "bob"}, in("apple", "deployments", "scale"), true},
		"another subresource":                {user.DefaultInfo{Name: "bob"}, in("apple", "pods", "exec"), false},
		"a URL":                              {user.DefaultInfo{Name: "x", Groups: []string{"admins"}}, authorizer.AttributesRecord{Verb: "get", Path: "/metrics"}, true},
		"a URL below":                        {user.DefaultInfo{Name: "x", Groups: []string{"admins"}}, authorizer.AttributesRecord{Verb: "get", Path: "/healthz/ping"}, true},
		"a URL that no role names":           {user.DefaultInfo{Name: "x", Groups: []string{"admins"}}, authorizer.AttributesRecord{Verb: "get", Path: "/logs"}, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			c.asks.User = &c.who
			decision, _, err := r.Authorize(t.Context(), c.asks)
			require.NoError(t, err)
			require.Equal(t, c.allow, decision == authorizer.DecisionAllow)
		})
	}
	require.True(t, r.refused)
}
