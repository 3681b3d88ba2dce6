package vap

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// tolerationFields says for every field of a TolerationPolicy how to change it. What is
// exported changes with it.
var tolerationFields = map[string]func(*v1alpha1.TolerationPolicySpec){
	"taints[].target": func(s *v1alpha1.TolerationPolicySpec) {
		s.Taints[0] = v1alpha1.TaintSelector{Key: "a", Target: v1alpha1.TaintTargetDevice}
	},
	"taints[].key":    func(s *v1alpha1.TolerationPolicySpec) { s.Taints[0].Key = "b" },
	"taints[].values": func(s *v1alpha1.TolerationPolicySpec) { s.Taints[0].Values = []string{"v"} },
	"taints[].effects": func(s *v1alpha1.TolerationPolicySpec) {
		s.Taints[0].Effects = []corev1.TaintEffect{corev1.TaintEffectNoExecute}
	},
	"taints[].deviceClasses": func(s *v1alpha1.TolerationPolicySpec) {
		s.Taints[1].DeviceClasses = []string{"gpu.example.com"}
	},
	"grants[].namespaces": func(s *v1alpha1.TolerationPolicySpec) { s.Grants[0].Namespaces = []string{"other"} },
	"grants[].namespaceSelector": func(s *v1alpha1.TolerationPolicySpec) {
		s.Grants[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}
	},
	"grants[].objectSelector": func(s *v1alpha1.TolerationPolicySpec) {
		s.Grants[0].ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	},
	"grants[].subjects": func(s *v1alpha1.TolerationPolicySpec) {
		s.Grants[0].Subjects = []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "jane"}}
	},
	"grants[].rbac":       func(s *v1alpha1.TolerationPolicySpec) { s.Grants[0].RBAC = true },
	"grants[].expression": func(s *v1alpha1.TolerationPolicySpec) { s.Grants[0].Expression = "toleration.key == 'a'" },
	"grants[].maxTolerationSeconds": func(s *v1alpha1.TolerationPolicySpec) {
		s.Grants[0].MaxTolerationSeconds = new(int64(60))
	},
	"matchConditions": func(s *v1alpha1.TolerationPolicySpec) {
		s.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "c", Expression: "request.operation == 'CREATE'"}}
	},
	"validationActions": func(s *v1alpha1.TolerationPolicySpec) {
		s.ValidationActions = []v1alpha1.ValidationAction{v1alpha1.Warn}
	},
	"message":           func(s *v1alpha1.TolerationPolicySpec) { s.Message = "no" },
	"messageExpression": func(s *v1alpha1.TolerationPolicySpec) { s.MessageExpression = "'not ' + toleration.key" },
}

// meaninglessForTolerations are the fields that a valid TolerationPolicy does not have.
var meaninglessForTolerations = []string{"taints[].drivers"}

func TestEveryFieldOfATolerationPolicyIsExportedOrSaidNotToBe(t *testing.T) {
	t.Parallel()
	export := func(change func(*v1alpha1.TolerationPolicySpec)) Exported {
		p := v1alpha1.TolerationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.TolerationPolicySpec{
			Taints: []v1alpha1.TaintSelector{{Key: "a"}, {Key: "a", Target: v1alpha1.TaintTargetDevice}},
			Grants: []v1alpha1.TolerationGrant{{Namespaces: []string{"banana"}}},
		}}
		change(&p.Spec)
		exported, err := Tolerations(&p, DefaultSettings())
		require.NoError(t, err)
		return exported
	}
	plain := export(func(*v1alpha1.TolerationPolicySpec) {})
	for _, path := range fieldsOf(reflect.TypeFor[v1alpha1.TolerationPolicySpec](), "") {
		change, ok := tolerationFields[path]
		if !ok {
			require.Contains(t, meaninglessForTolerations, path, "%s is new: decide what `kubectl tollgate export vap` makes of it", path)
			continue
		}
		changed := export(change)
		require.Empty(t, changed.Missing(), path)
		require.NotEqual(t, plain.Objects, changed.Objects, path)
	}
}

