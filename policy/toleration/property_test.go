package toleration

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

func TestAddingAGrantNeverRefusesMore(t *testing.T) {
	d := newDice(t)
	helped := 0
	for range 1000 {
		policies, in := d.policies(3), d.input()
		if len(policies) == 0 {
			continue
		}
		before := refused(judge(t, Compile(policies), in))
		wider := &policies[d.IntN(len(policies))].Spec
		wider.Grants = append(wider.Grants, d.grant())
		after := refused(judge(t, Compile(policies), in))
		require.Subset(t, before, after)
		if len(after) < len(before) {
			helped++
		}
	}
	require.Greater(t, helped, 5)
}

func TestAddingAPolicyNeverAllowsMore(t *testing.T) {
	d := newDice(t)
	hindered := 0
	for range 1000 {
		policies, in := d.policies(3), d.input()
		before := refused(judge(t, Compile(policies), in))
		after := refused(judge(t, Compile(append(policies, d.policy("new"))), in))
		require.Subset(t, after, before)
		if len(after) > len(before) {
			hindered++
		}
	}
	require.Greater(t, hindered, 20)
}

func TestTheOrderOfTolerationsDoesNotMatter(t *testing.T) {
	d := newDice(t)
	for range 1000 {
		policies, in := d.policies(3), d.input()
		set := Compile(policies)
		before := judge(t, set, in)
		d.Shuffle(len(in.Asked[0].New), func(i, j int) { in.Asked[0].New[i], in.Asked[0].New[j] = in.Asked[0].New[j], in.Asked[0].New[i] })
		d.Shuffle(len(in.Asked[0].Old), func(i, j int) { in.Asked[0].Old[i], in.Asked[0].Old[j] = in.Asked[0].Old[j], in.Asked[0].Old[i] })
		after := judge(t, set, in)
		require.Equal(t, before.Verdict, after.Verdict)
		require.Len(t, after.Findings, len(before.Findings))
	}
}

func TestAMoreNarrowTolerationIsNeverRefusedMore(t *testing.T) {
	d := newDice(t)
	for range 1000 {
		set, in := Compile(d.policies(3)), d.input()
		tol := d.toleration()
		in.Asked[0].Old, in.Asked[0].New = nil, nil
		in.Asked[0].New = append(in.Asked[0].New, tol)
		if judge(t, set, in).Verdict == policy.Denied {
			continue
		}
		if tol.Effect == "" {
			in.Asked[0].New[0].Effect = pick(d, noSchedule, noExecute, prefer)
		}
		if tol.Key == "" {
			in.Asked[0].New[0].Key = pick(d, universeKeys...)
		}
		require.Equal(t, policy.Allowed, judge(t, set, in).Verdict, "from %+v to %+v", tol, in.Asked[0].New[0])
	}
}

func TestD07AHundredSetsSayTheSameInEveryOrderOfPolicies(t *testing.T) {
	d := newDice(t)
	verdicts := map[policy.Verdict]int{}
	for range 100 {
		policies := d.policies(8)
		for i := range policies {
			d.widen(&policies[i].Spec)
		}
		inputs := []Input{d.input(), d.input(), d.claim(), d.claim()}
		taints := some(d, 5, universe)
		first := answers(t, Compile(policies), inputs, taints)
		for _, one := range first {
			verdicts[one.Verdict]++
		}
		for range 3 {
			d.Shuffle(len(policies), func(i, j int) { policies[i], policies[j] = policies[j], policies[i] })
			require.Equal(t, first, answers(t, Compile(policies), inputs, taints))
		}
	}
	require.Greater(t, verdicts[policy.Allowed], 50)
	require.Greater(t, verdicts[policy.Denied], 50)
}

// widen makes more of a policy: guards of devices, and grants, conditions and messages
// that have to be asked.
func (d dice) widen(spec *v1alpha1.TolerationPolicySpec) {
	if d.IntN(2) == 0 {
		spec.Taints = append(spec.Taints, v1alpha1.TaintSelector{
			Target: v1alpha1.TaintTargetDevice, Key: pick(d, "*", "dedicated", "example.com/*"), DeviceClasses: some(d, 1, []string{"gpu", "nic"}),
		})
	}
	switch d.IntN(6) {
	case 0:
		spec.Grants = append(spec.Grants, v1alpha1.TolerationGrant{RBAC: true, MaxTolerationSeconds: pick(d, nil, new(int64(10)))})
	case 1:
		spec.Grants = append(spec.Grants, v1alpha1.TolerationGrant{Expression: pick(d, "request.namespace == 'infra'", "object.spec.nothing == 1")})
	case 2:
		spec.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "a", Expression: pick(d, "request.namespace != 'infra'", "object.spec.nothing == 1")}}
	case 3:
		spec.MessageExpression = "'not ' + toleration.key"
	}
	spec.ValidationActions = pick(d, nil, nil, []v1alpha1.ValidationAction{v1alpha1.Warn}, []v1alpha1.ValidationAction{v1alpha1.Deny, v1alpha1.Audit})
}

// claim returns a claim with two requests.
func (d dice) claim() Input {
	in := d.input()
	in.Asked, in.OfDevices = nil, true
	for i, class := range []string{"gpu", "nic"} {
		asked := Asked{Path: specTolerations.Index(i), Class: class}
		for range d.IntN(3) {
			asked.New = append(asked.New, corev1.Toleration{
				Key: pick(d, universeKeys...), Operator: corev1.TolerationOpExists, Effect: pick(d, "", corev1.TaintEffectNoExecute),
			})
		}
		in.Asked = append(in.Asked, asked)
	}
	return in
}

// answers returns what a set says to inputs, each asked twice, about their tolerations
// and about a node.
func answers(t *testing.T, set *Set, inputs []Input, taints []corev1.Taint) []policy.Decision {
	t.Helper()
	var said []policy.Decision
	for _, in := range inputs {
		// One review is one request: what its expressions cost adds up.
		fresh := func() Input {
			review := *in.Review
			in := in
			in.Review = &review
			return in
		}
		decision, again := judge(t, set, fresh()), judge(t, set, fresh())
		require.Equal(t, decision, again)
		node, err := set.JudgeNode(t.Context(), fresh(), taints)
		require.NoError(t, err)
		said = append(said, decision, node)
	}
	return said
}

func TestD07DecisionsAreTheSameInEveryOrderOfPolicies(t *testing.T) {
	d := newDice(t)
	policies := d.policies(0)
	for range 14 {
		p := d.policy("p-" + pick(d, "a", "b", "c") + string(rune('a'+len(policies)%26)) + string(rune('a'+len(policies)/26)))
		p.Spec.Message = "ask the owners"
		if len(policies) < 10 {
			p.Spec.Grants = nil // with two wildcards, more findings than are listed
		}
		policies = append(policies, p)
	}
	in := inputOf("other", tolerationsOf(t, `
		{operator: Exists}
		{operator: Exists}
		{key: dedicated, operator: Exists, effect: NoSchedule}
		{key: example.com/a, operator: Equal, value: a, effect: NoExecute, tolerationSeconds: 300}
		{key: example.com/b, operator: Gt, value: "3"}
	`)...)
	want := judge(t, Compile(policies), in)
	require.Equal(t, policy.Denied, want.Verdict)
	require.True(t, slices.ContainsFunc(want.Findings, func(f policy.Finding) bool {
		return strings.Contains(f.Problem, "than are listed")
	}))
	for range 1000 {
		d.Shuffle(len(policies), func(i, j int) { policies[i], policies[j] = policies[j], policies[i] })
		require.Equal(t, want, judge(t, Compile(policies), in))
	}
}
