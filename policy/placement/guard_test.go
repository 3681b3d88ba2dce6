package placement

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/policy/toleration"
)

// guards returns a policy that dedicates the nodes of pool banana to namespace banana.
func guards(change ...func(*v1alpha1.PlacementPolicySpec)) *v1alpha1.PlacementPolicy {
	p := &v1alpha1.PlacementPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "banana", UID: "uid", Generation: 3},
		Spec: v1alpha1.PlacementPolicySpec{
			Match: v1alpha1.PlacementMatch{Namespaces: []string{"banana"}},
			Pod:   &v1alpha1.PodPlacement{NodeSelector: map[string]string{"pool": "banana"}},
			Guard: &v1alpha1.PlacementGuard{
				Taints:  []v1alpha1.RegisteredTaint{{Key: "dedicated", Value: "banana", Effect: corev1.TaintEffectNoSchedule}},
				Message: "ask the platform team", ValidationActions: []v1alpha1.ValidationAction{v1alpha1.Warn},
			},
		},
	}
	for _, f := range change {
		f(&p.Spec)
	}
	return p
}

func TestGuardStandsForPolicies(t *testing.T) {
	t.Parallel()
	everyone := []v1alpha1.TaintSetter{{Subjects: []rbacv1.Subject{
		{APIGroup: "rbac.authorization.k8s.io", Kind: "Group", Name: "system:authenticated"},
		{APIGroup: "rbac.authorization.k8s.io", Kind: "Group", Name: "system:unauthenticated"},
	}}}
	selectors := []v1alpha1.TaintSelector{{Target: "Node", Key: "dedicated", Values: []string{"banana"}}}
	ofNamespace := v1alpha1.TolerationGrant{Namespaces: []string{"banana"}}
	registered := func(nodes metav1.LabelSelector, reconcile bool) []v1alpha1.TaintRegistration {
		return []v1alpha1.TaintRegistration{{
			NodeSelector: nodes, Reconcile: reconcile,
			Taints: []v1alpha1.RegisteredTaint{{Key: "dedicated", Value: "banana", Effect: corev1.TaintEffectNoSchedule}},
		}}
	}
	tests := []struct {
		name      string
		policy    *v1alpha1.PlacementPolicy
		grants    []v1alpha1.TolerationGrant
		setters   []v1alpha1.TaintSetter
		registers []v1alpha1.TaintRegistration
		unTainted bool
	}{
		{name: "the namespaces of the match are granted the taints, and the taints are not governed", policy: guards(), grants: []v1alpha1.TolerationGrant{ofNamespace}, unTainted: true},
		{
			name: "grants come before that of the match, so that errors have their index",
			policy: guards(func(s *v1alpha1.PlacementPolicySpec) {
				s.Guard.Grants = []v1alpha1.TolerationGrant{{RBAC: true}}
			}),
			grants: []v1alpha1.TolerationGrant{{RBAC: true}, ofNamespace}, unTainted: true,
		},
		{
			name: "a selector of pods narrows the grant, and one that selects everything does not",
			policy: guards(func(s *v1alpha1.PlacementPolicySpec) {
				s.Match.NamespaceSelector = &metav1.LabelSelector{}
				s.Match.PodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
			}),
			grants:    []v1alpha1.TolerationGrant{{Namespaces: []string{"banana"}, ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}}},
			unTainted: true,
		},
		{
			name:      "a match that a grant cannot express is granted nothing",
			policy:    guards(func(s *v1alpha1.PlacementPolicySpec) { s.Match.Resources = []string{"nvidia.com/gpu"} }),
			unTainted: true,
		},
		{
			name:   "a stored namespace with a fault does not void the grant of the others",
			policy: guards(func(s *v1alpha1.PlacementPolicySpec) { s.Match.Namespaces = []string{"Bad_x", "banana"} }),
			grants: []v1alpha1.TolerationGrant{ofNamespace}, unTainted: true,
		},
		{
			name: "stored namespaces that all have a fault do not widen a selector",
			policy: guards(func(s *v1alpha1.PlacementPolicySpec) {
				s.Match.Namespaces, s.Match.NamespaceSelector = []string{"Bad_x"}, &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
			}),
			unTainted: true,
		},
		{
			name: "a match that names no namespaces is granted nothing",
			policy: guards(func(s *v1alpha1.PlacementPolicySpec) {
				s.Match = v1alpha1.PlacementMatch{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
			}),
			unTainted: true,
		},
		{
			name:      "register is for the nodes to which the pods are steered, and leaves open who may set the taints",
			policy:    guards(func(s *v1alpha1.PlacementPolicySpec) { s.Guard.Register = &v1alpha1.GuardRegistration{Reconcile: true} }),
			grants:    []v1alpha1.TolerationGrant{ofNamespace},
			setters:   everyone,
			registers: registered(metav1.LabelSelector{MatchLabels: map[string]string{"pool": "banana"}}, true),
		},
		{
			name: "register can have a selector of its own, and setters restrict who may set the taints",
			policy: guards(func(s *v1alpha1.PlacementPolicySpec) {
				s.Guard.Register = &v1alpha1.GuardRegistration{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"rack": "7"}}}
				s.Guard.Setters = []v1alpha1.TaintSetter{{RBAC: true}}
			}),
			grants:    []v1alpha1.TolerationGrant{ofNamespace},
			setters:   []v1alpha1.TaintSetter{{RBAC: true}},
			registers: registered(metav1.LabelSelector{MatchLabels: map[string]string{"rack": "7"}}, false),
		},
		{
			name:    "setters without register",
			policy:  guards(func(s *v1alpha1.PlacementPolicySpec) { s.Guard.Setters = []v1alpha1.TaintSetter{{RBAC: true}} }),
			grants:  []v1alpha1.TolerationGrant{ofNamespace},
			setters: []v1alpha1.TaintSetter{{RBAC: true}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := tt.policy.DeepCopy()
			tolerations, taints := Guard(tt.policy)
			require.Equal(t, before, tt.policy, "the policy stays as it is")
			require.Equal(t, metav1.ObjectMeta{Name: "PlacementPolicy/banana", UID: "uid", Generation: 3}, tolerations.ObjectMeta)
			require.Equal(t, v1alpha1.TolerationPolicySpec{
				Taints: selectors, Grants: tt.grants, Message: "ask the platform team", ValidationActions: []v1alpha1.ValidationAction{v1alpha1.Warn},
			}, tolerations.Spec)
			if tt.unTainted {
				require.Nil(t, taints)
				return
			}
			require.Equal(t, tolerations.ObjectMeta, taints.ObjectMeta)
			require.Equal(t, v1alpha1.TaintPolicySpec{
				Taints: selectors, Setters: tt.setters, Register: tt.registers,
				Message: "ask the platform team", ValidationActions: []v1alpha1.ValidationAction{v1alpha1.Warn},
			}, taints.Spec)
			if len(ValidatePolicy(tt.policy)) == 0 {
				require.Empty(t, toleration.ValidatePolicy(tolerations))
				require.Empty(t, taint.ValidatePolicy(taints))
			}
		})
	}
	t.Run("without a guard there are none", func(t *testing.T) {
		t.Parallel()
		tolerations, taints := Guard(&v1alpha1.PlacementPolicy{})
		require.Nil(t, tolerations)
		require.Nil(t, taints)
	})
}

