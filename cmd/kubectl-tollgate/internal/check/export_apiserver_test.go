package check

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/tollgate-dev/tollgate/policy"
)

// request is what the API server asks about.
type request struct {
	*admissionv1.AdmissionRequest

	object, old runtime.Object
	namespace   *corev1.Namespace // nil for what is in none
}

// enforced is an exported policy as the API server evaluates it, in the version that it
// takes from a client of Kubernetes 1.34.
type enforced struct {
	policy  *admissionregistrationv1.ValidatingAdmissionPolicy
	actions []admissionregistrationv1.ValidationAction

	conditions, validations, messages plugincel.ConditionEvaluator
}

// expression is one of a policy.
type expression struct {
	name, text string
	returns    *cel.Type
}

func (e *expression) GetName() string          { return e.name }
func (e *expression) GetExpression() string    { return e.text }
func (e *expression) ReturnTypes() []*cel.Type { return []*cel.Type{e.returns} }

// enforce compiles policies, each followed by its binding. Every expression has to.
func enforce(tb testing.TB, objects []runtime.Object) []*enforced {
	tb.Helper()
	var all []*enforced
	for _, object := range objects {
		switch o := object.(type) {
		case *admissionregistrationv1.ValidatingAdmissionPolicy:
			all = append(all, compileAll(tb, o))
		case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
			last := all[len(all)-1]
			require.Equal(tb, last.policy.Name, o.Spec.PolicyName)
			last.actions = o.Spec.ValidationActions
		}
	}
	return all
}

func compileAll(tb testing.TB, p *admissionregistrationv1.ValidatingAdmissionPolicy) *enforced {
	tb.Helper()
	const mode = environment.NewExpressions
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, 33)))
	require.NoError(tb, err)
	declared := plugincel.OptionalVariableDeclarations{HasAuthorizer: true}
	for _, v := range p.Spec.Variables {
		result := compiler.CompileAndStoreVariable(&expression{v.Name, v.Expression, cel.AnyType}, declared, mode)
		require.Nil(tb, result.Error, "%s: %s: %v", p.Name, v.Name, result.Error)
	}
	compile := func(text string, returns *cel.Type, declared plugincel.OptionalVariableDeclarations) plugincel.ExpressionAccessor {
		e := &expression{"", text, returns}
		result := compiler.CompileCELExpression(e, declared, mode)
		require.Nil(tb, result.Error, "%s: %s: %v", p.Name, text, result.Error)
		return e
	}
	var conditions, validations, messages []plugincel.ExpressionAccessor
	for i := range p.Spec.MatchConditions {
		conditions = append(conditions, compile(p.Spec.MatchConditions[i].Expression, cel.BoolType, declared))
	}
	// In a message nobody can be asked what is authorized.
	var unasked plugincel.OptionalVariableDeclarations
	for _, v := range p.Spec.Validations {
		require.NotEmpty(tb, v.Message)
		validations = append(validations, compile(v.Expression, cel.BoolType, declared))
		message := v.MessageExpression
		if message == "" {
			message = `""`
		}
		messages = append(messages, compile(message, cel.StringType, unasked))
	}
	return &enforced{
		policy: p, conditions: compiler.CompileCondition(conditions, declared, mode),
		validations: compiler.CompileCondition(validations, declared, mode), messages: compiler.CompileCondition(messages, unasked, mode),
	}
}

