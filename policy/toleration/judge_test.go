package toleration

import (
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

func TestJudge(t *testing.T) {
	tests := map[string]struct {
		policies  map[string]string
		namespace string
		labels    map[string]string
		tolerates string
		refused   []string
	}{
		"a granted namespace": {
			policies:  map[string]string{"dedicated": `{taints: [{key: dedicated}], grants: [{namespaces: [banana]}]}`},
			namespace: "banana",
			tolerates: `{key: dedicated, operator: Exists}`,
		},
		"another namespace": {
			policies:  map[string]string{"dedicated": `{taints: [{key: dedicated}], grants: [{namespaces: [banana]}]}`},
			namespace: "apple",
			tolerates: `{key: dedicated, operator: Exists}`,
			refused:   []string{"dedicated spec.tolerations[0]"},
		},
		"a namespace with a prefix that is granted": {
			policies:  map[string]string{"dedicated": `{taints: [{key: dedicated}], grants: [{namespaces: ["team-*"]}]}`},
			namespace: "team-a",
			tolerates: `{key: dedicated, operator: Exists}`,
		},
		"a namespace that only begins like a granted name": {
			policies:  map[string]string{"dedicated": `{taints: [{key: dedicated}], grants: [{namespaces: [team]}]}`},
			namespace: "team-a",
			tolerates: `{key: dedicated, operator: Exists}`,
			refused:   []string{"dedicated spec.tolerations[0]"},
		},
		"a grant to everybody": {
			policies:  map[string]string{"dedicated": `{taints: [{key: dedicated}], grants: [{namespaces: ["*"]}]}`},
			namespace: "apple",
			tolerates: `{key: dedicated, operator: Exists}`,
		},
		"a policy without grants grants nothing": {
			policies:  map[string]string{"nobody": `{taints: [{key: dedicated}]}`},
			namespace: "banana",
			tolerates: `{key: dedicated, operator: Exists}`,
			refused:   []string{"nobody spec.tolerations[0]"},
		},
		"a namespace with a granted label": {
			policies:  map[string]string{"gold": `{taints: [{key: dedicated}], grants: [{namespaceSelector: {matchLabels: {tier: gold}}}]}`},
			namespace: "apple",
			labels:    map[string]string{"tier": "gold"},
			tolerates: `{key: dedicated, operator: Exists}`,
		},
		"both the name and the label are asked": {
			policies:  map[string]string{"gold": `{taints: [{key: dedicated}], grants: [{namespaces: [banana], namespaceSelector: {matchLabels: {tier: gold}}}]}`},
			namespace: "apple",
			labels:    map[string]string{"tier": "gold"},
			tolerates: `{key: dedicated, operator: Exists}`,
			refused:   []string{"gold spec.tolerations[0]"},
		},
		"a label that is not there is asked for where labels are known": {
			policies:  map[string]string{"open": `{taints: [{key: dedicated}], grants: [{namespaceSelector: {matchExpressions: [{key: restricted, operator: DoesNotExist}]}}]}`},
			namespace: "apple",
			labels:    map[string]string{"tier": "iron"},
			tolerates: `{key: dedicated, operator: Exists}`,
		},
		"one grant is enough": {
			policies:  map[string]string{"dedicated": `{taints: [{key: dedicated}], grants: [{namespaces: [apple]}, {namespaces: [banana]}]}`},
			namespace: "banana",
			tolerates: `{key: dedicated, operator: Exists}`,
		},
		"C26 every policy that guards must grant": {
			policies: map[string]string{
				"a": `{taints: [{key: dedicated}], grants: [{namespaces: [banana]}]}`,
				"b": `{taints: [{key: "*"}], grants: [{namespaces: [infra]}]}`,
			},
			namespace: "banana",
			tolerates: `{key: dedicated, operator: Exists}`,
			refused:   []string{"b spec.tolerations[0]"},
		},
		"C17 a wildcard comes under every policy": {
			policies: map[string]string{
				"a": `{taints: [{key: dedicated, values: [banana], effects: [NoSchedule]}]}`,
				"b": `{taints: [{key: example.com/*}]}`,
				"c": `{taints: [{key: node.kubernetes.io/out-of-service}]}`,
			},
			namespace: "banana",
			tolerates: `{operator: Exists}`,
			refused:   []string{"a spec.tolerations[0]", "b spec.tolerations[0]", "c spec.tolerations[0]"},
		},
		"only what is guarded is refused": {
			policies:  map[string]string{"dedicated": `{taints: [{key: dedicated, effects: [NoExecute]}]}`},
			namespace: "apple",
			tolerates: `
				{key: dedicated, operator: Exists, effect: NoSchedule}
				{key: dedicated, operator: Exists, effect: NoExecute}
				{key: other, operator: Exists}`,
			refused: []string{"dedicated spec.tolerations[1]"},
		},
		"B12 an unknown operator is not let by": {
			policies:  map[string]string{"dedicated": `{taints: [{key: dedicated}]}`},
			namespace: "apple",
			tolerates: `{key: dedicated, operator: Like, value: b}`,
			refused:   []string{"dedicated spec.tolerations[0]"},
		},
		"B12 an unknown effect is not within any time": {
			policies:  map[string]string{"dedicated": `{taints: [{key: dedicated}], grants: [{namespaces: ["*"], maxTolerationSeconds: 600}]}`},
			namespace: "apple",
			tolerates: `{key: dedicated, operator: Exists, effect: NoAdmit, tolerationSeconds: 5}`,
			refused:   []string{"dedicated spec.tolerations[0]"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var policies []v1alpha1.TolerationPolicy
			for name, spec := range tt.policies {
				policies = append(policies, policyOf(t, name, spec))
			}
			in := inputOf(tt.namespace, tolerationsOf(t, tt.tolerates)...)
			in.NamespaceLabels = tt.labels
			set := Compile(policies)
			require.Empty(t, set.Problems())
			requireRefused(t, tt.refused, judge(t, set, in))
		})
	}
}

func requireRefused(t *testing.T, want []string, got policy.Decision) {
	t.Helper()
	require.ElementsMatch(t, want, refused(got))
	verdict := policy.Allowed
	if len(want) > 0 {
		verdict = policy.Denied
	}
	require.Equal(t, verdict, got.Verdict)
}

func TestJudgeSeconds(t *testing.T) {
	const spec = `{taints: [{key: dedicated}], grants: [{namespaces: [banana, "team-*"], maxTolerationSeconds: 300}, {namespaces: [banana], maxTolerationSeconds: 600}, {namespaces: [infra]}, {namespaces: [infra], maxTolerationSeconds: 1}]}`
	tests := map[string]struct {
		namespace string
		tolerates string
		allowed   bool
	}{
		"as long as the limit":                                    {"banana", `{key: dedicated, operator: Exists, effect: NoExecute, tolerationSeconds: 600}`, true},
		"longer than the limit":                                   {"banana", `{key: dedicated, operator: Exists, effect: NoExecute, tolerationSeconds: 601}`, false},
		"the longer of two limits holds":                          {"team-a", `{key: dedicated, operator: Exists, effect: NoExecute, tolerationSeconds: 301}`, false},
		"for ever":                                                {"banana", `{key: dedicated, operator: Exists, effect: NoExecute}`, false},
		"a grant without limit is the widest":                     {"infra", `{key: dedicated, operator: Exists, effect: NoExecute}`, true},
		"a limit is for NoExecute alone":                          {"banana", `{key: dedicated, operator: Exists, effect: NoSchedule}`, true},
		"NE-29 no effect is NoExecute for ever":                   {"banana", `{key: dedicated, operator: Exists}`, false},
		"NE-29 no effect with seconds is for ever all the same":   {"banana", `{key: dedicated, operator: Exists, tolerationSeconds: 5}`, false},
		"C17 negative seconds are none":                           {"banana", `{key: dedicated, operator: Exists, effect: NoExecute, tolerationSeconds: -1}`, true},
		"C17 very many seconds are too many":                      {"banana", `{key: dedicated, operator: Exists, effect: NoExecute, tolerationSeconds: 9223372036854775807}`, false},
		"a wildcard within the limit":                             {"banana", `{operator: Exists, effect: NoExecute, tolerationSeconds: 60}`, true},
		"a wildcard for ever":                                     {"banana", `{operator: Exists, effect: NoExecute}`, false},
		"nothing is within the limit of a namespace without one ": {"apple", `{key: dedicated, operator: Exists, effect: NoExecute, tolerationSeconds: 0}`, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "dedicated", spec)})
			got := judge(t, set, inputOf(tt.namespace, toleration(t, tt.tolerates)))
			require.Equal(t, tt.allowed, got.Verdict == policy.Allowed, "%v", got.Findings)
		})
	}

	t.Run("a limit does not matter where no NoExecute taint is guarded", func(t *testing.T) {
		set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "dedicated",
			`{taints: [{key: dedicated, effects: [NoSchedule]}], grants: [{namespaces: ["*"], maxTolerationSeconds: 0}]}`)})
		got := judge(t, set, inputOf("banana", toleration(t, `{operator: Exists}`)))
		require.Equal(t, policy.Allowed, got.Verdict, "%v", got.Findings)
	})
}

