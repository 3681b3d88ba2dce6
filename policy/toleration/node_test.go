package toleration

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

// taintsOf reads taints as kubectl writes them, key=value:effect.
func taintsOf(words ...string) []corev1.Taint {
	var taints []corev1.Taint
	for _, word := range words {
		rest, effect, _ := strings.Cut(word, ":")
		key, value, _ := strings.Cut(rest, "=")
		taints = append(taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}
	return taints
}

func TestC04APodIsPutOnANodeOnlyPastTaintsThatItMayTolerate(t *testing.T) {
	const (
		none          = policy.Reason("")
		toBanana      = `{taints: [{key: dedicated, values: [banana]}], grants: [{namespaces: [banana]}]}`
		bananaForever = `{key: dedicated, value: banana}`
	)
	tests := map[string]struct {
		spec      string
		namespace string
		tolerates string
		taints    []corev1.Taint
		reason    policy.Reason
	}{
		"tolerated and granted":                        {toBanana, "banana", bananaForever, taintsOf("dedicated=banana:NoSchedule"), none},
		"granted and not tolerated":                    {toBanana, "banana", ``, taintsOf("dedicated=banana:NoSchedule"), policy.TaintNotTolerated},
		"tolerated and not granted":                    {toBanana, "apple", bananaForever, taintsOf("dedicated=banana:NoSchedule"), policy.PassNotGranted},
		"neither":                                      {toBanana, "apple", ``, taintsOf("dedicated=banana:NoExecute"), policy.TaintNotTolerated},
		"a wildcard that is not granted":               {toBanana, "apple", `{operator: Exists}`, taintsOf("dedicated=banana:NoExecute"), policy.PassNotGranted},
		"a taint that nobody guards":                   {toBanana, "apple", ``, taintsOf("other=:NoExecute", "dedicated=apple:NoSchedule"), none},
		"a taint that keeps nobody off":                {toBanana, "apple", ``, taintsOf("dedicated=banana:PreferNoSchedule"), none},
		"no taints":                                    {toBanana, "apple", ``, nil, none},
		"one of two taints":                            {toBanana, "banana", `{key: dedicated, value: banana, effect: NoSchedule}`, taintsOf("dedicated=banana:NoSchedule", "dedicated=banana:NoExecute"), policy.TaintNotTolerated},
		"a system taint that is guarded by name":       {`{taints: [{key: node.kubernetes.io/*}]}`, "apple", ``, taintsOf("node.kubernetes.io/unschedulable=:NoSchedule"), policy.TaintNotTolerated},
		"what Kubernetes adds is granted":              {`{taints: [{key: node.kubernetes.io/*}]}`, "apple", `{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}`, taintsOf("node.kubernetes.io/not-ready=:NoExecute"), none},
		"the star is not about system taints":          {`{taints: [{key: "*"}]}`, "apple", ``, taintsOf("node.kubernetes.io/unschedulable=:NoSchedule"), none},
		"one toleration of two is granted":             {`{taints: [{key: dedicated}], grants: [{expression: "toleration.operator == 'Equal'"}]}`, "apple", `{operator: Exists}` + "\n" + bananaForever, taintsOf("dedicated=banana:NoSchedule"), none},
		"too long past NoExecute":                      {`{taints: [{key: dedicated}], grants: [{namespaces: ["*"], maxTolerationSeconds: 60}]}`, "apple", bananaForever, taintsOf("dedicated=banana:NoExecute"), policy.PassNotGranted},
		"time does not matter past NoSchedule":         {`{taints: [{key: dedicated}], grants: [{namespaces: ["*"], maxTolerationSeconds: 60}]}`, "apple", bananaForever, taintsOf("dedicated=banana:NoSchedule"), none},
		"a policy that does not look at it":            {`{taints: [{key: dedicated}], matchConditions: [{name: a, expression: "request.namespace != 'apple'"}]}`, "apple", ``, taintsOf("dedicated=banana:NoSchedule"), none},
		"VS-07 a number that is compared":              {`{taints: [{key: tier}], grants: [{namespaces: ["*"]}]}`, "apple", `{key: tier, operator: Gt, value: "3"}`, taintsOf("tier=4:NoSchedule"), none},
		"VS-07 a number that is not reached":           {`{taints: [{key: tier}], grants: [{namespaces: ["*"]}]}`, "apple", `{key: tier, operator: Gt, value: "4"}`, taintsOf("tier=4:NoSchedule"), policy.TaintNotTolerated},
		"B12 an unknown operator does not tolerate":    {`{taints: [{key: dedicated}], grants: [{namespaces: ["*"]}]}`, "apple", `{key: dedicated, operator: Like, value: banana}`, taintsOf("dedicated=banana:NoSchedule"), policy.TaintNotTolerated},
		"a guard of devices is not about nodes":        {`{taints: [{target: Device, key: dedicated}]}`, "apple", ``, taintsOf("dedicated=banana:NoSchedule"), none},
		"what stood before is not granted by standing": {toBanana, "apple", bananaForever, taintsOf("dedicated=banana:NoSchedule"), policy.PassNotGranted},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "p", tt.spec)})
			in := inputOf(tt.namespace, tolerationsOf(t, tt.tolerates)...)
			in.Asked[0].Old = in.Asked[0].New
			got, err := set.JudgeNode(t.Context(), in, tt.taints)
			require.NoError(t, err)
			require.Equal(t, tt.reason == none, got.Verdict == policy.Allowed)
			for _, f := range got.Findings {
				require.Equal(t, tt.reason, f.Reason)
				require.Equal(t, "spec.nodeName", f.Field)
			}
			if tt.reason != none {
				require.Len(t, got.Findings, 1)
				require.True(t, set.GuardsNode(tt.taints))
			}
		})
	}
}

