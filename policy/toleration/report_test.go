package toleration

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

func TestFindingsSayWhoWhereWhatAndWhatInstead(t *testing.T) {
	const dedicated = `{
		taints: [{key: dedicated, values: [banana], effects: [NoSchedule, NoExecute]}],
		grants: [{namespaces: [banana, "team-*"]}, {namespaceSelector: {matchLabels: {tier: gold}}, maxTolerationSeconds: 600}],
		message: dedicated nodes belong to team banana}`
	tests := map[string]struct {
		spec      string
		tolerates string
		want      string
	}{
		"a wildcard": {
			dedicated, `{operator: Exists}`,
			"TolerationPolicy/p: spec.tolerations[0] (operator=Exists (every taint)): could tolerate dedicated=banana:NoSchedule|NoExecute, which is not granted to namespace apple: dedicated nodes belong to team banana; allowed in namespaces banana, team-* or namespaces labelled tier=gold (NoExecute for at most 600s)",
		},
		"a wildcard of one effect": {
			`{taints: [{key: "*"}]}`, `{operator: Exists, effect: NoSchedule}`,
			"TolerationPolicy/p: spec.tolerations[0] (operator=Exists effect=NoSchedule (every taint of the effect)): could tolerate * (every key but the system's), which is not granted to namespace apple; nobody is allowed to tolerate it",
		},
		"one taint": {
			`{taints: [{key: example.com/*}], grants: [{namespaces: [banana]}]}`, `{key: example.com/a, value: b, effect: NoExecute, tolerationSeconds: 600}`,
			"TolerationPolicy/p: spec.tolerations[0] (key=example.com/a operator=Equal value=b effect=NoExecute for 600s): could tolerate example.com/*, which is not granted to namespace apple; allowed in namespaces banana",
		},
		"one value of every key": {
			`{taints: [{key: dedicated, values: ["", a, b, c, d, e, f]}]}`, `{operator: Equal, value: a}`,
			`TolerationPolicy/p: spec.tolerations[0] (operator=Equal value=a (every key)): could tolerate dedicated=""|a|b|c|d and 2 more, which is not granted to namespace apple; nobody is allowed to tolerate it`,
		},
		"too long": {
			`{taints: [{key: dedicated}], grants: [{namespaces: [apple], maxTolerationSeconds: 60}]}`, `{key: dedicated, operator: Exists, effect: NoExecute, tolerationSeconds: 61}`,
			"TolerationPolicy/p: spec.tolerations[0] (key=dedicated operator=Exists effect=NoExecute for 61s): could tolerate dedicated for longer than is granted to namespace apple; allowed is effect NoExecute with tolerationSeconds of at most 60",
		},
		"too long for the one of two guards that evicts": {
			`{taints: [{key: dedicated, effects: [NoSchedule]}, {key: "*", effects: [NoExecute]}], grants: [{namespaces: [apple], maxTolerationSeconds: 60}]}`, `{key: dedicated, operator: Exists}`,
			"TolerationPolicy/p: spec.tolerations[0] (key=dedicated operator=Exists): could tolerate * (every key but the system's):NoExecute for longer than is granted to namespace apple; allowed is effect NoExecute with tolerationSeconds of at most 60, and an entry of its own for effect NoSchedule without",
		},
		"a wildcard in a namespace that may tolerate for a while": {
			`{taints: [{key: "*"}], grants: [{namespaces: [apple], maxTolerationSeconds: 600}]}`, `{operator: Exists}`,
			"TolerationPolicy/p: spec.tolerations[0] (operator=Exists (every taint)): could tolerate * (every key but the system's) for longer than is granted to namespace apple; allowed is effect NoExecute with tolerationSeconds of at most 600, and an entry of its own for effect NoSchedule without",
		},
		"too long, where an expression may ask for the effect": {
			`{taints: [{key: "*"}], grants: [{namespaces: [apple], expression: "toleration.effect != 'NoSchedule'", maxTolerationSeconds: 600}]}`, `{operator: Exists}`,
			"TolerationPolicy/p: spec.tolerations[0] (operator=Exists (every taint)): could tolerate * (every key but the system's) for longer than is granted to user jane in namespace apple; allowed is effect NoExecute with tolerationSeconds of at most 600",
		},
		"many are granted": {
			`{taints: [{key: dedicated}], grants: [{namespaces: [a, b, c, d, e, f, g]}, {namespaces: [h]}, {namespaces: [i]}, {namespaces: [j]}, {namespaces: [k]}, {namespaces: [l]}]}`, `{key: dedicated, operator: Exists}`,
			"TolerationPolicy/p: spec.tolerations[0] (key=dedicated operator=Exists): could tolerate dedicated, which is not granted to namespace apple; allowed in namespaces a, b, c, d, e and 2 more or namespaces h or namespaces i or namespaces j or namespaces k and 1 more",
		},
		"a policy that is not fully in force": {
			`{taints: [{key: dedicated}], grants: [{expression: maybe}]}`, `{key: dedicated, operator: Exists}`,
			"TolerationPolicy/p: spec.tolerations[0] (key=dedicated operator=Exists): could tolerate dedicated, which is not granted to namespace apple; nobody is allowed to tolerate it (the policy is not fully in force, see its status)",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := judge(t, Compile([]v1alpha1.TolerationPolicy{policyOf(t, "p", tt.spec)}), inputOf("apple", toleration(t, tt.tolerates)))
			require.Len(t, got.Findings, 1)
			require.Equal(t, tt.want, got.Findings[0].String())
		})
	}
}

