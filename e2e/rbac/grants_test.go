package rbac

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// grant is one thing that may be done, or that was: to an object if it has a name, in a
// namespace unless that is empty.
type grant struct{ verb, resource, group, name, namespace string }

// String is how people say it.
func (g grant) String() string {
	text := g.verb + " " + g.resource
	if g.group != "" {
		text += "." + g.group
	}
	if g.name != "" {
		text += " " + g.name
	}
	if g.namespace != "" {
		text += " in " + g.namespace
	}
	return text
}

// covers reports whether a grant allows what was asked for.
func (g grant) covers(asked grant) bool {
	return g.verb == asked.verb && g.resource == asked.resource && g.group == asked.group &&
		(g.name == "" || g.name == asked.name) && (g.namespace == "" || g.namespace == asked.namespace)
}

// expand returns what rules grant one by one. They hold in a namespace, or everywhere. A
// wildcard is an error: nobody can say whether all of it is used.
func expand(rules []rbacv1.PolicyRule, namespace string) ([]grant, error) {
	var grants []grant
	for _, rule := range rules {
		if len(rule.NonResourceURLs) > 0 {
			return nil, fmt.Errorf("nonResourceURLs %v are granted", rule.NonResourceURLs)
		}
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					for _, name := range names {
						g := grant{verb, resource, group, name, namespace}
						if strings.Contains(g.String(), "*") {
							return nil, fmt.Errorf("a wildcard is granted: %s", g)
						}
						grants = append(grants, g)
					}
				}
			}
		}
	}
	return grants, nil
}

// askedFor returns what a request asked for.
func askedFor(event *auditv1.Event) grant {
	ref := event.ObjectRef
	g := grant{event.Verb, ref.Resource, ref.APIGroup, ref.Name, ref.Namespace}
	if ref.Subresource != "" {
		g.resource += "/" + ref.Subresource
	}
	return g
}

// refused returns what the API server did not allow, each once.
func refused(events []auditv1.Event) []string {
	var found []string
	for i := range events {
		if events[i].ResponseStatus != nil && events[i].ResponseStatus.Code == http.StatusForbidden {
			found = append(found, askedFor(&events[i]).String())
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// unused returns the grants that no request that was answered needed.
func unused(grants []grant, events []auditv1.Event) []string {
	var left []string
	for _, g := range grants {
		if !slices.ContainsFunc(events, func(event auditv1.Event) bool { return g.covers(askedFor(&event)) }) {
			left = append(left, g.String())
		}
	}
	slices.Sort(left)
	return left
}

func TestGrantsAreHeldAgainstRequests(t *testing.T) {
	t.Parallel()
	request := func(verb, group, resource, subresource, namespace, name string) auditv1.Event {
		return auditv1.Event{Verb: verb, ObjectRef: &auditv1.ObjectReference{
			APIGroup: group, Resource: resource, Subresource: subresource, Namespace: namespace, Name: name,
		}}
	}
	grants, err := expand([]rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods", "pods/status"}, Verbs: []string{"get", "patch"}},
	}, "")
	require.NoError(t, err)
	own, err := expand([]rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{"a", "b"}, Verbs: []string{"get"}},
	}, "home")
	require.NoError(t, err)
	require.Equal(t, []string{"get leases.coordination.k8s.io b in home", "get pods/status", "patch pods"},
		unused(append(grants, own...), []auditv1.Event{
			request("get", "", "pods", "", "ns", "p"),
			request("patch", "", "pods", "status", "ns", "p"),
			request("get", "coordination.k8s.io", "leases", "", "home", "a"),
			request("get", "coordination.k8s.io", "leases", "", "elsewhere", "b"),
			request("list", "coordination.k8s.io", "leases", "", "home", "b"),
		}))
	for _, rule := range []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"pods"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"pods/*"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"*"}},
		{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}},
	} {
		_, err := expand([]rbacv1.PolicyRule{rule}, "")
		require.Error(t, err)
	}
}