func TestAGuardGivesPodsTheTolerationsOfItsTaints(t *testing.T) {
	t.Parallel()
	policy := guards(func(s *v1alpha1.PlacementPolicySpec) {
		s.Pod = nil
		s.Guard.Taints = append(s.Guard.Taints, v1alpha1.RegisteredTaint{Key: "dedicated", Value: "banana", Effect: corev1.TaintEffectNoExecute})
	})
	spec := corev1.PodSpec{}
	additions := matchPod(t, *policy).GivePod(Pod{Spec: &spec})
	additions.Apply(&spec)
	require.Equal(t, []corev1.Toleration{
		{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "banana", Effect: corev1.TaintEffectNoSchedule},
		{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "banana", Effect: corev1.TaintEffectNoExecute},
	}, spec.Tolerations)
}

func TestAStoredGuardThatGrantsNothingGivesNothing(t *testing.T) {
	t.Parallel()
	set := Compile([]v1alpha1.PlacementPolicy{*guards(func(s *v1alpha1.PlacementPolicySpec) { s.Match.Resources = []string{"nvidia.com/gpu"} })})
	require.NotEmpty(t, set.Problems())
	matching, err := set.MatchPod(t.Context(), &Subject{Namespace: "banana", NamespaceLabels: map[string]string{}, Resources: func() ([]string, error) { return []string{"nvidia.com/gpu"}, nil }})
	require.NoError(t, err)
	spec := corev1.PodSpec{}
	additions := matching.GivePod(Pod{Spec: &spec})
	additions.Apply(&spec)
	require.Empty(t, spec.Tolerations)
}