func TestFindingsSayToWhomAGrantIs(t *testing.T) {
	tests := map[string]struct {
		spec string
		want string
	}{
		"subjects": {
			`{taints: [{key: dedicated}], grants: [{subjects: [{kind: Group, name: sre}, {kind: User, name: joe}, {kind: ServiceAccount, name: operator, namespace: infra}]}]}`,
			"could tolerate dedicated, which is not granted to user jane in namespace apple; allowed to group sre, user joe, service account infra/operator",
		},
		"subjects in namespaces, for some objects": {
			`{taints: [{key: dedicated}], grants: [{namespaces: [banana], subjects: [{kind: Group, name: sre}], objectSelector: {matchLabels: {app: monitor}}}]}`,
			"could tolerate dedicated, which is not granted to user jane in namespace apple; allowed in namespaces banana to group sre for objects labelled app=monitor",
		},
		"RBAC or labels of the namespace": {
			`{taints: [{key: dedicated}], grants: [{rbac: true}, {namespaceSelector: {matchLabels: {tier: gold}}}]}`,
			"could tolerate dedicated, which is not granted to user jane in namespace apple; allowed to whom RBAC allows the verb tolerate on taints.tollgate.dev or in namespaces labelled tier=gold",
		},
		"an expression": {
			`{taints: [{key: dedicated}], grants: [{expression: "false", maxTolerationSeconds: 60}]}`,
			"could tolerate dedicated, which is not granted to user jane in namespace apple; allowed where an expression of the policy says so (NoExecute for at most 60s)",
		},
		"a message of its own": {
			`{taints: [{key: dedicated}], message: ask banana, messageExpression: "'no ' + toleration.key + ' for ' + request.userInfo.username"}`,
			"could tolerate dedicated, which is not granted to namespace apple: no dedicated for jane; nobody is allowed to tolerate it",
		},
		"a message that fails": {
			`{taints: [{key: dedicated}], message: ask banana, messageExpression: "string(object.spec.nothing)"}`,
			"could tolerate dedicated, which is not granted to namespace apple: ask banana; nobody is allowed to tolerate it",
		},
		"a message of two lines": {
			`{taints: [{key: dedicated}], message: ask banana, messageExpression: "'a\\nb'"}`,
			"could tolerate dedicated, which is not granted to namespace apple: ask banana; nobody is allowed to tolerate it",
		},
		"a message of nothing": {
			`{taints: [{key: dedicated}], message: ask banana, messageExpression: "' '"}`,
			"could tolerate dedicated, which is not granted to namespace apple: ask banana; nobody is allowed to tolerate it",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "p", tt.spec)})
			require.Empty(t, set.Problems())
			in := inputOf("apple", toleration(t, dedicatedExists))
			in.Review.Request.Object.Raw = []byte(`{"metadata": {}}`)
			got := judge(t, set, in)
			require.Len(t, got.Findings, 1)
			require.Equal(t, "TolerationPolicy/p: spec.tolerations[0] (key=dedicated operator=Exists): "+tt.want, got.Findings[0].String())
		})
	}
}

func TestFindingsSayWhichExpressionFailed(t *testing.T) {
	set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "p", `{
		taints: [{key: dedicated}], message: ask banana,
		grants: [{namespaces: [banana]}, {expression: "object.spec.nothing == 1"}],
		matchConditions: [{name: none, expression: "object.spec.none == 1"}]}`)})
	in := inputOf("apple", toleration(t, dedicatedExists))
	in.Review.Request.Object.Raw = []byte(`{"metadata": {}}`)
	got := judge(t, set, in)
	require.Len(t, got.Findings, 1)
	said := got.Findings[0].Problem
	require.Regexp(t, `^could tolerate dedicated, which is not granted to user jane in namespace apple \(its matchConditions failed: .*none.*no such key: spec.*; the expression of grants\[1\] failed: .*no such key: spec.*\): ask banana$`, said)
}

func TestActionsOfThePolicyAreThoseOfTheFinding(t *testing.T) {
	tests := map[string]struct {
		actions string
		want    []v1alpha1.ValidationAction
		verdict policy.Verdict
	}{
		"none is Deny":             {`[]`, nil, policy.Denied},
		"Deny and Audit":           {`[Deny, Audit]`, []v1alpha1.ValidationAction{v1alpha1.Audit, v1alpha1.Deny}, policy.Denied},
		"Warn lets the pod pass":   {`[Warn]`, []v1alpha1.ValidationAction{v1alpha1.Warn}, policy.Allowed},
		"Audit lets the pod pass":  {`[Audit]`, []v1alpha1.ValidationAction{v1alpha1.Audit}, policy.Allowed},
		"the order does not count": {`[Warn, Audit]`, []v1alpha1.ValidationAction{v1alpha1.Audit, v1alpha1.Warn}, policy.Allowed},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "p", `{taints: [{key: dedicated}], validationActions: `+tt.actions+`}`)})
			got := judge(t, set, inputOf("apple", toleration(t, `{key: dedicated, operator: Exists}`)))
			require.Equal(t, tt.verdict, got.Verdict)
			require.Len(t, got.Findings, 1)
			require.Equal(t, tt.want, got.Findings[0].Actions)
		})
	}
}

