package tolerations

import (
	"strconv"
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
		"a grant narrowed by labels of the object grants nothing": {`{taints: [{key: dedicated}], grants: [{namespaces: [banana], objectSelector: {matchLabels: {a: b}}}]}`, false},
		"a grant narrowed by subjects grants nothing":             {`{taints: [{key: dedicated}], grants: [{namespaces: [banana], subjects: [{kind: User, name: jane}]}]}`, false},
		"a grant by RBAC grants nothing":                          {`{taints: [{key: dedicated}], grants: [{rbac: true}]}`, false},
		"a grant by expression grants nothing":                    {`{taints: [{key: dedicated}], grants: [{expression: "true"}]}`, false},
		"a grant to nobody in particular grants nothing":          {`{taints: [{key: dedicated}], grants: [{maxTolerationSeconds: 60}]}`, false},
		"a grant with an empty selector grants nothing":           {`{taints: [{key: dedicated}], grants: [{namespaceSelector: {}}]}`, false},
		"a grant with an unreadable selector grants nothing":      {`{taints: [{key: dedicated}], grants: [{namespaceSelector: {matchExpressions: [{key: a, operator: NotIn}]}}]}`, false},
		"a grant with an unreadable namespace grants nothing":     {`{taints: [{key: dedicated}], grants: [{namespaces: [banana, "b*n"]}]}`, false},
		"a grant with a negative limit grants nothing":            {`{taints: [{key: dedicated}], grants: [{namespaces: [banana], maxTolerationSeconds: -1}]}`, false},
		"the other grants stand":                                  {`{taints: [{key: dedicated}], grants: [{rbac: true}, {namespaces: [banana]}]}`, true},
		"match conditions hold":                                   {`{taints: [{key: dedicated}], matchConditions: [{name: never, expression: "false"}]}`, false},
		"an unknown action is Deny":                               {`{taints: [{key: dedicated}], validationActions: [Audit, Shout]}`, false},
		"Deny is heard beside Warn":                               {`{taints: [{key: dedicated}], validationActions: [Warn, Deny]}`, false},
		"an expression for the message changes nothing":           {`{taints: [{key: dedicated}], messageExpression: "'no'"}`, false},
		"a selector of devices guards no node taint":              {`{taints: [{target: Device, key: dedicated}]}`, true},
		"the other selectors stand":                               {`{taints: [{target: Device, key: "*"}, {key: dedicated}]}`, false},
		"an unreadable pattern guards what it begins with":        {`{taints: [{key: "dedi*ted"}]}`, false},
		"a selector that is too narrow for its target is read":    {`{taints: [{key: dedicated, deviceClasses: [gpu]}]}`, false},
		"a target that is not known is a node":                    {`{taints: [{target: Rack, key: dedicated}]}`, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := policyOf(t, "stored", tt.spec)
			set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "other", `{taints: [{key: other}]}`), p})
			require.Equal(t, ValidatePolicy(&p), set.Problems()["stored"])
			require.NotEmpty(t, set.Problems()["stored"])
			require.Len(t, set.Problems(), 1)

			got := set.Judge(inputOf("banana", tolerationsOf(t, `{key: dedicated, operator: Exists}`)...))
			require.Equal(t, tt.allowed, got.Verdict == policy.Allowed)
			for _, f := range got.Findings {
				require.Contains(t, f.String(), "the policy is not fully in force")
			}
			got = set.Judge(inputOf("banana", tolerationsOf(t, `{key: other, operator: Exists}`)...))
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
	want := set.Judge(refused)
	require.Equal(t, policy.Denied, want.Verdict)
	require.Equal(t, policy.Allowed, set.Judge(allowed).Verdict)

	p.Spec.Taints[0].Values[0] = "b"
	p.Spec.Taints[0].Effects[0] = prefer
	p.Spec.Grants[0].Namespaces[0] = "apple"
	p.Spec.Grants[0].NamespaceSelector.MatchLabels["a"] = "c"
	*p.Spec.Grants[0].MaxTolerationSeconds = 1
	p.Spec.ValidationActions[0] = v1alpha1.Audit
	set.Judge(refused).Findings[0].Actions[0] = v1alpha1.Audit
	set.Problems()["dedicated"] = nil

	require.Equal(t, want, set.Judge(refused))
	require.Equal(t, policy.Allowed, set.Judge(allowed).Verdict)
	require.Empty(t, set.Problems())
}

func TestTheIndexLeavesOutPoliciesOfOtherKeysAndValues(t *testing.T) {
	var policies []v1alpha1.TolerationPolicy
	for i := range 100 {
		n := strconv.Itoa(1000 + i)
		policies = append(policies,
			policyOf(t, "key-"+n, `{taints: [{key: key-`+n+`}]}`),
			policyOf(t, "prefix-"+n, `{taints: [{key: example`+n+`.com/*}]}`),
			policyOf(t, "value-"+n, `{taints: [{key: dedicated, values: [team-`+n+`]}]}`))
	}
	policies = append(policies, policyOf(t, "star", `{taints: [{key: "*", values: [starred]}]}`))
	set := Compile(policies)
	tests := map[string]struct {
		tolerates string
		want      int
	}{
		"the value of a star":               {`{key: other, value: starred}`, 1},
		"a system key is not a star's":      {`{key: node.kubernetes.io/x, value: starred}`, 0},
		"one key":                           {`{key: key-1007, value: x}`, 1},
		"one prefix":                        {`{key: example1007.com/a, value: x}`, 1},
		"one value of a shared key":         {`{key: dedicated, value: team-1007}`, 1},
		"every value of a shared key":       {`{key: dedicated, operator: Exists}`, 101},
		"a key that nobody guards":          {`{key: other, value: x}`, 0},
		"a value that nobody guards":        {`{key: dedicated, value: other}`, 0},
		"one value of every key":            {`{operator: Equal, value: team-1007}`, 201},
		"everything, each policy only once": {`{operator: Exists}`, 301},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tol := toleration(t, tt.tolerates)
			a := newAsk(&tol)
			candidates, seen, last := set.index.candidates(&a), 0, -1
			for position, ok := candidates.next(); ok; position, ok = candidates.next() {
				require.Greater(t, position, last, "in order and once")
				last = position
				seen++
			}
			require.Equal(t, tt.want, seen)
		})
	}
}
