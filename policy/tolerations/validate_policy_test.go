package tolerations

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
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
			taints: [{target: Node, key: dedicated, values: [banana, ""], effects: [NoSchedule, PreferNoSchedule, NoExecute]}, {key: example.com/*}, {key: "*"}, {key: node.kubernetes.io/unschedulable}],
			grants: [{namespaces: [banana, "team-*", "t*", "*"], namespaceSelector: {matchLabels: {tier: system}, matchExpressions: [{key: a, operator: Exists}]}, maxTolerationSeconds: 0}],
			validationActions: [Deny, Audit], message: dedicated nodes belong to team banana}`, nil},
		"nobody is granted":                  {`{taints: [{key: dedicated}]}`, nil},
		"no taints":                          {`{grants: [{namespaces: [a]}]}`, []string{required + " spec.taints"}},
		"no key":                             {`{taints: [{key: ""}]}`, []string{required + " spec.taints[0].key"}},
		"a key that is no label name":        {`{taints: [{key: "a b"}]}`, []string{invalid + " spec.taints[0].key"}},
		"a star within a key":                {`{taints: [{key: "gpu-*"}]}`, []string{invalid + " spec.taints[0].key"}},
		"a star for a prefix":                {`{taints: [{key: "*/gpu"}]}`, []string{invalid + " spec.taints[0].key"}},
		"a prefix that is no domain":         {`{taints: [{key: "Example_/*"}]}`, []string{invalid + " spec.taints[0].key"}},
		"no prefix":                          {`{taints: [{key: "/*"}]}`, []string{invalid + " spec.taints[0].key"}},
		"a value that is no label value":     {`{taints: [{key: a, values: [ok, "-5"]}]}`, []string{invalid + " spec.taints[0].values[1]"}},
		"a value twice":                      {`{taints: [{key: a, values: [b, b]}]}`, []string{duplicate + " spec.taints[0].values[1]"}},
		"an effect of devices":               {`{taints: [{key: a, effects: [None]}]}`, []string{notSupported + " spec.taints[0].effects[0]"}},
		"an unknown effect":                  {`{taints: [{key: a, effects: [NoExecute, NoAdmit]}]}`, []string{notSupported + " spec.taints[0].effects[1]"}},
		"an effect twice":                    {`{taints: [{key: a, effects: [NoExecute, NoExecute]}]}`, []string{duplicate + " spec.taints[0].effects[1]"}},
		"taints of devices":                  {`{taints: [{target: Device, key: a, effects: [None]}]}`, []string{forbidden + " spec.taints[0].target"}},
		"taints of devices of a class":       {`{taints: [{target: Device, key: a, deviceClasses: [gpu]}]}`, []string{forbidden + " spec.taints[0].target", forbidden + " spec.taints[0].deviceClasses"}},
		"an effect that devices do not have": {`{taints: [{target: Device, key: a, effects: [PreferNoSchedule]}]}`, []string{forbidden + " spec.taints[0].target", notSupported + " spec.taints[0].effects[0]"}},
		"an unknown target":                  {`{taints: [{target: Rack, key: a}]}`, []string{notSupported + " spec.taints[0].target"}},
		"device classes of a node":           {`{taints: [{key: a, deviceClasses: [gpu]}]}`, []string{forbidden + " spec.taints[0].deviceClasses"}},
		"drivers of a node":                  {`{taints: [{key: a, drivers: [gpu]}]}`, []string{forbidden + " spec.taints[0].drivers"}},
		"a grant to nobody":                  {`{taints: [{key: a}], grants: [{}]}`, []string{required + " spec.grants[0]"}},
		"a grant of time alone":              {`{taints: [{key: a}], grants: [{namespaces: [a]}, {maxTolerationSeconds: 60}]}`, []string{required + " spec.grants[1]"}},
		"a grant to labels of the object":    {`{taints: [{key: a}], grants: [{namespaces: [a], objectSelector: {matchLabels: {a: b}}}]}`, []string{forbidden + " spec.grants[0].objectSelector"}},
		"a grant to subjects":                {`{taints: [{key: a}], grants: [{subjects: [{kind: User, name: a}]}]}`, []string{forbidden + " spec.grants[0].subjects"}},
		"a grant by RBAC":                    {`{taints: [{key: a}], grants: [{rbac: true}]}`, []string{forbidden + " spec.grants[0].rbac"}},
		"a grant by expression":              {`{taints: [{key: a}], grants: [{expression: "true"}]}`, []string{forbidden + " spec.grants[0].expression"}},
		"a namespace that is none":           {`{taints: [{key: a}], grants: [{namespaces: [Apple]}]}`, []string{invalid + " spec.grants[0].namespaces[0]"}},
		"a namespace without a name":         {`{taints: [{key: a}], grants: [{namespaces: [""]}]}`, []string{invalid + " spec.grants[0].namespaces[0]"}},
		"a star within a namespace":          {`{taints: [{key: a}], grants: [{namespaces: ["a*b"]}]}`, []string{invalid + " spec.grants[0].namespaces[0]"}},
		"two stars":                          {`{taints: [{key: a}], grants: [{namespaces: ["a**"]}]}`, []string{invalid + " spec.grants[0].namespaces[0]"}},
		"a prefix no namespace begins with":  {`{taints: [{key: a}], grants: [{namespaces: ["-a*"]}]}`, []string{invalid + " spec.grants[0].namespaces[0]"}},
		"a namespace twice":                  {`{taints: [{key: a}], grants: [{namespaces: [a, a]}]}`, []string{duplicate + " spec.grants[0].namespaces[1]"}},
		"an empty selector":                  {`{taints: [{key: a}], grants: [{namespaceSelector: {}}]}`, []string{required + " spec.grants[0].namespaceSelector"}},
		"an empty selector beside a name":    {`{taints: [{key: a}], grants: [{namespaces: [a], namespaceSelector: {matchLabels: {}}}]}`, []string{required + " spec.grants[0].namespaceSelector"}},
		"a selector that does not parse":     {`{taints: [{key: a}], grants: [{namespaceSelector: {matchExpressions: [{key: a, operator: In}]}}]}`, []string{required + " spec.grants[0].namespaceSelector.matchExpressions[0].values"}},
		"a selector with an unknown word":    {`{taints: [{key: a}], grants: [{namespaceSelector: {matchExpressions: [{key: a, operator: Gt, values: ["1"]}]}}]}`, []string{invalid + " spec.grants[0].namespaceSelector.matchExpressions[0].operator"}},
		"a label that is none":               {`{taints: [{key: a}], grants: [{namespaceSelector: {matchLabels: {"a b": c}}}]}`, []string{invalid + " spec.grants[0].namespaceSelector.matchLabels"}},
		"less than no time":                  {`{taints: [{key: a}], grants: [{namespaces: [a], maxTolerationSeconds: -1}]}`, []string{invalid + " spec.grants[0].maxTolerationSeconds"}},
		"an unknown action":                  {`{taints: [{key: a}], validationActions: [Deny, Shout]}`, []string{notSupported + " spec.validationActions[1]"}},
		"an action twice":                    {`{taints: [{key: a}], validationActions: [Warn, Warn]}`, []string{duplicate + " spec.validationActions[1]"}},
		"Deny and Warn":                      {`{taints: [{key: a}], validationActions: [Warn, Deny]}`, []string{invalid + " spec.validationActions"}},
		"match conditions":                   {`{taints: [{key: a}], matchConditions: [{name: a, expression: "true"}]}`, []string{forbidden + " spec.matchConditions"}},
		"an expression for the message":      {`{taints: [{key: a}], messageExpression: "'a'"}`, []string{forbidden + " spec.messageExpression"}},
		"a message of two lines":             {`{taints: [{key: a}], message: "a\nb"}`, []string{invalid + " spec.message"}},
		"a message that ends its line":       {`{taints: [{key: a}], message: "dédié 🚪\n"}`, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := policyOf(t, "p", tt.spec)
			errs := ValidatePolicy(&p)
			require.Equal(t, tt.want, append([]string(nil), errorsOf(errs)...), "%v", errs)
			for _, err := range errs {
				if err.Type == field.ErrorTypeForbidden {
					require.Contains(t, err.Detail, "; ", "says what to do instead")
				}
			}
		})
	}
}