func TestC06OnlyAddedOrChangedTolerationsAreJudged(t *testing.T) {
	const banana = `{key: dedicated, operator: Equal, value: banana, effect: NoExecute, tolerationSeconds: 60}`
	tests := map[string]struct {
		old, current string
		refused      []string
	}{
		"C28 what stood before is not judged":   {banana, banana, nil},
		"an addition is judged":                 {`{key: other, operator: Exists}`, `{key: other, operator: Exists}` + "\n" + banana, []string{"guard spec.tolerations[1]"}},
		"an addition at the front is judged":    {`{key: other, operator: Exists}`, banana + "\n" + `{key: other, operator: Exists}`, []string{"guard spec.tolerations[0]"}},
		"AV-28 another order is no change":      {banana + "\n" + `{key: dedicated}`, `{key: dedicated}` + "\n" + banana, nil},
		"more seconds are a change":             {banana, `{key: dedicated, operator: Equal, value: banana, effect: NoExecute, tolerationSeconds: 61}`, []string{"guard spec.tolerations[0]"}},
		"no seconds are a change":               {banana, `{key: dedicated, operator: Equal, value: banana, effect: NoExecute}`, []string{"guard spec.tolerations[0]"}},
		"the default operator is no change":     {banana, `{key: dedicated, value: banana, effect: NoExecute, tolerationSeconds: 60}`, nil},
		"a wider operator is a change":          {banana, `{key: dedicated, operator: Exists, effect: NoExecute, tolerationSeconds: 60}`, []string{"guard spec.tolerations[0]"}},
		"a wider effect is a change":            {`{key: dedicated, effect: NoSchedule}`, `{key: dedicated}`, []string{"guard spec.tolerations[0]"}},
		"one that stood once was allowed once":  {banana, banana + "\n" + banana, []string{"guard spec.tolerations[1]"}},
		"one that stood elsewhere was too":      {`{key: other, operator: Exists}` + "\n" + banana, banana + "\n" + banana + "\n" + `{key: other, operator: Exists}`, []string{"guard spec.tolerations[1]"}},
		"two negative times are the same":       {`{key: dedicated, effect: NoExecute, tolerationSeconds: -1}`, `{key: dedicated, effect: NoExecute, tolerationSeconds: -2}`, nil},
		"a removal is not judged":               {banana, ``, nil},
		"everything is judged where none stood": {``, banana + "\n" + `{key: dedicated}`, []string{"guard spec.tolerations[0]", "guard spec.tolerations[1]"}},
	}
	set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "guard", `{taints: [{key: dedicated}]}`)})
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := inputOf("apple", tolerationsOf(t, tt.current)...)
			in.Asked[0].Old = tolerationsOf(t, tt.old)
			requireRefused(t, tt.refused, judge(t, set, in))
		})
		t.Run(name+", among very many", func(t *testing.T) {
			// The rest stands in reverse, so that nothing is the same at the start.
			in := inputOf("apple", tolerationsOf(t, tt.current)...)
			in.Asked[0].Old = tolerationsOf(t, tt.old)
			for i := range 128 {
				in.Asked[0].New = append(in.Asked[0].New, corev1.Toleration{Key: "other", Operator: "Exists", TolerationSeconds: new(int64(i))})
				in.Asked[0].Old = append(in.Asked[0].Old, corev1.Toleration{Key: "other", Operator: "Exists", TolerationSeconds: new(int64(127 - i))})
			}
			requireRefused(t, tt.refused, judge(t, set, in))
		})
	}
}

