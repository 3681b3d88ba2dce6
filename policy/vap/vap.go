// Package vap writes TolerationPolicies and TaintPolicies as ValidatingAdmissionPolicies,
// which the API server evaluates itself and which give the same verdicts.
//
// Expressions stay within what an API server of Kubernetes 1.34 takes from a client, which
// is what 1.33 knew, because an API server can be downgraded by one version. They read
// object by way of dyn(), because one policy is for several kinds.
//
// The API server evaluates each variable at most once for the validations, and once more
// for their messages, in which the authorizer cannot be asked. Each may cost 1,000,000, and
// all together 10,000,000 (k8s.io/apiserver/pkg/apis/cel). A request that costs more is
// refused.
package vap

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/cel"
)

// Annotations of exported objects.
const (
	// ExportedFrom names the policy that an object is exported from.
	ExportedFrom = "tollgate.dev/exported-from"
	// NotExported lists the notes of an object, one a line.
	NotExported = "tollgate.dev/not-exported"
)

// Settings are the settings of Tollgate that exported policies need too.
type Settings struct {
	// Exempt are the namespaces that are not looked at.
	Exempt []string
	// Self is the user name of Tollgate.
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
	// Field is the field of the policy that the note is about; empty where it is about
	// none.
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

// AboutKeys is the note on the bound of the keys that RBAC is asked about.
var AboutKeys = Note{Text: "RBAC is asked about any number of keys: here an object is refused that has more than " + strconv.Itoa(mostKeys) + " which nothing but RBAC could allow"}

// AboutQuestions is the note on an expression of a field that asks its authorizer, once for
// each toleration or taint: the API server spends 1,000,000 on the evaluation of one
// variable, and refuses what would cost more.
func AboutQuestions(field string) Note {
	return Note{field, "asks what is authorized: here an object is refused that has more than two questions asked about it", false}
}

// Exported is the export of a policy.
type Exported struct {
	// Objects are ValidatingAdmissionPolicies, each followed by its binding.
	Objects []runtime.Object
	Notes   []Note
}

// Missing returns the notes on fields that are left out although verdicts depend on them.
func (e *Exported) Missing() []Note {
	return slices.DeleteFunc(slices.Clone(e.Notes), func(n Note) bool { return !n.Partial })
}

// The parts of a ValidatingAdmissionPolicy.
type (
	resourceRule = admissionregistrationv1.NamedRuleWithOperations
	operation    = admissionregistrationv1.OperationType
	validation   = admissionregistrationv1.Validation
)

// named is an expression with a name: a variable, or a matchCondition.
type named struct{ Name, Expression string }

// export is what a ValidatingAdmissionPolicy and its binding are made of, beside what all of an exporter
// have alike.
type export struct {
	// what ends the name of both.
	what string
	// notes are about no field.
	notes                 []string
	rules                 []resourceRule
	conditions, variables []named
	validations           []validation
}

// exporter exports a policy of either kind.
type exporter struct {
	settings Settings
	// ref is "Kind/name" of the policy, title its name in errors, prefix the beginning of the
	// names of what is exported.
	ref, title, prefix string
	actions            []v1alpha1.ValidationAction
	// exempt are the namespaces that are not looked at.
	exempt []string
	// fields are the text fields of the toleration or the taint that expressions see, with
	// their defaults, and optional is the entry of the field that has none.
	fields   []named
	optional string
	// bindings are the variables that expressions of users read, with their values.
	bindings []named

	// set are the fields of which expressions ask whether they are set, sorted.
	set []string
	// conditions are the matchConditions in one expression.
	conditions string
	// authorizer says that verdicts depend on what is authorized.
	authorizer bool
	// notes are about fields of the policy.
	notes []Note

	exported Exported
	err      error
}

// embed returns an expression of a user, with the variables that it reads bound to their
// values, or without for one that the API server cannot evaluate.
func (x *exporter) embed(field string, place cel.Place, text, without string) (string, cel.Embedded) {
	read, err := cel.Embed(place, text, cel.Bool)
	if err != nil {
		x.notes = append(x.notes, Note{field, "cannot be evaluated by the API server: " + err.Error(), true})
		return without, cel.Embedded{}
	}
	return x.bound(&read, bind), read
}

// ask is embed for an expression of a grant or a setter, which allows nothing where it cannot be evaluated
// and may ask the authorizer.
func (x *exporter) ask(field string, place cel.Place, text string) (string, cel.Embedded) {
	expression, read := x.embed(field, place, text, "false")
	if read.Reads("authorizer") {
		x.authorizer = true
		x.notes = append(x.notes, AboutQuestions(field))
	}
	return expression, read
}

// bound binds the variables that an expression reads to their values, and records the fields
// of which it asks whether they are set.
func (x *exporter) bound(read *cel.Embedded, bind func(name, value, expression string) string) string {
	for _, f := range x.fields {
		if read.Sets(f.Name) && !slices.Contains(x.set, f.Name) {
			x.set = append(x.set, f.Name)
		}
	}
	slices.Sort(x.set)
	text := "(\n" + read.Text + "\n)" // the expression may end with a comment
	for _, v := range x.bindings {
		if read.Reads(v.Name) {
			text = bind(v.Name, v.Expression, text)
		}
	}
	return text
}

// readConditions sets the conditions, and reports whether they ask the authorizer.
func (x *exporter) readConditions(conditions []admissionregistrationv1.MatchCondition) (asks bool) {
	var terms []string
	for i, condition := range conditions {
		term, read := x.embed(fmt.Sprintf("spec.matchConditions[%d]", i), cel.OfRequest, condition.Expression, "true")
		terms, asks = append(terms, term), asks || read.Reads("authorizer")
	}
	x.conditions = and(terms...)
	return asks
}

// object returns the map of a toleration or a taint t in which all text fields have a value,
// with more entries.
func (x *exporter) object(entries ...string) string {
	for _, f := range x.fields {
		entries = append(entries, fmt.Sprintf("%[1]q: dyn(t.?%[1]s.orValue(%[2]q))", f.Name, f.Expression))
	}
	for _, name := range x.set {
		entries = append(entries, fmt.Sprintf("%q: dyn(has(t.%s))", cel.SetName(name), name))
	}
	return "{" + strings.Join(append(entries, x.optional), ", ") + "}"
}

// add adds a ValidatingAdmissionPolicy and its binding to the export. It looks at the resources that rules
// say, outside of exempt namespaces.
func (x *exporter) add(e *export) {
	name := x.prefix + e.what
	if reasons := apivalidation.NameIsDNSSubdomain(name, false); len(reasons) > 0 && x.err == nil {
		x.err = fmt.Errorf("name what %s is exported as: %q %s; give it a shorter name", x.title, name, reasons[0])
	}
	meta := metav1.ObjectMeta{Name: name, Annotations: map[string]string{ExportedFrom: x.ref}}
	annotated := *meta.DeepCopy()
	notes, lines := slices.Clone(x.notes), []string(nil)
	for _, text := range e.notes {
		notes = append(notes, Note{Text: text})
	}
	for _, note := range notes {
		lines = append(lines, note.String())
		if !slices.Contains(x.exported.Notes, note) {
			x.exported.Notes = append(x.exported.Notes, note)
		}
	}
	if len(lines) > 0 {
		annotated.Annotations[NotExported] = strings.Join(lines, "\n")
	}
	spec := admissionregistrationv1.ValidatingAdmissionPolicySpec{
		FailurePolicy:    new(admissionregistrationv1.Fail), // as an expression that fails refuses in Tollgate
		MatchConstraints: &admissionregistrationv1.MatchResources{MatchPolicy: new(admissionregistrationv1.Equivalent), ResourceRules: e.rules},
		Validations:      e.validations,
	}
	for _, c := range e.conditions {
		spec.MatchConditions = append(spec.MatchConditions, admissionregistrationv1.MatchCondition(c))
	}
	for _, v := range e.variables {
		spec.Variables = append(spec.Variables, admissionregistrationv1.Variable(v))
	}
	if len(x.exempt) > 0 {
		spec.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: slices.Clone(x.exempt),
		}}}
	}
	binding := admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name}
	for _, action := range x.actions {
		binding.ValidationActions = append(binding.ValidationActions, admissionregistrationv1.ValidationAction(action))
	}
	if len(x.actions) == 0 {
		binding.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	}
	x.exported.Objects = append(x.exported.Objects,
		&admissionregistrationv1.ValidatingAdmissionPolicy{TypeMeta: typeMeta("ValidatingAdmissionPolicy"), ObjectMeta: annotated, Spec: spec},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{TypeMeta: typeMeta("ValidatingAdmissionPolicyBinding"), ObjectMeta: meta, Spec: binding})
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: kind}
}