func TestWhatIsNotEvaluatedIsRefusedWithWhatToUseInstead(t *testing.T) {
	p := policyOf(t, "p", `{taints: [{key: a}], grants: [{rbac: true}]}`)
	require.EqualError(t, ValidatePolicy(&p).ToAggregate(),
		"spec.grants[0].rbac: Forbidden: is not evaluated by this version of Tollgate; grant to namespaces or to a namespaceSelector")
}

func TestValidatePolicyHoldsTheLimitsOfTheSchema(t *testing.T) {
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
	p.Spec.Message = strings.Repeat("é", 1025)
	require.Equal(t, []string{
		"FieldValueTooMany spec.taints", "FieldValueTooMany spec.taints[0].values",
		"FieldValueTooMany spec.grants", "FieldValueTooMany spec.grants[0].namespaces",
		"FieldValueTooLong spec.message",
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
			grant.ObjectSelector = &metav1.LabelSelector{}
		}
		if extra&4 != 0 {
			grant.Expression = "true"
		}
		p.Spec.Grants = []v1alpha1.TolerationGrant{grant}
		if extra&8 != 0 {
			p.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "a", Expression: "true"}}
		}

		errs := ValidatePolicy(&p)
		require.Equal(t, errs, ValidatePolicy(&p), "the same policy has the same faults")
		set := Compile([]v1alpha1.TolerationPolicy{p})
		require.Equal(t, len(errs) > 0, len(set.Problems()) > 0)

		// Whatever the grant is, what it may not widen is refused.
		in := inputOf("apple", corev1.Toleration{Operator: corev1.TolerationOpExists})
		got := set.Judge(in)
		for _, finding := range got.Findings {
			require.LessOrEqual(t, len(finding.String()), maxFinding)
		}
		if extra&7 != 0 {
			requireRefused(t, []string{"p spec.tolerations[0]"}, got)
		}
	})
}