func TestASetWithoutPoliciesAllowsEverything(t *testing.T) {
	in := inputOf("apple", toleration(t, `{operator: Exists}`))
	for name, set := range map[string]*Set{"nil": nil, "zero": {}, "compiled from none": Compile(nil)} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, policy.Allowed, judge(t, set, in).Verdict)
			require.Zero(t, set.Len())
		})
	}
}

func TestASetMayBeAskedByManyAtOnce(t *testing.T) {
	set := Compile(teams(100))
	want := judge(t, set, wildcard("other"))
	var askers sync.WaitGroup
	answers := make([]policy.Decision, 8)
	for i := range answers {
		askers.Go(func() { answers[i] = judge(t, set, wildcard("other")) })
	}
	askers.Wait()
	for _, got := range answers {
		require.Equal(t, want, got)
	}
}

func TestThePoliciesThatNeedTheNamespace(t *testing.T) {
	const byLabels = `namespaceSelector: {matchLabels: {tier: gold}}`
	tests := map[string]struct {
		policies  []string
		tolerates string
		needs     bool
	}{
		"names of namespaces do not":             {[]string{`{taints: [{key: dedicated}], grants: [{namespaces: [apple]}]}`}, dedicatedExists, false},
		"labels of namespaces do":                {[]string{`{taints: [{key: dedicated}], grants: [{` + byLabels + `}]}`}, dedicatedExists, true},
		"of a policy for another taint, not":     {[]string{`{taints: [{key: other}], grants: [{` + byLabels + `}]}`, `{taints: [{key: dedicated}]}`}, dedicatedExists, false},
		"of a policy for no toleration, not":     {[]string{`{taints: [{key: dedicated}], grants: [{` + byLabels + `}]}`}, ``, false},
		"an expression of a grant does":          {[]string{`{taints: [{key: dedicated}], grants: [{expression: "namespaceObject.metadata.name == 'x'"}]}`}, dedicatedExists, true},
		"a condition does":                       {[]string{`{taints: [{key: dedicated}], matchConditions: [{name: a, expression: "namespaceObject != null"}]}`}, dedicatedExists, true},
		"a message does":                         {[]string{`{taints: [{key: dedicated}], messageExpression: "namespaceObject.metadata.name"}`}, dedicatedExists, true},
		"an expression about the pod does not":   {[]string{`{taints: [{key: dedicated}], grants: [{expression: "pod != null"}]}`}, dedicatedExists, false},
		"the namespace of the request does not":  {[]string{`{taints: [{key: dedicated}], grants: [{expression: "request.namespace == 'x'"}]}`}, dedicatedExists, false},
		"a toleration of every taint is guarded": {[]string{`{taints: [{key: dedicated}], grants: [{` + byLabels + `}]}`}, `{operator: Exists}`, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var policies []v1alpha1.TolerationPolicy
			for i, spec := range tt.policies {
				policies = append(policies, policyOf(t, "p-"+strconv.Itoa(i), spec))
			}
			set := Compile(policies)
			in := inputOf("apple", tolerationsOf(t, tt.tolerates)...)
			in.NamespaceLabels = nil
			require.Equal(t, tt.needs, set.NeedsNamespace(in))
			_, err := set.Judge(t.Context(), in)
			taints := []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
			if !tt.needs {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "the namespace, which was not read", "and no verdict")
			require.True(t, set.NodeNeedsNamespace(taints))
			_, err = set.JudgeNode(t.Context(), in, taints)
			require.ErrorContains(t, err, "the namespace, which was not read")
		})
	}
}
