package toleration

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

func TestValidatePolicy(t *testing.T) {
	const (
		forbidden    = string(field.ErrorTypeForbidden)
		invalid      = string(field.ErrorTypeInvalid)
		required     = string(field.ErrorTypeRequired)
		duplicate    = string(field.ErrorTypeDuplicate)
		notSupported = string(field.ErrorTypeNotSupported)
	)
	tests := map[string]struct {
		spec string
		want []string
	}{
		"every field that is evaluated": {`{
			taints: [{target: Node, key: dedicated, values: [banana, ""], effects: [NoSchedule, PreferNoSchedule, NoExecute]}, {key: example.com/*}, {key: "*"}, {key: node.kubernetes.io/unschedulable},
				{target: Device, key: "*", values: [a], effects: [None, NoSchedule, NoExecute], deviceClasses: [gpu.example.com]}],
			grants: [
				{namespaces: [banana, "team-*", "t*", "*"], namespaceSelector: {matchLabels: {tier: system}, matchExpressions: [{key: a, operator: Exists}]}, maxTolerationSeconds: 0},
				{subjects: [{kind: ServiceAccount, name: operator, namespace: infra}, {kind: Group, name: platform, apiGroup: rbac.authorization.k8s.io}], objectSelector: {matchLabels: {app: monitor}}},
				{rbac: true},
				{expression: "pod.metadata.?labels[?'maintenance'].orValue('') == 'true' && request.userInfo.username.startsWith('admin:')"}],
			matchConditions: [{name: not-kube-system, expression: "request.namespace != 'kube-system'"}],
			validationActions: [Deny, Audit], message: dedicated nodes belong to team banana,
			messageExpression: "'nobody tolerates ' + toleration.key"}`, nil},
		"nobody is granted":                       {`{taints: [{key: dedicated}]}`, nil},
		"no taints":                               {`{grants: [{namespaces: [a]}]}`, []string{required + " spec.taints"}},
		"no key":                                  {`{taints: [{key: ""}]}`, []string{required + " spec.taints[0].key"}},
		"a key that is no label name":             {`{taints: [{key: "a b"}]}`, []string{invalid + " spec.taints[0].key"}},
		"a star within a key":                     {`{taints: [{key: "gpu-*"}]}`, []string{invalid + " spec.taints[0].key"}},
		"a star for a prefix":                     {`{taints: [{key: "*/gpu"}]}`, []string{invalid + " spec.taints[0].key"}},
		"a prefix that is no domain":              {`{taints: [{key: "Example_/*"}]}`, []string{invalid + " spec.taints[0].key"}},
		"no prefix":                               {`{taints: [{key: "/*"}]}`, []string{invalid + " spec.taints[0].key"}},
		"a value that is no label value":          {`{taints: [{key: a, values: [ok, "-5"]}]}`, []string{invalid + " spec.taints[0].values[1]"}},
		"a value twice":                           {`{taints: [{key: a, values: [b, b]}]}`, []string{duplicate + " spec.taints[0].values[1]"}},
		"an effect of devices":                    {`{taints: [{key: a, effects: [None]}]}`, []string{notSupported + " spec.taints[0].effects[0]"}},
		"an unknown effect":                       {`{taints: [{key: a, effects: [NoExecute, NoAdmit]}]}`, []string{notSupported + " spec.taints[0].effects[1]"}},
		"an effect twice":                         {`{taints: [{key: a, effects: [NoExecute, NoExecute]}]}`, []string{duplicate + " spec.taints[0].effects[1]"}},
		"an effect that devices do not have":      {`{taints: [{target: Device, key: a, effects: [PreferNoSchedule]}]}`, []string{notSupported + " spec.taints[0].effects[0]"}},
		"drivers of devices":                      {`{taints: [{target: Device, key: a, drivers: [gpu]}]}`, []string{forbidden + " spec.taints[0].drivers"}},
		"an unknown target":                       {`{taints: [{target: Rack, key: a}]}`, []string{notSupported + " spec.taints[0].target"}},
		"device classes of a node":                {`{taints: [{key: a, deviceClasses: [gpu]}]}`, []string{forbidden + " spec.taints[0].deviceClasses"}},
		"drivers of a node":                       {`{taints: [{key: a, drivers: [gpu]}]}`, []string{forbidden + " spec.taints[0].drivers"}},
		"a grant to nobody":                       {`{taints: [{key: a}], grants: [{}]}`, []string{required + " spec.grants[0]"}},
		"a grant of time alone":                   {`{taints: [{key: a}], grants: [{namespaces: [a]}, {maxTolerationSeconds: 60}]}`, []string{required + " spec.grants[1]"}},
		"a grant to labels of the object":         {`{taints: [{key: a}], grants: [{objectSelector: {matchLabels: {a: b}}}]}`, []string{required + " spec.grants[0]"}},
		"an empty selector of objects":            {`{taints: [{key: a}], grants: [{namespaces: [a], objectSelector: {}}]}`, []string{required + " spec.grants[0].objectSelector"}},
		"a label of objects that is none":         {`{taints: [{key: a}], grants: [{namespaces: [a], objectSelector: {matchLabels: {"a b": c}}}]}`, []string{invalid + " spec.grants[0].objectSelector.matchLabels"}},
		"rbac that is switched off":               {`{taints: [{key: a}], grants: [{rbac: false}]}`, []string{required + " spec.grants[0]"}},
		"a subject without a name":                {`{taints: [{key: a}], grants: [{subjects: [{kind: User}]}]}`, []string{required + " spec.grants[0].subjects[0].name"}},
		"a subject of an unknown kind":            {`{taints: [{key: a}], grants: [{subjects: [{kind: User, name: a}, {kind: Robot, name: a}]}]}`, []string{notSupported + " spec.grants[0].subjects[1].kind"}},
		"D03 an expression that does not compile": {`{taints: [{key: a}], grants: [{expression: "tru"}]}`, []string{invalid + " spec.grants[0].expression"}},
		"D03 an expression that is no verdict":    {`{taints: [{key: a}], grants: [{expression: "1"}]}`, []string{invalid + " spec.grants[0].expression"}},
		"a namespace that is none":                {`{taints: [{key: a}], grants: [{namespaces: [Apple]}]}`, []string{invalid + " spec.grants[0].namespaces[0]"}},
		"a namespace without a name":              {`{taints: [{key: a}], grants: [{namespaces: [""]}]}`, []string{invalid + " spec.grants[0].namespaces[0]"}},
		"a star within a namespace":               {`{taints: [{key: a}], grants: [{namespaces: ["a*b"]}]}`, []string{invalid + " spec.grants[0].namespaces[0]"}},
		"two stars":                               {`{taints: [{key: a}], grants: [{namespaces: ["a**"]}]}`, []string{invalid + " spec.grants[0].namespaces[0]"}},
		"a prefix no namespace begins with":       {`{taints: [{key: a}], grants: [{namespaces: ["-a*"]}]}`, []string{invalid + " spec.grants[0].namespaces[0]"}},
		"a namespace twice":                       {`{taints: [{key: a}], grants: [{namespaces: [a, a]}]}`, []string{duplicate + " spec.grants[0].namespaces[1]"}},
		"an empty selector":                       {`{taints: [{key: a}], grants: [{namespaceSelector: {}}]}`, []string{required + " spec.grants[0].namespaceSelector"}},
		"an empty selector beside a name":         {`{taints: [{key: a}], grants: [{namespaces: [a], namespaceSelector: {matchLabels: {}}}]}`, []string{required + " spec.grants[0].namespaceSelector"}},
		"a selector that does not parse":          {`{taints: [{key: a}], grants: [{namespaceSelector: {matchExpressions: [{key: a, operator: In}]}}]}`, []string{required + " spec.grants[0].namespaceSelector.matchExpressions[0].values"}},
		"a selector with an unknown word":         {`{taints: [{key: a}], grants: [{namespaceSelector: {matchExpressions: [{key: a, operator: Gt, values: ["1"]}]}}]}`, []string{invalid + " spec.grants[0].namespaceSelector.matchExpressions[0].operator"}},
		"a label that is none":                    {`{taints: [{key: a}], grants: [{namespaceSelector: {matchLabels: {"a b": c}}}]}`, []string{invalid + " spec.grants[0].namespaceSelector.matchLabels"}},
		"less than no time":                       {`{taints: [{key: a}], grants: [{namespaces: [a], maxTolerationSeconds: -1}]}`, []string{invalid + " spec.grants[0].maxTolerationSeconds"}},
		"an unknown action":                       {`{taints: [{key: a}], validationActions: [Deny, Shout]}`, []string{notSupported + " spec.validationActions[1]"}},
		"an action twice":                         {`{taints: [{key: a}], validationActions: [Warn, Warn]}`, []string{duplicate + " spec.validationActions[1]"}},
		"Deny and Warn":                           {`{taints: [{key: a}], validationActions: [Warn, Deny]}`, []string{invalid + " spec.validationActions"}},
		"D03 a condition that does not compile":   {`{taints: [{key: a}], matchConditions: [{name: a, expression: "true"}, {name: b, expression: "tru"}]}`, []string{invalid + " spec.matchConditions[1].expression"}},
		"a condition about a single toleration":   {`{taints: [{key: a}], matchConditions: [{name: a, expression: "toleration.key == 'a'"}]}`, []string{invalid + " spec.matchConditions[0].expression"}},
		"a condition twice":                       {`{taints: [{key: a}], matchConditions: [{name: a, expression: "true"}, {name: a, expression: "true"}]}`, []string{duplicate + " spec.matchConditions[1].name"}},
		"D03 a message that does not compile":     {`{taints: [{key: a}], messageExpression: "'a' + 1"}`, []string{invalid + " spec.messageExpression"}},
		"a message that is no text":               {`{taints: [{key: a}], messageExpression: "true"}`, []string{invalid + " spec.messageExpression"}},
		"a message of two lines":                  {`{taints: [{key: a}], message: "a\nb"}`, []string{invalid + " spec.message"}},
		"a message that ends its line":            {`{taints: [{key: a}], message: "dédié 🚪\n"}`, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := policyOf(t, "p", tt.spec)
			errs := ValidatePolicy(&p)
			require.Equal(t, tt.want, append([]string(nil), errorsOf(errs)...), "%v", errs)
		})
	}
}

