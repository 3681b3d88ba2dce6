package vap

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// applied is the node after the patch of an exported policy, by the API server's own
// evaluator.
func applied(t *testing.T, policy *admissionregistrationv1.MutatingAdmissionPolicy, node *corev1.Node) []corev1.Taint {
	t.Helper()
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	require.NoError(t, err)
	evaluator := compiler.CompileMutatingEvaluator(&patch.JSONPatchCondition{Expression: policy.Spec.Mutations[0].JSONPatch.Expression},
		plugincel.OptionalVariableDeclarations{HasAuthorizer: true, HasPatchTypes: true}, environment.NewExpressions)

	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	gvk, gvr := corev1.SchemeGroupVersion.WithKind("Node"), schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	attributes := admission.NewAttributesRecord(node, nil, gvk, "", node.Name, gvr, "", admission.Create, &metav1.CreateOptions{}, false, nil)
	patched, err := patch.NewJSONPatcher(evaluator).Patch(t.Context(), patch.Request{
		MatchedResource:     gvr,
		VersionedAttributes: &admission.VersionedAttributes{Attributes: attributes, VersionedKind: gvk, VersionedObject: admission.NewLazyObject(node)},
		ObjectInterfaces:    admission.NewObjectInterfacesFromScheme(scheme),
		OptionalVariables:   plugincel.OptionalVariableBindings{},
	}, 1_000_000)
	require.NoError(t, err)
	return patched.(*corev1.Node).Spec.Taints
}

var (
	bananaPool  = map[string]string{"pool": "banana"}
	bananaTaint = v1alpha1.RegisteredTaint{Key: "dedicated", Value: "banana", Effect: corev1.TaintEffectNoSchedule}
)

// registering returns a TaintPolicy that gives taints to nodes with labels; none without
// taints.
func registering(name string, labels map[string]string, taints ...v1alpha1.RegisteredTaint) *v1alpha1.TaintPolicy {
	p := &v1alpha1.TaintPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Taints = []v1alpha1.TaintSelector{{Key: "dedicated"}}
	if len(taints) > 0 {
		p.Spec.Register = []v1alpha1.TaintRegistration{{NodeSelector: metav1.LabelSelector{MatchLabels: labels}, Taints: taints, Reconcile: true}}
	}
	return p
}

func TestAnExportedPolicyGivesNodesTheirTaints(t *testing.T) {
	bare := v1alpha1.RegisteredTaint{Key: "example.com/new", Effect: corev1.TaintEffectNoExecute}
	objects, err := Registrations(registering("born", bananaPool, bananaTaint, bare))
	require.NoError(t, err)
	require.Len(t, objects, 2)
	policy := objects[0].(*admissionregistrationv1.MutatingAdmissionPolicy)
	binding := objects[1].(*admissionregistrationv1.MutatingAdmissionPolicyBinding)
	require.Equal(t, policy.Name, binding.Spec.PolicyName)
	require.Equal(t, "tollgate-register-born-0", policy.Name)
	require.Equal(t, bananaPool, policy.Spec.MatchConstraints.ObjectSelector.MatchLabels)

	nodeTaint := func(key, value string, effect corev1.TaintEffect) corev1.Taint {
		return corev1.Taint{Key: key, Value: value, Effect: effect}
	}
	banana, fresh := nodeTaint("dedicated", "banana", "NoSchedule"), nodeTaint("example.com/new", "", "NoExecute")
	timed, notReadyYet := banana, nodeTaint(corev1.TaintNodeNotReady, "", "NoSchedule")
	timed.TimeAdded = new(metav1.Unix(1_700_000_000, 0))
	tests := map[string]struct{ taints, want []corev1.Taint }{
		"none":                  {nil, []corev1.Taint{banana, fresh}},
		"others":                {[]corev1.Taint{notReadyYet}, []corev1.Taint{notReadyYet, banana, fresh}},
		"one of both":           {[]corev1.Taint{fresh, notReadyYet}, []corev1.Taint{fresh, notReadyYet, banana}},
		"both, one with a time": {[]corev1.Taint{timed, fresh}, []corev1.Taint{timed, fresh}},
		"another value":         {[]corev1.Taint{nodeTaint("dedicated", "apple", "NoSchedule"), notReadyYet}, []corev1.Taint{notReadyYet, banana, fresh}},
		"a value where none is": {[]corev1.Taint{nodeTaint("example.com/new", "x", "NoExecute")}, []corev1.Taint{banana, fresh}},
		"no value where one is": {[]corev1.Taint{nodeTaint("dedicated", "", "NoSchedule")}, []corev1.Taint{banana, fresh}},
		"another effect":        {[]corev1.Taint{nodeTaint("dedicated", "apple", "NoExecute")}, []corev1.Taint{nodeTaint("dedicated", "apple", "NoExecute"), banana, fresh}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "n1"},
				Spec: corev1.NodeSpec{Taints: tt.taints},
			}
			got := applied(t, policy, node)
			require.Equal(t, tt.want, got)
			node.Spec.Taints = got
			require.Equal(t, got, applied(t, policy, node), "a second time changes nothing")
		})
	}
}

func TestNothingIsExportedOfAPolicyWithAFault(t *testing.T) {
	_, err := Registrations(registering("born", nil, bananaTaint))
	require.ErrorContains(t, err, "an empty selector would select every node")
	objects, err := Registrations(registering("plain", nil))
	require.NoError(t, err)
	require.Empty(t, objects)
}