// refuses returns a validation that holds if an expression does, or if the conditions of the
// policy do not hold for the request. Conditions that cannot be evaluated do not matter where
// the expression holds.
func refuses(unless, message, expression string) validation {
	return validation{
		Expression: unless, Message: message, MessageExpression: expression, Reason: new(metav1.StatusReasonForbidden),
	}
}

// The operations of rules.
var (
	created     = []operation{admissionregistrationv1.Create}
	updated     = []operation{admissionregistrationv1.Update}
	written     = slices.Concat(created, updated)
	everyChange = slices.Concat(written, []operation{admissionregistrationv1.Delete})
)

// The scopes of rules.
const (
	clusterWide = admissionregistrationv1.ClusterScope
	namespaced  = admissionregistrationv1.NamespacedScope
)

// rule returns a rule for resources of one group.
func rule(group, version string, scope admissionregistrationv1.ScopeType, operations []operation, resources ...string) resourceRule {
	return resourceRule{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: operations,
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: resources, Scope: new(scope)},
	}}
}

// mostKeys is about how many keys RBAC is asked for one object: a question costs 350,000 of
// the 10,000,000 that the API server spends on a policy, and a pod is two users to ask
// about. An object with more keys is refused.
const mostKeys = 8

// may returns whether an authorizer of CEL allows a verb on the taints with a key, which is
// an expression.
func may(authorizer, verb, key string) string {
	return fmt.Sprintf(`%s.group(%q).resource("taints").name(%s).check(%q).allowed()`, authorizer, v1alpha1.GroupVersion.Group, key, verb)
}

// allowed returns variables that end in one called "allowed": those of the wanted keys that
// one of some authorizers allows. Each key has a variable, because the cost of an expression
// bounds it to two questions.
func allowed(wanted, verb string, authorizers ...string) []named {
	variables := []named{
		{"wanted", wanted},
		{"keys", "variables.wanted.transformList(i, k, !variables.wanted.exists(j, o, j < i && o == k), k)"},
	}
	all := make([]string, mostKeys)
	for i := range all {
		answers := make([]string, len(authorizers))
		for j, authorizer := range authorizers {
			answers[j] = may(authorizer, verb, fmt.Sprintf("variables.keys[%d]", i))
		}
		variables = append(variables, named{fmt.Sprintf("may%d", i), fmt.Sprintf("size(variables.keys) > %d && (%s)", i, or(answers...))})
		all[i] = fmt.Sprintf("(variables.may%[1]d ? [variables.keys[%[1]d]] : [])", i)
	}
	return append(variables, named{"allowed", strings.Join(all, " + ")})
}