// decide returns what each validation that does not hold says, as the API server does: all
// conditions have to hold, what cannot be evaluated is refused, and so is what costs too
// much. Cost is what is left of what may be spent.
func (e *enforced) decide(tb testing.TB, r *request, by authorizer.Authorizer) (messages []string, cost int64) {
	tb.Helper()
	asked, v := r.AdmissionRequest, versioned(r)
	namespace := plugincel.CreateNamespaceObject(r.namespace)
	bound := plugincel.OptionalVariableBindings{Authorizer: by}
	results, _, err := e.conditions.ForInput(tb.Context(), v, asked, bound, namespace, celconfig.RuntimeCELCostBudgetMatchConditions)
	require.NoError(tb, err)
	for _, result := range results {
		require.NoError(tb, result.Error)
		if result.EvalResult != types.True {
			return nil, 0
		}
	}
	results, left, err := e.validations.ForInput(tb.Context(), v, asked, bound, namespace, celconfig.RuntimeCELCostBudget)
	if err != nil {
		return []string{err.Error()}, celconfig.RuntimeCELCostBudget
	}
	texts, left, err := e.messages.ForInput(tb.Context(), v, asked, plugincel.OptionalVariableBindings{}, namespace, left)
	if err != nil {
		return []string{"the messages: " + err.Error()}, celconfig.RuntimeCELCostBudget
	}
	for i, result := range results {
		switch {
		case result.Error != nil:
			messages = append(messages, result.Error.Error())
		case result.EvalResult != types.True:
			said := e.policy.Spec.Validations[i].Message
			if text := texts[i]; text.Error == nil {
				if line, ok := text.EvalResult.Value().(string); ok && line != "" && len(line) <= celconfig.MaxEvaluatedMessageExpressionSizeBytes {
					said = line
				}
			}
			messages = append(messages, said)
		}
	}
	return messages, celconfig.RuntimeCELCostBudget - left
}

// matches reports whether the policy is about a request.
func (e *enforced) matches(tb testing.TB, r *request) bool {
	tb.Helper()
	selector, err := metav1.LabelSelectorAsSelector(cmp.Or(e.policy.Spec.MatchConstraints.NamespaceSelector, &metav1.LabelSelector{}))
	require.NoError(tb, err)
	if r.namespace != nil && !selector.Matches(labels.Set(r.namespace.Labels)) {
		return false
	}
	resource := r.Resource.Resource
	if r.SubResource != "" {
		resource += "/" + r.SubResource
	}
	return slices.ContainsFunc(e.policy.Spec.MatchConstraints.ResourceRules, func(rule admissionregistrationv1.NamedRuleWithOperations) bool {
		return rule.APIGroups[0] == r.Resource.Group && slices.Contains(rule.Resources, resource) &&
			slices.Contains(rule.Operations, admissionregistrationv1.OperationType(r.Operation))
	})
}

// answer is what is said of a request.
type answer struct {
	denied, warned bool
	messages       []string
	// cost is that of the policy which cost most.
	cost int64
}

// tooCostly reports whether the API server refused to go on, and not what it was asked.
func (a *answer) tooCostly() bool {
	return slices.ContainsFunc(a.messages, func(m string) bool { return strings.Contains(m, "actual cost limit exceeded") })
}

func (a *answer) String() string { return strings.Join(a.messages, "\n  ") }

// askPolicies returns what all policies say of a request.
func askPolicies(tb testing.TB, policies []*enforced, r *request, by authorizer.Authorizer) answer {
	tb.Helper()
	var said answer
	for _, e := range policies {
		if !e.matches(tb, r) {
			continue
		}
		messages, cost := e.decide(tb, r, by)
		said.cost = max(said.cost, cost)
		for _, message := range messages {
			said.messages = append(said.messages, message)
			said.denied = said.denied || slices.Contains(e.actions, admissionregistrationv1.Deny)
			said.warned = said.warned || slices.Contains(e.actions, admissionregistrationv1.Warn)
		}
	}
	return said
}

func versioned(r *request) *admission.VersionedAttributes {
	kind, resource := schema.GroupVersionKind(r.Kind), schema.GroupVersionResource(r.Resource)
	user := r.UserInfo
	attributes := admission.NewAttributesRecord(r.object, r.old, kind, r.Namespace, r.Name, resource, r.SubResource,
		admission.Operation(r.Operation), nil, false, policy.UserInfo(&user))
	v := &admission.VersionedAttributes{Attributes: attributes, VersionedKind: kind}
	if r.object != nil {
		v.VersionedObject = admission.NewLazyObject(r.object)
	}
	if r.old != nil {
		v.VersionedOldObject = admission.NewLazyObject(r.old)
	}
	return v
}
