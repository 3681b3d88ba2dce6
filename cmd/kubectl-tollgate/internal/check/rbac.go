package check

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/tollgate-dev/tollgate/policy"
)

// rbac is an authorizer by the Roles, ClusterRoles and bindings of the files. Aggregated roles have
// the rules that the files give them.
type rbac struct {
	roles    map[schema.GroupKind]map[types.NamespacedName][]rbacv1.PolicyRule
	bindings []rbacv1.RoleBinding // a ClusterRoleBinding has no namespace
	// refused is true after a request that no rule allows, and a cluster might.
	refused bool
}

func rbacKind(name string) schema.GroupKind {
	return schema.GroupKind{Group: rbacv1.GroupName, Kind: name}
}

func newRBAC(w *world) (*rbac, error) {
	r := &rbac{roles: map[schema.GroupKind]map[types.NamespacedName][]rbacv1.PolicyRule{}}
	for _, name := range []string{"Role", "ClusterRole"} {
		of := map[types.NamespacedName][]rbacv1.PolicyRule{}
		for key, object := range w.objects[rbacKind(name)] {
			var role rbacv1.ClusterRole // A Role has the same rules.
			if err := decodeInto(object, &role); err != nil {
				return nil, err
			}
			of[key] = role.Rules
		}
		r.roles[rbacKind(name)] = of
	}
	for _, name := range []string{"RoleBinding", "ClusterRoleBinding"} {
		for _, object := range w.objects[rbacKind(name)] {
			var binding rbacv1.RoleBinding // A ClusterRoleBinding has the same fields.
			if err := decodeInto(object, &binding); err != nil {
				return nil, fmt.Errorf("read what is bound: %w", err)
			}
			r.bindings = append(r.bindings, binding)
		}
	}
	return r, nil
}

// Authorize implements authorizer.Authorizer.
func (r *rbac) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if slices.Contains(a.GetUser().GetGroups(), user.SystemPrivilegedGroup) {
		return authorizer.DecisionAllow, "", nil
	}
	for i := range r.bindings {
		b := &r.bindings[i]
		if b.Namespace != "" && b.Namespace != a.GetNamespace() || !includes(b, a.GetUser()) {
			continue
		}
		key := types.NamespacedName{Name: b.RoleRef.Name}
		if b.RoleRef.Kind == "Role" {
			key.Namespace = b.Namespace
		}
		if slices.ContainsFunc(r.roles[rbacKind(b.RoleRef.Kind)][key], func(rule rbacv1.PolicyRule) bool { return allows(&rule, a) }) {
			return authorizer.DecisionAllow, "", nil
		}
	}
	r.refused = true
	return authorizer.DecisionNoOpinion, "", nil
}

// ConditionsAwareAuthorize implements authorizer.Authorizer: rules have no conditions.
func (r *rbac) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(r.Authorize(ctx, a))
}

// EvaluateConditions implements authorizer.Authorizer. Rules have no conditions.
func (r *rbac) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// includes reports whether a user is among the subjects of a binding.
func includes(b *rbacv1.RoleBinding, who user.Info) bool {
	return slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool {
		switch s.Kind {
		case rbacv1.UserKind:
			return s.Name == who.GetName()
		case rbacv1.GroupKind:
			return slices.Contains(who.GetGroups(), s.Name)
		case rbacv1.ServiceAccountKind:
			return policy.ServiceAccount(cmp.Or(s.Namespace, b.Namespace), s.Name) == who.GetName()
		default:
			return false
		}
	})
}

// allows reports whether a rule allows a request.
func allows(rule *rbacv1.PolicyRule, a authorizer.Attributes) bool {
	among := func(list []string, names ...string) bool {
		return slices.ContainsFunc(list, func(name string) bool { return name == "*" || slices.Contains(names, name) })
	}
	if !among(rule.Verbs, a.GetVerb()) {
		return false
	}
	if !a.IsResourceRequest() {
		return slices.ContainsFunc(rule.NonResourceURLs, func(url string) bool {
			prefix, wildcard := strings.CutSuffix(url, "*")
			return url == a.GetPath() || wildcard && strings.HasPrefix(a.GetPath(), prefix)
		})
	}
	resources := []string{a.GetResource()}
	if subresource := a.GetSubresource(); subresource != "" {
		resources = []string{a.GetResource() + "/" + subresource, "*/" + subresource}
	}
	return among(rule.Resources, resources...) && among(rule.APIGroups, a.GetAPIGroup()) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, a.GetName()))
}
