package toleration

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
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
	changed.Asked[0].Old = []corev1.Toleration{changed.Asked[0].New[2], changed.Asked[0].New[0]}
	for name, in := range map[string]Input{
		"by name":           ofTeam("team-00000", ""),
		"by prefix":         ofTeam("team-00000-dev", ""),
		"by label":          ofTeam("other", "system"),
		"on update":         changed,
		"under every guard": wildcard("system"),
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, policy.Allowed, judge(t, set, in).Verdict)
			ctx := t.Context()
			require.Zero(t, testing.AllocsPerRun(100, func() {
				if d, err := set.Judge(ctx, in); err != nil || d.Verdict != policy.Allowed {
					t.Error("another verdict")
				}
			}))
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
				ctx := b.Context()
				for b.Loop() {
					if d, err := set.Judge(ctx, input.in); err != nil || d.Verdict != input.want {
						b.Fatal("another verdict")
					}
				}
			})
		}
	}
}

// shared makes one of a hundred policies guard the key that every pod of the benchmark
// tolerates, and grant it by the given grant.
func shared(n int, grant v1alpha1.TolerationGrant) []v1alpha1.TolerationPolicy {
	policies := teams(n)
	for i := 0; i < n; i += 100 {
		policies[i].Spec.Taints = []v1alpha1.TaintSelector{{Target: v1alpha1.TaintTargetNode, Key: "shared"}}
		policies[i].Spec.Grants = []v1alpha1.TolerationGrant{{Namespaces: []string{"other"}}, grant}
	}
	return policies
}

func BenchmarkJudgeWhereOneInAHundredMatches(b *testing.B) {
	grants := []struct {
		name  string
		grant v1alpha1.TolerationGrant
	}{
		{"by namespace", v1alpha1.TolerationGrant{Namespaces: []string{"apple"}}},
		{"by RBAC", v1alpha1.TolerationGrant{RBAC: true}},
		{"by expression", v1alpha1.TolerationGrant{Expression: "request.userInfo.username == 'jane' && toleration.operator == 'Exists'"}},
	}
	for _, g := range grants {
		for _, n := range []int{1, 100, 1000, 10_000} {
			set := Compile(shared(n, g.grant))
			b.Run(fmt.Sprintf("%s, %d policies", g.name, n), func(b *testing.B) {
				b.ReportAllocs()
				ctx, in := b.Context(), inputOf("apple", corev1.Toleration{Key: "shared", Operator: corev1.TolerationOpExists})
				authority := &always{}
				for b.Loop() {
					in.Review = &cel.Review{Request: in.Review.Request, Authorizer: authority}
					if d, err := set.Judge(ctx, in); err != nil || d.Verdict != policy.Allowed {
						b.Fatal("another verdict", d, err)
					}
				}
			})
		}
	}
}

// always is an authorizer that allows everything at once.
type always struct{ court }

func (*always) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}

func BenchmarkAudit(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		set := Compile(shared(n, v1alpha1.TolerationGrant{RBAC: true}))
		b.Run(fmt.Sprintf("%d policies", n), func(b *testing.B) {
			b.ReportAllocs()
			ctx, namespace, in := b.Context(), apple(), Input{Asked: ofTeam("apple", "").Asked}
			for b.Loop() {
				if _, err := set.Audit(ctx, namespace, in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		for name, policies := range map[string][]v1alpha1.TolerationPolicy{
			"":                     teams(n),
			", with an expression": expressive(n),
		} {
			b.Run(fmt.Sprintf("%d policies%s", n, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					Compile(policies)
				}
			})
		}
	}
}

// BenchmarkNext is what one changed policy among many costs.
func BenchmarkNext(b *testing.B) {
	policies := expressive(10_000)
	for i := range policies {
		policies[i].UID = types.UID(policies[i].Name)
	}
	set := Compile(policies)
	b.ReportAllocs()
	for b.Loop() {
		policies[0].Generation++
		set = set.Next(policies)
	}
}

func expressive(n int) []v1alpha1.TolerationPolicy {
	policies := teams(n)
	for i := range policies {
		policies[i].Spec.Grants = append(policies[i].Spec.Grants, v1alpha1.TolerationGrant{
			Expression: "pod.metadata.?labels[?'team'].orValue('') == '" + policies[i].Name + "' && request.userInfo.username.startsWith('admin:')",
		})
	}
	return policies
}