func TestD03AnExpressionIsRefusedWithItsPosition(t *testing.T) {
	p := policyOf(t, "p", `{taints: [{key: a}], grants: [{expression: "pod.metadata.name == 'a' &&\n  toleration.kee == 'a'"}]}`)
	errs := ValidatePolicy(&p)
	require.Len(t, errs, 1)
	require.Contains(t, errs[0].Detail, "line 2, column 13")
	require.Equal(t, errs, Compile([]v1alpha1.TolerationPolicy{p}).Problems()["p"])
}

func TestD06ValidatePolicyHoldsTheLimitsOfTheSchema(t *testing.T) {
	p := v1alpha1.TolerationPolicy{}
	for range 65 {
		p.Spec.Taints = append(p.Spec.Taints, v1alpha1.TaintSelector{Key: "a"})
		p.Spec.Grants = append(p.Spec.Grants, v1alpha1.TolerationGrant{Namespaces: []string{"a"}})
	}
	for i := range 65 {
		p.Spec.Taints[0].Values = append(p.Spec.Taints[0].Values, strconv.Itoa(i))
	}
	for i := range 257 {
		p.Spec.Grants[0].Namespaces = append(p.Spec.Grants[0].Namespaces, "n"+strconv.Itoa(i))
	}
	for i := range 257 {
		p.Spec.Grants[0].Subjects = append(p.Spec.Grants[0].Subjects, rbacv1.Subject{Kind: rbacv1.UserKind, Name: strconv.Itoa(i)})
	}
	p.Spec.Message = strings.Repeat("é", 1025)
	require.Equal(t, []string{
		"FieldValueTooMany spec.taints", "FieldValueTooMany spec.taints[0].values",
		"FieldValueTooMany spec.grants", "FieldValueTooLong spec.message",
		"FieldValueTooMany spec.grants[0].namespaces", "FieldValueTooMany spec.grants[0].subjects",
	}, errorsOf(ValidatePolicy(&p)))

	p.Spec.Taints, p.Spec.Grants = p.Spec.Taints[1:], p.Spec.Grants[1:]
	p.Spec.Message = strings.Repeat("é", 1024)
	require.Empty(t, ValidatePolicy(&p))
}

