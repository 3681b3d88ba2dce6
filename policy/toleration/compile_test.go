package toleration

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

func TestD03AStoredPolicyThatIsNotValidNeverLetsMoreThrough(t *testing.T) {
	tests := map[string]struct {
		spec    string
		allowed bool
	}{
		"a grant with an empty selector of objects grants nothing":  {`{taints: [{key: dedicated}], grants: [{namespaces: [banana], objectSelector: {}}]}`, false},
		"a grant to nobody that is known grants nothing":            {`{taints: [{key: dedicated}], grants: [{namespaces: [banana], subjects: [{kind: User, name: jane}, {kind: Robot, name: r2}]}]}`, false},
		"a grant by an unreadable expression grants nothing":        {`{taints: [{key: dedicated}], grants: [{namespaces: [banana], expression: "true ||"}]}`, false},
		"a grant by an expression without verdict grants nothing":   {`{taints: [{key: dedicated}], grants: [{namespaces: [banana], expression: "'true'"}]}`, false},
		"a grant to nobody in particular grants nothing":            {`{taints: [{key: dedicated}], grants: [{maxTolerationSeconds: 60}]}`, false},
		"a grant to labels of the object alone grants nothing":      {`{taints: [{key: dedicated}], grants: [{objectSelector: {matchLabels: {a: b}}}]}`, false},
		"a grant with an empty selector grants nothing":             {`{taints: [{key: dedicated}], grants: [{namespaceSelector: {}}]}`, false},
		"a grant with an unreadable selector grants nothing":        {`{taints: [{key: dedicated}], grants: [{namespaceSelector: {matchExpressions: [{key: a, operator: NotIn}]}}]}`, false},
		"a grant with an unreadable namespace grants nothing":       {`{taints: [{key: dedicated}], grants: [{namespaces: [banana, "b*n"]}]}`, false},
		"a grant with a negative limit grants nothing":              {`{taints: [{key: dedicated}], grants: [{namespaces: [banana], maxTolerationSeconds: -1}]}`, false},
		"the other grants stand":                                    {`{taints: [{key: dedicated}], grants: [{expression: "maybe"}, {namespaces: [banana]}]}`, true},
		"a condition that is not readable holds":                    {`{taints: [{key: dedicated}], matchConditions: [{name: never, expression: "false && "}]}`, false},
		"a condition that is not readable grants no namespace less": {`{taints: [{key: dedicated}], grants: [{namespaces: [banana]}], matchConditions: [{name: never, expression: "never"}]}`, true},
		"a condition beside it that is false still switches it off": {`{taints: [{key: dedicated}], matchConditions: [{name: a, expression: "never"}, {name: b, expression: "false"}]}`, true},
		"an unknown action is Deny":                                 {`{taints: [{key: dedicated}], validationActions: [Audit, Shout]}`, false},
		"Deny is heard beside Warn":                                 {`{taints: [{key: dedicated}], validationActions: [Warn, Deny]}`, false},
		"an unreadable expression for the message changes nothing":  {`{taints: [{key: dedicated}], messageExpression: "'no' + "}`, false},
		"a selector of devices guards no node taint":                {`{taints: [{target: Device, key: dedicated, drivers: [gpu]}]}`, true},
		"the other selectors stand":                                 {`{taints: [{target: Device, key: "*", drivers: [gpu]}, {key: dedicated}]}`, false},
		"an unreadable pattern guards what it begins with":          {`{taints: [{key: "dedi*ted"}]}`, false},
		"a selector that is too narrow for its target is read":      {`{taints: [{key: dedicated, deviceClasses: [gpu]}]}`, false},
		"a target that is not known is a node":                      {`{taints: [{target: Rack, key: dedicated}]}`, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := policyOf(t, "stored", tt.spec)
			set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "other", `{taints: [{key: other}]}`), p})
			require.Equal(t, ValidatePolicy(&p), set.Problems()["stored"])
			require.NotEmpty(t, set.Problems()["stored"])
			require.Len(t, set.Problems(), 1)

			got := judge(t, set, inputOf("banana", tolerationsOf(t, `{key: dedicated, operator: Exists}`)...))
			require.Equal(t, tt.allowed, got.Verdict == policy.Allowed)
			for _, f := range got.Findings {
				require.Contains(t, f.String(), "the policy is not fully in force")
			}
			got = judge(t, set, inputOf("banana", tolerationsOf(t, `{key: other, operator: Exists}`)...))
			requireRefused(t, []string{"other spec.tolerations[0]"}, got)
		})
	}
}

func TestCompileKeepsNothingOfItsInput(t *testing.T) {
	p := policyOf(t, "dedicated", `{taints: [{key: dedicated, values: [a], effects: [NoSchedule, NoExecute]}], grants: [{namespaces: [banana], namespaceSelector: {matchLabels: {a: b}}, maxTolerationSeconds: 10}], validationActions: [Deny]}`)
	policies := []v1alpha1.TolerationPolicy{policyOf(t, "z", `{taints: [{key: z}]}`), p}
	set := Compile(policies)
	require.Equal(t, "z", policies[0].Name, "the input keeps its order")

	refused := inputOf("apple", toleration(t, `{key: dedicated, value: a, effect: NoSchedule}`))
	refused.NamespaceLabels["a"] = "b"
	allowed := inputOf("banana", toleration(t, `{key: dedicated, value: a, effect: NoExecute, tolerationSeconds: 5}`))
	allowed.NamespaceLabels["a"] = "b"
	want := judge(t, set, refused)
	require.Equal(t, policy.Denied, want.Verdict)
	require.Equal(t, policy.Allowed, judge(t, set, allowed).Verdict)

	p.Spec.Taints[0].Values[0] = "b"
	p.Spec.Taints[0].Effects[0] = prefer
	p.Spec.Grants[0].Namespaces[0] = "apple"
	p.Spec.Grants[0].NamespaceSelector.MatchLabels["a"] = "c"
	*p.Spec.Grants[0].MaxTolerationSeconds = 1
	p.Spec.ValidationActions[0] = v1alpha1.Audit
	judge(t, set, refused).Findings[0].Actions[0] = v1alpha1.Audit
	set.Problems()["dedicated"] = nil

	require.Equal(t, want, judge(t, set, refused))
	require.Equal(t, policy.Allowed, judge(t, set, allowed).Verdict)
	require.Empty(t, set.Problems())
}