func TestFindingsAreShortWhateverTheyAreAbout(t *testing.T) {
	long := strings.Repeat("界", 5000)
	p := policyOf(t, strings.Repeat("n", 253), `{grants: [{namespaces: [a], namespaceSelector: {matchLabels: {a: b}}}, {rbac: true}]}`)
	for range 3 {
		p.Spec.Taints = append(p.Spec.Taints, v1alpha1.TaintSelector{
			Key:     long + "*",
			Values:  []string{long, "\n\x00\x1b[31m", "\u202e", "\xff\xfe"},
			Effects: []corev1.TaintEffect{corev1.TaintEffect(long), noExecute},
		})
	}
	for range 60 {
		p.Spec.Grants = append(p.Spec.Grants, p.Spec.Grants[0])
		p.Spec.Grants[len(p.Spec.Grants)-1].Namespaces = []string{strings.Repeat("a", 63), strings.Repeat("b", 63), strings.Repeat("c", 63)}
	}
	p.Spec.Message = "stay\nout " + long
	for _, tol := range []corev1.Toleration{
		{Key: long, Operator: "Exists", Value: long, Effect: corev1.TaintEffect(long)},
		{Operator: corev1.TolerationOperator(long), Value: "\n\x00\u2028" + long, Effect: noExecute, TolerationSeconds: new(int64(-9223372036854775808))},
		{Operator: "Exists"},
	} {
		in := inputOf(long, tol)
		got := judge(t, Compile([]v1alpha1.TolerationPolicy{p}), in)
		require.Len(t, got.Findings, 1)
		said := got.Findings[0].String()
		require.LessOrEqual(t, len(said), policy.MaxFinding)
		require.True(t, utf8.ValidString(said))
		require.NotContains(t, said, "\n")
		require.NotContains(t, said, "\x1b")
		require.NotContains(t, said, "\u202e")
		require.True(t, strings.HasPrefix(said, "TolerationPolicy/"+p.Name))
	}
}

func TestTheMessageTakesTheRoomThatIsLeft(t *testing.T) {
	p := policyOf(t, "p", `{taints: [{key: dedicated}]}`)
	p.Spec.Message = strings.Repeat("m", 1024)
	got := judge(t, Compile([]v1alpha1.TolerationPolicy{p}), inputOf("apple", toleration(t, `{key: dedicated, operator: Exists}`)))
	require.Len(t, got.Findings, 1)
	require.Len(t, got.Findings[0].String(), policy.MaxFinding)
	require.Contains(t, got.Findings[0].String(), "mmm...; nobody is allowed")
}

func TestAV29TheNumberOfFindingsIsBoundedAndTheVerdictIsNot(t *testing.T) {
	policies := func(actions ...string) []v1alpha1.TolerationPolicy {
		var all []v1alpha1.TolerationPolicy
		for i, action := range actions {
			all = append(all, policyOf(t, "p"+strconv.Itoa(1000+i), `{taints: [{key: dedicated}], validationActions: [`+action+`]}`))
		}
		return all
	}
	many := func(action string, n int) []string {
		return strings.Split(strings.TrimSuffix(strings.Repeat(action+",", n), ","), ",")
	}
	tests := map[string]struct {
		policies []v1alpha1.TolerationPolicy
		copies   int
		verdict  policy.Verdict
		cut      bool
	}{
		"as many as fit":                      {policies(many("Audit", policy.MaxFindings-2)...), 1, policy.Allowed, false},
		"one more than fits":                  {policies(many("Audit", policy.MaxFindings-1)...), 1, policy.Allowed, true},
		"a denial after very many that allow": {policies(append(many("Audit", 200), "Deny")...), 1, policy.Denied, true},
		"a denial before very many":           {policies(append([]string{"Deny"}, many("Warn", 200)...)...), 1, policy.Denied, true},
		"one policy and very many tolerations": {
			policies("Deny"), 10_000, policy.Denied, true,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := inputOf("apple")
			in.Asked[0].New = slices.Repeat(tolerationsOf(t, `{key: dedicated, operator: Exists}`), tt.copies)
			got := judge(t, Compile(tt.policies), in)
			require.Equal(t, tt.verdict, got.Verdict)
			require.LessOrEqual(t, len(got.Findings), policy.MaxFindings)
			cut := 0
			for _, f := range got.Findings {
				if strings.Contains(f.Problem, "than are listed") {
					require.Equal(t, "spec.tolerations", f.Field)
					cut++
				}
			}
			require.Equal(t, tt.cut, cut == 1)
		})
	}
}
