package tolerations

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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
		before := refused(Compile(policies).Judge(in))
		wider := &policies[d.IntN(len(policies))].Spec
		wider.Grants = append(wider.Grants, d.grant())
		after := refused(Compile(policies).Judge(in))
		require.Subset(t, before, after)
		if len(after) < len(before) {
			helped++
		}
	}
	require.Greater(t, helped, 20)
}

func TestAddingAPolicyNeverAllowsMore(t *testing.T) {
	d := newDice(t)
	hindered := 0
	for range 1000 {
		policies, in := d.policies(3), d.input()
		before := refused(Compile(policies).Judge(in))
		after := refused(Compile(append(policies, d.policy("new"))).Judge(in))
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
		before := set.Judge(in)
		d.Shuffle(len(in.New), func(i, j int) { in.New[i], in.New[j] = in.New[j], in.New[i] })
		d.Shuffle(len(in.Old), func(i, j int) { in.Old[i], in.Old[j] = in.Old[j], in.Old[i] })
		after := set.Judge(in)
		require.Equal(t, before.Verdict, after.Verdict)
		require.Len(t, after.Findings, len(before.Findings))
	}
}

func TestAMoreNarrowTolerationIsNeverRefusedMore(t *testing.T) {
	d := newDice(t)
	for range 1000 {
		set, in := Compile(d.policies(3)), d.input()
		tol := d.toleration()
		in.Old, in.New = nil, nil
		in.New = append(in.New, tol)
		if set.Judge(in).Verdict == policy.Denied {
			continue
		}
		if tol.Effect == "" {
			in.New[0].Effect = pick(d, noSchedule, noExecute, prefer)
		}
		if tol.Key == "" {
			in.New[0].Key = pick(d, universeKeys...)
		}
		require.Equal(t, policy.Allowed, set.Judge(in).Verdict, "from %+v to %+v", tol, in.New[0])
	}
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
	want := Compile(policies).Judge(in)
	require.Equal(t, policy.Denied, want.Verdict)
	require.True(t, slices.ContainsFunc(want.Findings, func(f policy.Finding) bool {
		return strings.Contains(f.Problem, "than are listed")
	}))
	for range 1000 {
		d.Shuffle(len(policies), func(i, j int) { policies[i], policies[j] = policies[j], policies[i] })
		require.Equal(t, want, Compile(policies).Judge(in))
	}
}
