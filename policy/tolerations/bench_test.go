package tolerations

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

// teams returns n policies: each team has a value of one shared key and a key of
// its own, and may do both for a while.
func teams(n int) []v1alpha1.TolerationPolicy {
	policies := make([]v1alpha1.TolerationPolicy, n)
	for i := range policies {
		team := fmt.Sprintf("team-%05d", i)
		policies[i] = v1alpha1.TolerationPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: team},
			Spec: v1alpha1.TolerationPolicySpec{
				Taints: []v1alpha1.TaintSelector{
					{Target: v1alpha1.TaintTargetNode, Key: "dedicated", Values: []string{team}},
					{Target: v1alpha1.TaintTargetNode, Key: team + ".example.com/*", Effects: []corev1.TaintEffect{noExecute}},
				},
				Grants: []v1alpha1.TolerationGrant{
					{Namespaces: []string{team, team + "-*"}, MaxTolerationSeconds: new(int64(600))},
					{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "system"}}},
				},
				ValidationActions: []v1alpha1.ValidationAction{v1alpha1.Deny},
				Message:           "ask " + team,
			},
		}
	}
	return policies
}

// ofTeam is a pod as the API server would send it.
func ofTeam(namespace, tier string) Input {
	in := inputOf(namespace,
		corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "team-00000", Effect: noSchedule},
		corev1.Toleration{Key: "team-00000.example.com/broken", Operator: corev1.TolerationOpExists, Effect: noExecute, TolerationSeconds: new(int64(600))},
		corev1.Toleration{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: noExecute, TolerationSeconds: new(int64(300))},
		corev1.Toleration{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: noExecute, TolerationSeconds: new(int64(300))},
	)
	in.NamespaceLabels["tier"] = tier
	return in
}

// wildcard is a pod that comes under every policy.
func wildcard(tier string) Input {
	in := inputOf("kubelet-plugins", corev1.Toleration{Operator: corev1.TolerationOpExists})
	in.NamespaceLabels["tier"] = tier
	return in
}

func TestJudgeAllocatesNothingWhereItAllows(t *testing.T) {
	set := Compile(teams(1000))
	changed := ofTeam("team-00000", "")
	changed.Old = []corev1.Toleration{changed.New[2], changed.New[0]}
	for name, in := range map[string]Input{
		"by name":           ofTeam("team-00000", ""),
		"by prefix":         ofTeam("team-00000-dev", ""),
		"by label":          ofTeam("other", "system"),
		"on update":         changed,
		"under every guard": wildcard("system"),
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, policy.Allowed, set.Judge(in).Verdict)
			require.Zero(t, testing.AllocsPerRun(100, func() { set.Judge(in) }))
		})
	}
}

func BenchmarkJudge(b *testing.B) {
	inputs := []struct {
		name string
		in   Input
		want policy.Verdict
	}{
		{"allow", ofTeam("team-00000", ""), policy.Allowed},
		{"allow a wildcard", wildcard("system"), policy.Allowed},
		{"deny", ofTeam("other", ""), policy.Denied},
		{"deny a wildcard", wildcard("other"), policy.Denied},
	}
	for _, n := range []int{1, 100, 10_000} {
		set := Compile(teams(n))
		for _, input := range inputs {
			b.Run(fmt.Sprintf("%s of %d policies", input.name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if set.Judge(input.in).Verdict != input.want {
						b.Fatal("another verdict")
					}
				}
			})
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		policies := teams(n)
		b.Run(fmt.Sprintf("%d policies", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Compile(policies)
			}
		})
	}
}
