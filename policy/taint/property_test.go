package taint

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

// draw makes up policies and requests.
type draw struct{ *rand.Rand }

func pick[T any](d draw, from ...T) T { return from[d.IntN(len(from))] }

func (d draw) policy(name string) v1alpha1.TaintPolicy {
	p := newPolicy(name, pick(d, "*", "a", "b", "example.com/*", "example.com/x", "node.kubernetes.io/*"))
	if d.IntN(3) == 0 {
		p.Spec.Taints[0].Values = []string{pick(d, "", "1", "2")}
	}
	if d.IntN(3) == 0 {
		p.Spec.Taints[0].Effects = []corev1.TaintEffect{pick[corev1.TaintEffect](d, "NoSchedule", "NoExecute")}
	}
	for range d.IntN(3) {
		pick(d, setBy("sre"), setBy("sre", pick(d, v1alpha1.TaintAdd, v1alpha1.TaintChange, v1alpha1.TaintRemove)), setByRBAC, setWhere(`operation == 'Add'`))(&p.Spec)
	}
	if d.IntN(3) == 0 {
		p.Spec.Limits = &v1alpha1.TaintLimits{MaxTimeAddedSkew: duration(time.Minute)}
	}
	if d.IntN(4) == 0 {
		acting(v1alpha1.Warn)(&p.Spec)
	}
	if d.IntN(5) == 0 {
		matching(pick(d, `request.userInfo.username == 'ann'`, `object.metadata.name == 'n1'`))(&p.Spec)
	}
	return p
}

func (d draw) taints() []corev1.Taint {
	byKind := map[kind]corev1.Taint{}
	for range d.IntN(5) {
		t := nodeTaint(pick(d, "a", "b", "example.com/x", "example.com/y", "node.kubernetes.io/x"), pick(d, "", "1", "2"), pick[corev1.TaintEffect](d, "NoSchedule", "NoExecute"))
		if d.IntN(3) == 0 {
			t = at(t, noon.Add(time.Duration(d.IntN(5)-2)*time.Minute))
		}
		byKind[OfNode(&t).kind()] = t
	}
	var taints []corev1.Taint
	for _, t := range byKind {
		taints = append(taints, t)
	}
	return taints
}

func (d draw) input(t *testing.T) Input {
	t.Helper()
	user := pick(d, sre, outside, kubelet, &authenticationv1.UserInfo{Username: "system:kube-controller-manager"})
	in := input(user, d.taints(), d.taints())
	in.Review.Authorizer = authorizing(func(a authorizer.Attributes) (bool, error) { return a.GetName() == "a", nil })
	return in
}

// TestD07TheOrderOfPoliciesDoesNotMatter shuffles policies: findings are the same to
// the byte.
func TestD07TheOrderOfPoliciesDoesNotMatter(t *testing.T) {
	d := draw{rand.New(rand.NewPCG(3, 4))}
	for range 100 {
		var policies []v1alpha1.TaintPolicy
		for i := range 1 + d.IntN(6) {
			policies = append(policies, d.policy(fmt.Sprintf("p%d", i)))
		}
		in := d.input(t)
		want := fmt.Sprintf("%+v", judge(t, in, policies...))
		for range 5 {
			d.Shuffle(len(policies), func(i, j int) { policies[i], policies[j] = policies[j], policies[i] })
			require.Equal(t, want, fmt.Sprintf("%+v", judge(t, in, policies...)))
		}
	}
}

// TestAPolicyNeverAllowsMore adds a policy to others: what they refused stays refused.
func TestAPolicyNeverAllowsMore(t *testing.T) {
	d := draw{rand.New(rand.NewPCG(5, 6))}
	for range 300 {
		policies := []v1alpha1.TaintPolicy{d.policy("a"), d.policy("b")}
		in := d.input(t)
		if judge(t, in, policies...).Verdict == policy.Denied {
			require.Equal(t, policy.Denied, judge(t, in, append(policies, d.policy("c"))...).Verdict)
		}
	}
}

// TestTheIndexFindsEveryPolicyThatGoverns compares the set with a walk over all of its
// policies.
func TestTheIndexFindsEveryPolicyThatGoverns(t *testing.T) {
	d := draw{rand.New(rand.NewPCG(7, 8))}
	for range 300 {
		var policies []v1alpha1.TaintPolicy
		for i := range 1 + d.IntN(8) {
			policies = append(policies, d.policy(fmt.Sprintf("p%d", i)))
		}
		set := Compile(policies)
		writes := d.input(t).Writes
		found := set.candidates(writes)
		require.True(t, slices.IsSorted(found))
		for position := range set.Policies {
			for i := range writes {
				if set.Policies[position].seen(&writes[i]) != "" {
					require.Contains(t, found, position)
				}
			}
		}
	}
}

// TestNextIsWhatCompileWouldBe changes policies one by one.
func TestNextIsWhatCompileWouldBe(t *testing.T) {
	d := draw{rand.New(rand.NewPCG(9, 10))}
	byName := map[string]v1alpha1.TaintPolicy{}
	var set *Set
	for round := range 200 {
		name := pick(d, "a", "b", "c", "d")
		switch d.IntN(4) {
		case 0:
			delete(byName, name)
		default:
			p := d.policy(name)
			p.UID, p.Generation = types.UID(name), byName[name].Generation+1
			if d.IntN(3) == 0 { // deleted and made anew
				p.UID, p.Generation = types.UID(name+"-"+strconv.Itoa(round)), 1
			}
			byName[name] = p
		}
		policies := slices.Collect(maps.Values(byName))
		set = set.Next(policies)
		in := d.input(t)
		got, err := set.Judge(t.Context(), in)
		require.NoError(t, err)
		require.Equal(t, judge(t, in, policies...), got)
		require.Equal(t, Compile(policies).Problems(), set.Problems())
	}
}
