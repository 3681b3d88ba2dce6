package check

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/tollgate-dev/tollgate/policy"
)

// rbac is an authorizer that knows the Roles and ClusterRoles of the files, and who is bound
// to them. What a cluster allows beyond that it does not know; asked says whether that may
// have made a difference. Roles that are aggregated have the rules that stand in them.
type rbac struct {
	roles    map[schema.GroupKind]map[types.NamespacedName][]rbacv1.PolicyRule
	bindings []binding
	// asked is whether anybody was asked about to whom nothing is allowed.
	asked bool
}

// binding is a RoleBinding or, without a namespace, a ClusterRoleBinding.
type binding struct {
	namespace string
	role      rbacv1.RoleRef
	subjects  []rbacv1.Subject
}

func rbacKind(name string) schema.GroupKind {
	return schema.GroupKind{Group: rbacv1.GroupName, Kind: name}
}

func newRBAC(w *world) (*rbac, error) {
	r := &rbac{roles: map[schema.GroupKind]map[types.NamespacedName][]rbacv1.PolicyRule{}}
	for _, name := range []string{"Role", "ClusterRole"} {
		of := map[types.NamespacedName][]rbacv1.PolicyRule{}
		for key, object := range w.objects[rbacKind(name)] {
			var role rbacv1.ClusterRole // a Role has the same rules
			if err := decodeInto(object, &role); err != nil {
				return nil, err
			}
			of[key] = role.Rules
		}
		r.roles[rbacKind(name)] = of
	}
	for _, name := range []string{"RoleBinding", "ClusterRoleBinding"} {
		for _, object := range w.objects[rbacKind(name)] {
			if err := r.bind(object); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

func (r *rbac) bind(object *unstructured.Unstructured) error {
	var b rbacv1.RoleBinding // a ClusterRoleBinding has the same fields
	if err := decodeInto(object, &b); err != nil {
		return fmt.Errorf("read what is bound: %w", err)
	}
	r.bindings = append(r.bindings, binding{b.Namespace, b.RoleRef, b.Subjects})
	return nil
}

// Authorize implements authorizer.Authorizer.
func (r *rbac) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if slices.Contains(a.GetUser().GetGroups(), user.SystemPrivilegedGroup) {
		return authorizer.DecisionAllow, "", nil
	}
	for i := range r.bindings {
		b := &r.bindings[i]
		if b.namespace != "" && b.namespace != a.GetNamespace() || !b.includes(a.GetUser()) {
			continue
		}
		key := types.NamespacedName{Name: b.role.Name}
		if b.role.Kind == "Role" {
			key.Namespace = b.namespace
		}
		if slices.ContainsFunc(r.roles[rbacKind(b.role.Kind)][key], func(rule rbacv1.PolicyRule) bool { return allows(&rule, a) }) {
			return authorizer.DecisionAllow, "", nil
		}
	}
	r.asked = true
	return authorizer.DecisionNoOpinion, "", nil
}

// ConditionsAwareAuthorize implements authorizer.Authorizer: roles know of no conditions.
func (r *rbac) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(r.Authorize(ctx, a))
}

// EvaluateConditions implements authorizer.Authorizer. There are none to evaluate.
func (r *rbac) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

func (b *binding) includes(who user.Info) bool {
	return slices.ContainsFunc(b.subjects, func(s rbacv1.Subject) bool {
		switch s.Kind {
		case rbacv1.UserKind:
			return s.Name == who.GetName()
		case rbacv1.GroupKind:
			return slices.Contains(who.GetGroups(), s.Name)
		case rbacv1.ServiceAccountKind:
			namespace := s.Namespace
			if namespace == "" {
				namespace = b.namespace
			}
			return policy.ServiceAccount(namespace, s.Name) == who.GetName()
		default:
			return false
		}
	})
}

// allows reports whether a rule allows a request, by the rules of RBAC.
func allows(rule *rbacv1.PolicyRule, a authorizer.Attributes) bool {
	if !among(rule.Verbs, a.GetVerb(), rbacv1.VerbAll) {
		return false
	}
	if !a.IsResourceRequest() {
		return slices.ContainsFunc(rule.NonResourceURLs, func(url string) bool {
			return url == rbacv1.NonResourceAll || url == a.GetPath() || prefixes(url, a.GetPath())
		})
	}
	resource := a.GetResource()
	if a.GetSubresource() != "" {
		resource += "/" + a.GetSubresource()
	}
	named := among(rule.Resources, resource, rbacv1.ResourceAll) ||
		a.GetSubresource() != "" && slices.Contains(rule.Resources, rbacv1.ResourceAll+"/"+a.GetSubresource())
	return named && among(rule.APIGroups, a.GetAPIGroup(), rbacv1.APIGroupAll) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, a.GetName()))
}

// prefixes reports whether a pattern ends with a star and a path begins with the rest.
func prefixes(pattern, path string) bool {
	last := len(pattern) - 1
	return last > 0 && pattern[last] == '*' && len(path) >= last && path[:last] == pattern[:last]
}

func among(list []string, name, all string) bool {
	return slices.Contains(list, name) || slices.Contains(list, all)
}