func TestValidateGuard(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*v1alpha1.PlacementPolicySpec)
		want   []string
	}{
		{name: "a guard alone", change: func(s *v1alpha1.PlacementPolicySpec) { s.Pod = nil }},
		{name: "a guard with all it can have", change: func(s *v1alpha1.PlacementPolicySpec) {
			s.Guard.Grants = []v1alpha1.TolerationGrant{{RBAC: true}, {Expression: "true"}}
			s.Guard.Setters = []v1alpha1.TaintSetter{{RBAC: true}}
			s.Guard.Register = &v1alpha1.GuardRegistration{Reconcile: true}
		}},
		{
			name:   "a match by resources",
			change: func(s *v1alpha1.PlacementPolicySpec) { s.Match.Resources = []string{"nvidia.com/gpu"} },
			want:   []string{"FieldValueForbidden spec.guard"},
		},
		{
			name: "a match by conditions",
			change: func(s *v1alpha1.PlacementPolicySpec) {
				s.Match.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "c", Expression: "true"}}
			},
			want: []string{"FieldValueForbidden spec.guard"},
		},
		{
			name:   "a fault of the match is reported once",
			change: func(s *v1alpha1.PlacementPolicySpec) { s.Match.Namespaces = []string{"A"} },
			want:   []string{"FieldValueInvalid spec.match.namespaces[0]"},
		},
		{
			name:   "no taints",
			change: func(s *v1alpha1.PlacementPolicySpec) { s.Guard.Taints = nil },
			want:   []string{"FieldValueRequired spec.guard.taints"},
		},
		{
			name: "taints with faults, each named once",
			change: func(s *v1alpha1.PlacementPolicySpec) {
				s.Guard.Taints = []v1alpha1.RegisteredTaint{{Key: "a b", Effect: "NoSchedule"}, {Key: "a", Effect: "Never"}, {Key: "c/*", Effect: "NoSchedule"}}
			},
			want: []string{"FieldValueInvalid spec.guard.taints[0].key", "FieldValueNotSupported spec.guard.taints[1].effect", "FieldValueInvalid spec.guard.taints[2].key"},
		},
		{
			name: "a grant and a setter that name nobody",
			change: func(s *v1alpha1.PlacementPolicySpec) {
				s.Guard.Grants = []v1alpha1.TolerationGrant{{RBAC: true}, {}}
				s.Guard.Setters = []v1alpha1.TaintSetter{{}}
			},
			want: []string{"FieldValueRequired spec.guard.grants[1]", "FieldValueRequired spec.guard.setters[0]"},
		},
		{
			name: "register without nodes",
			change: func(s *v1alpha1.PlacementPolicySpec) {
				s.Pod, s.Guard.Register = nil, &v1alpha1.GuardRegistration{}
			},
			want: []string{"FieldValueRequired spec.guard.register.nodeSelector"},
		},
		{
			name: "register with a selector that cannot be read",
			change: func(s *v1alpha1.PlacementPolicySpec) {
				s.Guard.Register = &v1alpha1.GuardRegistration{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a b": ""}}}
			},
			want: []string{"FieldValueInvalid spec.guard.register.nodeSelector.matchLabels"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, fields(ValidatePolicy(guards(tt.change))))
		})
	}
}

func TestAGuardWarnsOfWhatMayChangeAfterItIsGranted(t *testing.T) {
	t.Parallel()
	const rest = " at the object as it is when a toleration is added; it may be changed afterwards and keeps the toleration"
	require.Equal(t, []string{"spec.guard.grants[0]: expression looks" + rest, "spec.match.podSelector: looks" + rest},
		Warnings(guards(func(s *v1alpha1.PlacementPolicySpec) {
			s.Match.PodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
			s.Guard.Grants = []v1alpha1.TolerationGrant{{Expression: "pod.metadata.name == 'a'"}}
		})))
	require.Equal(t, []string{`spec.match.namespaces: with "*" the guard lets the pods of every namespace tolerate its taints`},
		Warnings(guards(func(s *v1alpha1.PlacementPolicySpec) { s.Match.Namespaces = []string{"*"} })))
	require.Empty(t, Warnings(guards()))
	require.Empty(t, Warnings(&v1alpha1.PlacementPolicy{}))
}
