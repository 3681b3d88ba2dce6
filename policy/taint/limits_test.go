package taint

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

func limitsOf(t *testing.T, in Input, policies ...v1alpha1.TaintPolicy) []Limit {
	t.Helper()
	limits, err := Compile(policies).Limits(t.Context(), in)
	require.NoError(t, err)
	return limits
}

func TestLimitsAreThoseOfThePoliciesThatGovernWhatIsWritten(t *testing.T) {
	broken := []corev1.Taint{nodeTaint("example.com/broken", "", corev1.TaintEffectNoExecute)}
	pods := limited(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(50)), Window: metav1.Duration{Duration: time.Hour}})
	b := newPolicy("b", "example.com/*", pods)
	a := newPolicy("a", "*", limited(v1alpha1.TaintLimits{MaxAffectedPercent: new(int32(10))}))
	others := []v1alpha1.TaintPolicy{
		newPolicy("no-limits", "*"),
		newPolicy("other-key", "other.org/*", pods),
		newPolicy("other-limits", "*", limited(v1alpha1.TaintLimits{MaxTimeAddedSkew: duration(time.Minute)})),
		newPolicy("other-requests", "*", pods, matching(`false`)),
		newPolicy("of-devices", "*", ofDevices(), pods),
	}
	found := limitsOf(t, input(outside, broken, nil), append(others, b, a)...)
	require.Len(t, found, 2)
	require.Equal(t, "a", found[0].Policy)
	require.Equal(t, 10*time.Minute, found[0].Window, "as the schema has it, where it was not asked")
	require.Equal(t, "b", found[1].Policy)
	require.Equal(t, time.Hour, found[1].Window)
	require.True(t, found[1].Governs(OfNode(&broken[0])))
	require.False(t, found[1].Governs(Taint{Target: v1alpha1.TaintTargetNode, Key: "other.org/x", Effect: "NoExecute"}))

	require.Empty(t, limitsOf(t, input(outside, nil, broken), a, b), "to remove a taint is not limited")
	require.Empty(t, limitsOf(t, input(outside, broken, broken), a, b), "nor is what stands")
	require.Len(t, limitsOf(t, input(sre, broken, nil), newPolicy("a", "*", setBy("sre"), pods)), 1, "setters are")
}

func TestAFaultLeavesTheOtherLimitsAndThoseThatOnlyWarn(t *testing.T) {
	broken := []corev1.Taint{nodeTaint("example.com/broken", "", corev1.TaintEffectNoExecute)}
	pods := limited(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(50))})
	asks := matching(`authorizer.group('').resource('nodes').check('taint').allowed()`)
	in := input(outside, broken, nil)
	in.Review.Authorizer = authorizing(func(authorizer.Attributes) (bool, error) { return false, errNobodyAnswers })
	found, err := Compile([]v1alpha1.TaintPolicy{
		newPolicy("a", "*", pods, asks), newPolicy("b", "*", pods), newPolicy("c", "*", pods, asks, acting(v1alpha1.Warn)),
	}).Limits(t.Context(), in)
	require.ErrorIs(t, err, errNobodyAnswers)
	require.Len(t, found, 2)
	require.Equal(t, "b", found[0].Policy)
	require.True(t, found[0].Denies())
	require.Equal(t, "c", found[1].Policy)
	require.False(t, found[1].Denies())
	finding := found[1].Exceeded(Affected{Pods: 51}, field.NewPath("spec"), "", "")
	require.Equal(t, "hits 51 pods; at most 50 are allowed (not all of the policy could be judged)", finding.Problem)
}

func TestTheWindowIsWrittenShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		10 * time.Minute: "10m", time.Hour: "1h", 24 * time.Hour: "24h", 90 * time.Second: "1m30s", time.Second: "1s",
		time.Hour + time.Second: "1h0m1s", 90 * time.Minute: "1h30m", 10 * time.Second: "10s",
	} {
		require.Equal(t, want, short(d))
	}
}