// fieldsOf returns the paths of all fields of a type of ours, as they are in JSON.
func fieldsOf(of reflect.Type, prefix string) []string {
	var paths []string
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		inner, path := field.Type, prefix+name
		if inner.Kind() == reflect.Slice {
			inner, path = inner.Elem(), path+"[]"
		}
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && inner.PkgPath() == reflect.TypeFor[v1alpha1.TolerationPolicy]().PkgPath() {
			paths = append(paths, fieldsOf(inner, path+".")...)
		} else {
			paths = append(paths, prefix+name)
		}
	}
	return paths
}

func TestWhatAnExportLeavesOutIsSaid(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		spec string
		note Note
	}{
		"an expression that takes the toleration as a whole": {
			"taints: [{key: a}]\ngrants: [{expression: \"toleration == toleration\"}]",
			Note{
				Field: "spec.grants[0].expression", Partial: true,
				Text: "cannot be evaluated by the API server: it uses toleration as a whole, of which the API server knows fields alone",
			},
		},
		"a condition that calls its own variable object": {
			"taints: [{key: a}]\nmatchConditions: [{name: c, expression: \"[1].exists(object, object > 0)\"}]",
			Note{Field: "spec.matchConditions[0]", Text: "cannot be evaluated by the API server: a macro in it calls its own variable object", Partial: true},
		},
		"a message that asks what is authorized": {
			"taints: [{key: a}]\nmessageExpression: \"authorizer.path('/x').check('get').allowed() ? 'a' : 'b'\"",
			Note{Field: "spec.messageExpression", Text: "the plain message is used: messages cannot ask what is authorized"},
		},
		"a message about grants that ask RBAC": {
			"taints: [{key: a}]\ngrants: [{rbac: true}]\nmessageExpression: \"'not ' + toleration.key\"",
			Note{
				Field: "spec.messageExpression",
				Text:  "the plain message is used: messages cannot ask what grants are for, which ask RBAC or an authorizer",
			},
		},
		"the taints of the node that a pod is bound to": {
			"taints: [{key: a}]",
			Note{Text: "a pod with spec.nodeName, and a binding of a pod, are not held against the taints of the node, which the API server does not show a policy"},
		},
		"how often a grant asks what is authorized": {
			"taints: [{key: a}]\ngrants: [{expression: \"authorizer.path('/x').check('get').allowed()\"}]",
			AboutQuestions("spec.grants[0].expression"),
		},
		"how many keys RBAC is asked about for a pod":   {"taints: [{key: a}]\ngrants: [{rbac: true}]", AboutKeys},
		"how many keys RBAC is asked about for a claim": {"taints: [{key: a, target: Device}]\ngrants: [{rbac: true}]", AboutKeys},
		"the claims that Kubernetes makes": {
			"taints: [{key: a, target: Device}]",
			Note{Text: "claims that Kubernetes makes from a template are let in, since the template was judged"},
		},
		"the labels of namespaces where there are too many keys": {
			"taints: [" + manyKeys(mostNamespaceKeys+1) + "]\ngrants: [{namespaceSelector: {matchLabels: {tier: gold}}}]",
			Note{Field: "spec.taints", Text: "names more than 20 keys: only who may tolerate every key may set labels that satisfy a namespaceSelector", Partial: true},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			p := tolerationPolicy(t, "p", c.spec)
			exported, err := Tolerations(&p, DefaultSettings())
			require.NoError(t, err)
			require.Contains(t, exported.Notes, c.note)
		})
	}
}

func manyKeys(n int) string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "{key: k" + strings.Repeat("x", i) + "}"
	}
	return strings.Join(keys, ", ")
}

func TestATolerationPolicyWithAFaultIsNotExported(t *testing.T) {
	t.Parallel()
	p := tolerationPolicy(t, "p", "taints: [{key: a}]\ngrants: [{expression: \"toleration.kye == 'a'\"}]")
	_, err := Tolerations(&p, DefaultSettings())
	require.ErrorContains(t, err, "spec.grants[0].expression")

	p = tolerationPolicy(t, strings.Repeat("p", 240), "taints: [{key: a}]")
	_, err = Tolerations(&p, DefaultSettings())
	require.ErrorContains(t, err, "give it a shorter name")
}

func tolerationPolicy(t *testing.T, name, spec string) v1alpha1.TolerationPolicy {
	t.Helper()
	p := v1alpha1.TolerationPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	require.NoError(t, yaml.UnmarshalStrict([]byte(spec), &p.Spec))
	return p
}
