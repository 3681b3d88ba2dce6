package vap

import (
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// Annotations of what is exported.
const (
	// ExportedFrom says of which policy an object is.
	ExportedFrom = "tollgate.dev/exported-from"
	// NotExported says what of the policy, or of what Tollgate does by it, is not in the
	// object, one thing a line.
	NotExported = "tollgate.dev/not-exported"
)

// Settings are what Tollgate is told of a cluster, and what an exported policy has to be
// told too.
type Settings struct {
	// Exempt are the namespaces that are not looked at.
	Exempt []string
	// Self is the user that Tollgate is.
	Self string
	// WorkloadControllers are users who make pods from templates, beside those of
	// Kubernetes.
	WorkloadControllers []string
	// NotReady and Unreachable are the seconds of the API server's
	// DefaultTolerationSeconds plugin.
	NotReady, Unreachable int64
}

// DefaultSettings are those of Tollgate as it is installed from deploy, on an API server
// without flags.
func DefaultSettings() Settings {
	const seconds = 300
	return Settings{
		Exempt: []string{metav1.NamespaceSystem, "tollgate-system"},
		Self:   "system:serviceaccount:tollgate-system:tollgate", NotReady: seconds, Unreachable: seconds,
	}
}

// A Note is something that an exported policy does not do.
type Note struct {
	// Field is what of the policy it is about; empty for what no policy says.
	Field string
	Text  string
	// Partial says that Tollgate refuses, or grants, something by the field that the
	// exported policy would not.
	Partial bool
}

// String returns the note on one line.
func (n Note) String() string {
	if n.Field == "" {
		return n.Text
	}
	return n.Field + ": " + n.Text
}

// Exported is what became of a policy.
type Exported struct {
	// Objects are ValidatingAdmissionPolicies, each followed by its binding.
	Objects []runtime.Object
	Notes   []Note
}

// Missing returns the notes on fields that are left out although verdicts hang on them.
func (e *Exported) Missing() []Note {
	return slices.DeleteFunc(slices.Clone(e.Notes), func(n Note) bool { return !n.Partial })
}

// Policy is a ValidatingAdmissionPolicy to be, with its binding.
type Policy struct {
	// Name is that of both.
	Name string
	// From is "Kind/name" of the policy that it is exported from.
	From    string
	Actions []v1alpha1.ValidationAction
	// Exempt are the namespaces that are not looked at.
	Exempt      []string
	Rules       []admissionregistrationv1.NamedRuleWithOperations
	Conditions  []admissionregistrationv1.MatchCondition
	Variables   []admissionregistrationv1.Variable
	Validations []admissionregistrationv1.Validation
	Notes       []Note
}

// Rule returns a rule for resources of one group. Every version of a group is meant where
// none is given.
func Rule(group string, version string, scope admissionregistrationv1.ScopeType, operations []admissionregistrationv1.OperationType, resources ...string) admissionregistrationv1.NamedRuleWithOperations {
	return admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: operations,
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{group}, APIVersions: []string{version}, Resources: resources, Scope: new(scope),
		},
	}}
}

// Objects returns the policy and its binding.
func (p *Policy) Objects() []runtime.Object {
	meta := metav1.ObjectMeta{Name: p.Name, Annotations: map[string]string{ExportedFrom: p.From}}
	if len(p.Notes) > 0 {
		lines := make([]string, len(p.Notes))
		for i, note := range p.Notes {
			lines[i] = note.String()
		}
		meta.Annotations[NotExported] = strings.Join(lines, "\n")
	}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		TypeMeta:   typeMeta("ValidatingAdmissionPolicy"),
		ObjectMeta: *meta.DeepCopy(),
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			// What cannot be evaluated is not let pass, as Tollgate has it.
			FailurePolicy: new(admissionregistrationv1.Fail),
			MatchConstraints: &admissionregistrationv1.MatchResources{
				MatchPolicy: new(admissionregistrationv1.Equivalent), ResourceRules: p.Rules, NamespaceSelector: outside(p.Exempt),
			},
			MatchConditions: p.Conditions, Variables: p.Variables, Validations: p.Validations,
		},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   typeMeta("ValidatingAdmissionPolicyBinding"),
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Annotations: map[string]string{ExportedFrom: p.From}},
		Spec:       admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: p.Name, ValidationActions: actions(p.Actions)},
	}
	return []runtime.Object{policy, binding}
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: kind}
}

// outside selects the namespaces that are none of some.
func outside(exempt []string) *metav1.LabelSelector {
	if len(exempt) == 0 {
		return nil
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: slices.Clone(exempt),
	}}}
}

// actions returns actions as a binding has them. The names are the same.
func actions(list []v1alpha1.ValidationAction) []admissionregistrationv1.ValidationAction {
	if len(list) == 0 {
		return []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	}
	converted := make([]admissionregistrationv1.ValidationAction, len(list))
	for i, action := range list {
		converted[i] = admissionregistrationv1.ValidationAction(action)
	}
	return converted
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