func TestSystemControllersAreNotLimitedInTheirKeys(t *testing.T) {
	system := newPolicy("system", "node.kubernetes.io/*", limited(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(0))}))
	notReady := []corev1.Taint{nodeTaint(corev1.TaintNodeNotReady, "", corev1.TaintEffectNoExecute)}
	controller := outside.DeepCopy()
	controller.Username = "system:kube-controller-manager"
	require.Empty(t, limitsOf(t, input(controller, notReady, nil), system))
	require.Len(t, limitsOf(t, input(outside, notReady, nil), system), 1)
}

func TestALimitIsExceededBeyondItsCount(t *testing.T) {
	pods := newPolicy("p", "*", limited(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(50))}))
	percent := newPolicy("p", "*", limited(v1alpha1.TaintLimits{MaxAffectedPercent: new(int32(10))}))
	nothing := newPolicy("p", "*", limited(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(0))}))
	tests := map[string]struct {
		p        v1alpha1.TaintPolicy
		affected Affected
		want     string
	}{
		"as many as are allowed":              {pods, Affected{Pods: 50, Live: 1000}, ""},
		"one more":                            {pods, Affected{Pods: 51, Live: 1000}, "hits 51 pods; at most 50 are allowed"},
		"one more with those before":          {pods, Affected{Pods: 1, Before: 50, Live: 1000}, "hits 1 pod, 51 together with the 50 that other writes of the last 10m hit; at most 50 are allowed"},
		"none, after too many":                {pods, Affected{Before: 500, Live: 1000}, ""},
		"a tenth":                             {percent, Affected{Pods: 10, Live: 100}, ""},
		"more than a tenth":                   {percent, Affected{Pods: 6, Before: 5, Live: 100}, "hits 6 pods, 11 together with the 5 that other writes of the last 10m hit, of 100 in the cluster; at most 10 percent are allowed"},
		"a tenth of few rounds to the strict": {percent, Affected{Pods: 1, Live: 9}, "hits 1 pod of 9 in the cluster; at most 10 percent are allowed"},
		"of nobody":                           {percent, Affected{Pods: 1}, "hits 1 pod of 0 in the cluster; at most 10 percent are allowed"},
		"nothing is allowed":                  {nothing, Affected{Pods: 1, Live: 100}, "hits 1 pod; at most 0 are allowed"},
	}
	broken := nodeTaint("example.com/broken", "", corev1.TaintEffectNoExecute)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			limit := limitsOf(t, input(outside, []corev1.Taint{broken}, nil), tt.p)[0]
			found := limit.Exceeded(tt.affected, field.NewPath("spec", "taints").Index(0), broken.ToString(), "approve it")
			if tt.want == "" {
				require.Nil(t, found)
				return
			}
			require.Equal(t, tt.want, found.Problem)
			require.Equal(t, policy.TooManyAffected, found.Reason)
			require.Equal(t, "TaintPolicy/p", found.Policy)
			require.Equal(t, "spec.taints[0]", found.Field)
			require.Equal(t, "approve it", found.Remedy)
			require.True(t, found.Denies())
		})
	}
}

func TestTTLIsTheShortest(t *testing.T) {
	ttl := func(d time.Duration) option {
		return func(s *v1alpha1.TaintPolicySpec) { s.TTL = duration(d) }
	}
	taint := OfNode(new(nodeTaint("example.com/broken", "", corev1.TaintEffectNoExecute)))
	otherEffect := newPolicy("other-effect", "example.com/*", ttl(time.Minute))
	otherEffect.Spec.Taints[0].Effects = []corev1.TaintEffect{corev1.TaintEffectNoSchedule}
	set := Compile([]v1alpha1.TaintPolicy{
		otherEffect, newPolicy("day", "*", ttl(24*time.Hour)), newPolicy("hour", "example.com/*", ttl(time.Hour)), newPolicy("none", "*"),
		newPolicy("others", "other.org/*", ttl(time.Minute)), newPolicy("invalid", "*", ttl(time.Second)), newPolicy("z-hour", "*", ttl(time.Hour)),
	})
	got, by, ok := set.TTL(taint)
	require.True(t, ok)
	require.Equal(t, time.Hour, got)
	require.Equal(t, "hour", by)

	_, _, ok = set.TTL(Taint{Target: v1alpha1.TaintTargetDevice, Key: "example.com/broken", Effect: "NoExecute"})
	require.False(t, ok)
	_, _, ok = (*Set)(nil).TTL(taint)
	require.False(t, ok)
}
