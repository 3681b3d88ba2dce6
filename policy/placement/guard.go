package placement

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/selector"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/policy/toleration"
)

// Guard returns the policies that spec.guard stands for: a TolerationPolicy, and a
// TaintPolicy or nil. Both are nil without a guard. They have the UID and the generation
// of the PlacementPolicy, and "PlacementPolicy/" and its name as their name, by which
// messages refer to them.
//
// A match that a grant cannot express is granted nothing: the taints are guarded then
// against everybody without a grant of spec.guard.grants.
func Guard(p *v1alpha1.PlacementPolicy) (*v1alpha1.TolerationPolicy, *v1alpha1.TaintPolicy) {
	guard := p.Spec.Guard
	if guard == nil {
		return nil, nil
	}
	selectors := make([]v1alpha1.TaintSelector, 0, len(guard.Taints)) // by key and value, with any effect
	for _, t := range guard.Taints {
		selectors = append(selectors, v1alpha1.TaintSelector{Target: v1alpha1.TaintTargetNode, Key: t.Key, Values: []string{t.Value}})
	}
	meta := metav1.ObjectMeta{Name: "PlacementPolicy/" + p.Name, UID: p.UID, Generation: p.Generation, CreationTimestamp: p.CreationTimestamp}
	tolerations := &v1alpha1.TolerationPolicy{ObjectMeta: meta, Spec: v1alpha1.TolerationPolicySpec{
		Taints: selectors, Grants: slices.Clone(guard.Grants),
		ValidationActions: guard.ValidationActions, Message: guard.Message,
	}}
	// The grant of the match is the last, so that the others have the index that they have in spec.guard.grants.
	if grant, ok := matchGrant(&p.Spec.Match); ok {
		tolerations.Spec.Grants = append(tolerations.Spec.Grants, grant)
	}
	if guard.Register == nil && len(guard.Setters) == 0 {
		return tolerations, nil
	}
	taints := &v1alpha1.TaintPolicy{ObjectMeta: meta, Spec: v1alpha1.TaintPolicySpec{
		Taints: selectors, Setters: guard.Setters,
		ValidationActions: guard.ValidationActions, Message: guard.Message,
	}}
	if len(guard.Setters) == 0 {
		// A TaintPolicy without setters refuses the taints to all users.
		taints.Spec.Setters = []v1alpha1.TaintSetter{{Subjects: []rbacv1.Subject{
			{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: user.AllAuthenticated},
			{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: user.AllUnauthenticated},
		}}}
	}
	if guard.Register != nil {
		taints.Spec.Register = []v1alpha1.TaintRegistration{{
			NodeSelector: registeredNodes(&p.Spec), Taints: guard.Taints, Reconcile: guard.Register.Reconcile,
		}}
	}
	return tolerations, taints
}

// matchGrant returns the grant for the pods that a policy matches; false for a match that is
// granted nothing.
func matchGrant(m *v1alpha1.PlacementMatch) (v1alpha1.TolerationGrant, bool) {
	// A pattern with a fault matches no namespace, and would void the grant.
	sound := slices.DeleteFunc(slices.Clone(m.Namespaces), func(pattern string) bool { return len(selector.ValidateNamespaces([]string{pattern}, nil, "", "")) > 0 })
	grant := v1alpha1.TolerationGrant{
		Namespaces: sound, NamespaceSelector: nonEmpty(m.NamespaceSelector), ObjectSelector: nonEmpty(m.PodSelector),
	}
	return grant, grantable(m) && (len(sound) > 0 || len(m.Namespaces) == 0)
}

// grantable reports whether a grant can express a match: it names namespaces, and has no
// criteria that a grant does not have.
func grantable(m *v1alpha1.PlacementMatch) bool {
	return len(m.Resources)+len(m.DeviceClasses)+len(m.MatchConditions) == 0 && (len(m.Namespaces) > 0 || nonEmpty(m.NamespaceSelector) != nil)
}

// nonEmpty returns nil for a selector that selects everything.
func nonEmpty(s *metav1.LabelSelector) *metav1.LabelSelector {
	if s == nil || selector.SelectsAll(s) {
		return nil
	}
	return s
}

// registeredNodes selects the nodes that get the taints of a guard with register.
func registeredNodes(spec *v1alpha1.PlacementPolicySpec) metav1.LabelSelector {
	steered := metav1.LabelSelector{MatchLabels: ptr.Deref(spec.Pod, v1alpha1.PodPlacement{}).NodeSelector}
	return ptr.Deref(spec.Guard.Register.NodeSelector, steered)
}

// validateGuard returns the errors of a guard: those of its match, and those of the policies
// that it stands for, with the paths that the fields have in the PlacementPolicy.
func validateGuard(p *v1alpha1.PlacementPolicy) field.ErrorList {
	path := field.NewPath("spec", "guard")
	guard := p.Spec.Guard
	if guard == nil {
		return nil
	}
	errs := policy.Check(grantable(&p.Spec.Match), field.Forbidden(path,
		"grants its taints to namespaces and pod labels: set match.namespaces or match.namespaceSelector, and no match.resources, match.deviceClasses or match.matchConditions"))
	whole := p.DeepCopy()
	if guard.Register == nil {
		// The taints are validated as those of a node with or without register.
		whole.Spec.Guard.Register = &v1alpha1.GuardRegistration{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"any": ""}}}
	} else if nodes := registeredNodes(&p.Spec); selector.SelectsAll(&nodes) {
		errs = append(errs, field.Required(path.Child("register", "nodeSelector"), "name the nodes here or in spec.pod.nodeSelector"))
	}
	tolerations, taints := Guard(whole)
	ofMatch := fmt.Sprintf("spec.grants[%d]", len(guard.Grants))
	for _, err := range append(toleration.ValidatePolicy(tolerations), taint.ValidatePolicy(taints)...) {
		if strings.HasPrefix(err.Field, ofMatch) {
			continue // An error of spec.match, which validateMatch reports.
		}
		err.Field = GuardField(err.Field)
		if !slices.ContainsFunc(errs, func(e *field.Error) bool { return e.Field == err.Field && e.Type == err.Type }) {
			errs = append(errs, err)
		}
	}
	return errs
}

// GuardField returns the path in a PlacementPolicy of a field of a policy that its guard stands
// for.
func GuardField(path string) string { return guardFields.Replace(path) }

var guardFields = strings.NewReplacer(
	"spec.register[0].nodeSelector", "spec.guard.register.nodeSelector",
	"spec.register[0].taints", "spec.guard.taints",
	"spec.", "spec.guard.",
)

// Warnings returns what is legal in a guard and probably not meant.
func Warnings(p *v1alpha1.PlacementPolicy) []string {
	tolerations, _ := Guard(p)
	if tolerations == nil {
		return nil
	}
	ofMatch := fmt.Sprintf("spec.grants[%d]", len(p.Spec.Guard.Grants))
	fields := strings.NewReplacer(ofMatch+": objectSelector", "spec.match.podSelector:", "spec.grants", "spec.guard.grants")
	warnings := toleration.Warnings(tolerations)
	for i := range warnings {
		warnings[i] = fields.Replace(warnings[i])
	}
	if slices.Contains(p.Spec.Match.Namespaces, "*") {
		warnings = append(warnings, "spec.match.namespaces: with \"*\" the guard lets the pods of every namespace tolerate its taints")
	}
	return warnings
}