func TestAPodThatInheritsAToleranceIsPutOnItsNode(t *testing.T) {
	set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "p", `{taints: [{key: dedicated}], grants: [{subjects: [{kind: User, name: jane}]}]}`)})
	in := inputOf("apple", toleration(t, dedicatedExists))
	in.User.Username = "system:serviceaccount:kube-system:replicaset-controller"
	for name, want := range map[string]policy.Verdict{"from nobody": policy.Denied, "from its template": policy.Allowed} {
		t.Run(name, func(t *testing.T) {
			in := in
			if want == policy.Allowed {
				in.Inherited = in.Asked[0].New
			}
			got, err := set.JudgeNode(t.Context(), in, taintsOf("dedicated=banana:NoSchedule"))
			require.NoError(t, err)
			require.Equal(t, want, got.Verdict)
		})
	}
}

func TestC15WhatIsInheritedIsNotJudged(t *testing.T) {
	set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "p", `{taints: [{key: dedicated}]}`)})
	in := inputOf("apple", tolerationsOf(t, `
		{key: dedicated, operator: Exists, effect: NoSchedule}
		{key: dedicated, operator: Exists}
		{key: dedicated, operator: Exists, effect: NoExecute, tolerationSeconds: 5}`)...)
	in.Inherited = tolerationsOf(t, `
		{key: dedicated, operator: Exists, effect: NoSchedule}
		{key: dedicated, operator: Exists, effect: NoExecute, tolerationSeconds: 4}`)
	want := []string{"p spec.tolerations[1]", "p spec.tolerations[2]"}
	requireRefused(t, want, judge(t, set, in))
	require.True(t, set.Concerns(in))

	for i := range 128 {
		in.Inherited = append(in.Inherited, corev1.Toleration{Key: "other", Value: strconv.Itoa(i)})
	}
	requireRefused(t, want, judge(t, set, in))

	in.Asked[0].New = in.Asked[0].New[:1]
	require.Equal(t, policy.Allowed, judge(t, set, in).Verdict)
	require.True(t, set.Concerns(in), "what is inherited is not known yet when this is asked")
}

func TestWhatIsSaidOfATaintOfTheNode(t *testing.T) {
	set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "p", `{
		taints: [{key: dedicated}], message: ask team banana,
		grants: [{namespaces: [banana]}, {namespaces: [apple], subjects: [{kind: User, name: jane}], maxTolerationSeconds: 60}]}`)})
	const start = "TolerationPolicy/p: spec.nodeName (taint dedicated=banana:NoExecute): the node has a taint that is guarded (dedicated)"
	tests := map[string]struct {
		user, tolerates, want string
	}{
		"not tolerated": {"joe", ``, start + " and that the pod does not tolerate: ask team banana; leave it to the scheduler to find a node, or tolerate the taint: allowed in namespaces banana or namespaces apple to user jane (NoExecute for at most 60s)"},
		"not granted":   {"joe", dedicatedExists, start + ", and to tolerate it is not granted to user joe in namespace apple: ask team banana; allowed in namespaces banana or namespaces apple to user jane (NoExecute for at most 60s)"},
		"too long":      {"jane", dedicatedExists, start + ", and the pod tolerates it for longer than is granted to user jane in namespace apple: ask team banana; allowed is effect NoExecute with tolerationSeconds of at most 60"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := inputOf("apple", tolerationsOf(t, tt.tolerates)...)
			in.User.Username = tt.user
			got, err := set.JudgeNode(t.Context(), in, taintsOf("dedicated=banana:NoExecute"))
			require.NoError(t, err)
			require.Len(t, got.Findings, 1)
			require.Equal(t, tt.want, got.Findings[0].String())
		})
	}
}

func TestAFaultAboutATaintOfTheNodeIsNoVerdict(t *testing.T) {
	set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "p", `{taints: [{key: dedicated}], grants: [{rbac: true}]}`)})
	from := asked{namespace: "apple", user: userOf("jane"), authority: &court{fault: errors.New("away")}}
	_, err := set.JudgeNode(t.Context(), from.input(t, dedicatedExists), taintsOf("dedicated=banana:NoExecute"))
	require.ErrorContains(t, err, "away")

	got, err := set.JudgeNode(t.Context(), from.input(t, ``), taintsOf("dedicated=banana:NoExecute"))
	require.NoError(t, err, "nobody has to be asked about a taint that is not tolerated")
	require.Equal(t, policy.Denied, got.Verdict)
}

func TestANodeWithManyTaintsIsAnsweredShortly(t *testing.T) {
	var taints []corev1.Taint
	for i := range 500 {
		taints = append(taints, taintsOf("dedicated="+strconv.Itoa(i)+":NoSchedule")...)
	}
	set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "p", `{taints: [{key: dedicated}]}`)})
	got, err := set.JudgeNode(t.Context(), inputOf("apple"), taints)
	require.NoError(t, err)
	require.LessOrEqual(t, len(got.Findings), policy.MaxFindings)
	require.Equal(t, policy.Denied, got.Verdict)
}

func TestASetWithoutPoliciesLetsPodsOntoEveryNode(t *testing.T) {
	for _, set := range []*Set{nil, {}, Compile(nil)} {
		got, err := set.JudgeNode(t.Context(), inputOf("apple"), taintsOf("a=b:NoExecute"))
		require.NoError(t, err)
		require.Equal(t, policy.Allowed, got.Verdict)
		require.False(t, set.GuardsNode(taintsOf("a=b:NoExecute")))
		require.False(t, set.Concerns(inputOf("apple", toleration(t, `{operator: Exists}`))))
	}
}
