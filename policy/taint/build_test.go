package taint

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
)

var noon = time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC)

// option changes a policy that a test makes up.
type option func(*v1alpha1.TaintPolicySpec)

// newPolicy returns a policy for taints of nodes with a key.
func newPolicy(name, key string, options ...option) v1alpha1.TaintPolicy {
	p := v1alpha1.TaintPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.TaintPolicySpec{
			Taints:            []v1alpha1.TaintSelector{{Target: v1alpha1.TaintTargetNode, Key: key}},
			ValidationActions: []v1alpha1.ValidationAction{v1alpha1.Deny},
		},
	}
	for _, o := range options {
		o(&p.Spec)
	}
	return p
}

func ofDevices(drivers ...string) option {
	return func(s *v1alpha1.TaintPolicySpec) {
		s.Taints[0].Target, s.Taints[0].Drivers = v1alpha1.TaintTargetDevice, drivers
	}
}

func setBy(group string, operations ...v1alpha1.TaintOperation) option {
	return func(s *v1alpha1.TaintPolicySpec) {
		s.Setters = append(s.Setters, v1alpha1.TaintSetter{
			Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, Name: group}}, Operations: operations,
		})
	}
}

func setByRBAC(s *v1alpha1.TaintPolicySpec) {
	s.Setters = append(s.Setters, v1alpha1.TaintSetter{RBAC: true})
}

func setWhere(text string) option {
	return func(s *v1alpha1.TaintPolicySpec) {
		s.Setters = append(s.Setters, v1alpha1.TaintSetter{Expression: text})
	}
}

func matching(text string) option {
	return func(s *v1alpha1.TaintPolicySpec) {
		s.MatchConditions = append(s.MatchConditions, admissionregistrationv1.MatchCondition{Name: "condition", Expression: text})
	}
}

func acting(actions ...v1alpha1.ValidationAction) option {
	return func(s *v1alpha1.TaintPolicySpec) { s.ValidationActions = actions }
}

func limited(limits v1alpha1.TaintLimits) option {
	return func(s *v1alpha1.TaintPolicySpec) { s.Limits = &limits }
}

func registering(reconcile bool, labels map[string]string, taints ...v1alpha1.RegisteredTaint) option {
	return func(s *v1alpha1.TaintPolicySpec) {
		s.Register = append(s.Register, v1alpha1.TaintRegistration{
			NodeSelector: metav1.LabelSelector{MatchLabels: labels}, Taints: taints, Reconcile: reconcile,
		})
	}
}

var (
	sre     = &authenticationv1.UserInfo{Username: "ann", Groups: []string{"sre", "system:authenticated"}}
	outside = &authenticationv1.UserInfo{Username: "bob", Groups: []string{"system:authenticated"}}
	kubelet = &authenticationv1.UserInfo{Username: "system:node:n1", Groups: []string{"system:nodes", "system:authenticated"}}
)

// authorizing answers what RBAC would.
func authorizing(answer func(a authorizer.Attributes) (bool, error)) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if ok, err := answer(a); err != nil || !ok {
			return authorizer.DecisionNoOpinion, "", err
		}
		return authorizer.DecisionAllow, "", nil
	})
}

var errNobodyAnswers = errors.New("nobody answers")

func nodeTaint(key, value string, effect corev1.TaintEffect) corev1.Taint {
	return corev1.Taint{Key: key, Value: value, Effect: effect}
}

func at(t corev1.Taint, when time.Time) corev1.Taint {
	t.TimeAdded = new(metav1.NewTime(when))
	return t
}

// input is the request of a user to change the taints of a node from old to now.
func input(user *authenticationv1.UserInfo, now, old []corev1.Taint) Input {
	return Input{
		User:   user,
		Review: &cel.Review{Request: &admissionv1.AdmissionRequest{Operation: admissionv1.Update, UserInfo: *user}},
		Writes: NodeWrites(now, old, noon),
		Now:    noon,
	}
}

// ruleInput is the request of a user to change a DeviceTaintRule.
func ruleInput(user *authenticationv1.UserInfo, change RuleChange) Input {
	in := input(user, nil, nil)
	in.Writes, in.Rule = change.Writes(), &change
	return in
}

func judge(t *testing.T, in Input, policies ...v1alpha1.TaintPolicy) policy.Decision {
	t.Helper()
	decision, err := Compile(policies).Judge(t.Context(), in)
	require.NoError(t, err)
	return decision
}

func reasons(decision policy.Decision) []policy.Reason {
	found := []policy.Reason{}
	for _, f := range decision.Findings {
		found = append(found, f.Reason)
	}
	return found
}

func operations(writes []Write) []v1alpha1.TaintOperation {
	found := []v1alpha1.TaintOperation{}
	for i := range writes {
		found = append(found, writes[i].Operation)
	}
	return found
}

// permutations calls visit with every order of the first few of items.
func permutations[T any](items []T, visit func([]T)) {
	var walk func(n int)
	order := slices.Clone(items)
	walk = func(n int) {
		if n == len(order) {
			visit(slices.Clone(order))
			return
		}
		for i := n; i < len(order); i++ {
			order[n], order[i] = order[i], order[n]
			walk(n + 1)
			order[n], order[i] = order[i], order[n]
		}
	}
	walk(0)
}

func rule(selector *resourcev1.DeviceTaintSelector, key, value string, effect resourcev1.DeviceTaintEffect) *resourcev1.DeviceTaintRuleSpec {
	return &resourcev1.DeviceTaintRuleSpec{
		DeviceSelector: selector,
		Taint:          resourcev1.DeviceTaint{Key: key, Value: value, Effect: effect, TimeAdded: new(metav1.NewTime(noon))},
	}
}

func driver(name string) *resourcev1.DeviceTaintSelector {
	return &resourcev1.DeviceTaintSelector{Driver: &name}
}