func FuzzValidatePolicy(f *testing.F) {
	f.Add("dedicated", "banana", "NoExecute", "team-*", "tier", "In", "gold", "message", uint8(0), int64(600))
	f.Add("example.com/*", "", "", "*", "", "", "", "", uint8(255), int64(-1))
	f.Add("*", "-5", "None", "a**", "a b", "Gt", "\xff", "\n", uint8(1), int64(0))
	f.Add("/*", "05", "NoAdmit", "-*", "a/b/c", "Exists", "x", "\u2028", uint8(2), int64(1)<<62)
	f.Add("a*b*", "a", "NoSchedule", "", "kubernetes.io/metadata.name", "DoesNotExist", "", "m", uint8(64), int64(5))
	f.Fuzz(func(t *testing.T, key, value, effect, namespace, label, operator, labelValue, message string, extra uint8, seconds int64) {
		p := v1alpha1.TolerationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
		p.Spec.Message = message
		p.Spec.Taints = []v1alpha1.TaintSelector{{Key: key, Values: []string{value}, Effects: []corev1.TaintEffect{corev1.TaintEffect(effect)}}}
		grant := v1alpha1.TolerationGrant{Namespaces: []string{namespace}}
		if label != "" {
			grant.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: label, Operator: metav1.LabelSelectorOperator(operator), Values: []string{labelValue}},
			}}
		}
		if seconds != 0 {
			grant.MaxTolerationSeconds = new(seconds)
		}
		grant.RBAC = extra&1 != 0
		if extra&2 != 0 {
			grant.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": labelValue}}
		}
		if extra&4 != 0 {
			grant.Expression = "toleration.key == '"
		}
		if extra&16 != 0 {
			grant.Subjects = []rbacv1.Subject{{Kind: rbacv1.GroupKind, Name: value}}
		}
		p.Spec.Grants = []v1alpha1.TolerationGrant{grant}
		if extra&8 != 0 {
			p.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "a", Expression: "true"}}
			p.Spec.MessageExpression = message
		}

		errs := ValidatePolicy(&p)
		require.Equal(t, errs, ValidatePolicy(&p), "the same policy has the same faults")
		set := Compile([]v1alpha1.TolerationPolicy{p})
		require.Equal(t, len(errs) > 0, len(set.Problems()) > 0)

		// Whatever the grant is, what it may not widen is refused.
		in := inputOf("apple", corev1.Toleration{Operator: corev1.TolerationOpExists})
		got := judge(t, set, in)
		for _, finding := range got.Findings {
			require.LessOrEqual(t, len(finding.String()), policy.MaxFinding)
		}
		if extra&7 != 0 {
			requireRefused(t, []string{"p spec.tolerations[0]"}, got)
		}
	})
}
