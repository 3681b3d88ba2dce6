package preview

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
)

func TestApprovalsOfPatches(t *testing.T) {
	t.Parallel()
	l := newLeader(limitsYes)
	carrier := tracker.Source{Kind: tracker.SourcePatch, Name: "gpu-broken"}
	j := &judging{Limits: l.limits, write: &Write{Carrier: carrier}, now: limitsNoon}
	want := need{key: "dedicated", pods: 3}
	require.Equal(t, "to approve it, create an EvictionApproval with spec {resourceSlicePatch: gpu-broken, taint: {key: dedicated, effect: NoExecute}, maxPods: 3}, "+
		"then write this again", j.write.remedy([]need{want}))

	a := approval("a", "", 3)
	a.Spec.ResourceSlicePatch = "gpu-broken"
	require.True(t, j.covers(&a, want, limitsNoon))
	for name, of := range map[string]tracker.Source{
		"another patch": {Kind: tracker.SourcePatch, Name: "other"}, "a rule of that name": {Kind: tracker.SourceRule, Name: "gpu-broken"},
	} {
		other := &judging{Limits: l.limits, write: &Write{Carrier: of}, now: limitsNoon}
		require.False(t, other.covers(&a, want, limitsNoon), name)
	}

	write := func(rule string, created time.Time) {
		l.tracker.SetRule(tracker.RuleOf(&resourcev1.DeviceTaintRule{
			ObjectMeta: metav1.ObjectMeta{
				Name: rule, UID: "rule-uid", CreationTimestamp: metav1.NewTime(created), Labels: map[string]string{v1alpha1.LabelPatch: "uid"},
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: v1alpha1.GroupVersion.String(), Kind: "ResourceSlicePatch", Name: "gpu-broken", UID: "uid", Controller: new(true),
				}},
			},
			Spec: resourcev1.DeviceTaintRuleSpec{Taint: resourcev1.DeviceTaint{
				Key: "dedicated", Effect: resourcev1.DeviceTaintEffectNoExecute, TimeAdded: new(metav1.NewTime(created)),
			}},
		}), created)
	}
	write("gpu-broken-1", limitsNoon.Add(-time.Hour))
	require.True(t, j.covers(&a, want, limitsNoon), "it is for what the patch is to reach beyond that")
	write("gpu-broken-2", limitsNoon.Add(time.Second))
	require.False(t, j.covers(&a, want, limitsNoon.Add(time.Minute)), "it was used when the patch came to reach further")
}
