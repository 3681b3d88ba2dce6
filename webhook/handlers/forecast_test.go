package handlers

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/preview"
	"github.com/tollgate-dev/tollgate/tracker"
)

func TestPreviewOfNodes(t *testing.T) {
	b := newBlast(t)
	b.node("n1", 3)
	gone := b.taintNow("example.com/broken")
	gone.Effect = corev1.TaintEffectNoSchedule
	for _, dryRun := range []bool{false, true} {
		require.Equal(t, []string{"evicts 3 pods in 1 namespace: 3 now"}, b.taints(t, "n1", dryRun, b.taintNow("example.com/broken")).Warnings)
	}
	require.Empty(t, b.taints(t, "n1", false, gone).Warnings)
	require.Empty(t, b.taints(t, "empty", false, b.taintNow("example.com/broken")).Warnings, "of nobody nothing is said")
	require.Empty(t, b.ledger.Others(preview.Query{Window: time.Hour}), "without a limit nothing is kept")
}

func TestPreviewOfWhatIsNotKnown(t *testing.T) {
	t.Run("without a limit it says that it is not complete", func(t *testing.T) {
		b := newBlast(t)
		b.node("n1", 3)
		b.unread = true
		response := b.taints(t, "n1", false, b.taintNow("example.com/broken"))
		require.True(t, response.Allowed)
		require.Equal(t, []string{errPodsUnread.warning}, response.Warnings)
		require.Contains(t, b.rule(t, ruleJSON(`{}`, "example.com/k", "NoExecute"), "").Warnings, errPodsUnread.warning)
		require.Contains(t, b.rule(t, ruleJSON(`{}`, "example.com/k", "None"), "").Warnings, errPodsUnread.warning)
		noSchedule := b.taintNow("example.com/broken")
		noSchedule.Effect = corev1.TaintEffectNoSchedule
		require.Empty(t, b.taints(t, "n1", false, noSchedule).Warnings)
	})
	t.Run("with a limit it is a fault and no verdict", func(t *testing.T) {
		b := newBlast(t, limiting(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(10))}))
		b.unread = true
		_, err := b.tryTaints(t, "n1", false, b.taintNow("example.com/broken"))
		require.ErrorIs(t, err, errPodsUnread)
		response, err := b.tryTaints(t, "n1", false, b.taintNow("free.example.org/x"))
		require.NoError(t, err, "the limit is not about it")
		require.True(t, response.Allowed)
	})
	t.Run("where pods are not followed there is no preview and no limit", func(t *testing.T) {
		b := newBlast(t, limiting(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(10))}))
		b.preview = nil
		_, err := b.tryTaints(t, "n1", false, b.taintNow("example.com/broken"))
		require.EqualError(t, err, "a TaintPolicy limits how many pods the taint may affect, and that cannot be known: "+
			"taints of nodes are not followed, because the feature gate NodeTaintEviction is off")
		response, err := b.tryTaints(t, "n1", false, b.taintNow("free.example.org/x"))
		require.NoError(t, err)
		require.Empty(t, response.Warnings)
		require.Empty(t, b.preview.registration(&v1alpha1.TaintPolicy{}))
		require.True(t, b.rule(t, ruleJSON(`{}`, "free", "None"), "").Allowed)
	})
}

func TestPreviewWhereTaintsOfOneKindAreNotFollowed(t *testing.T) {
	const (
		warning = "it is not known how many pods this evicts: "
		fault   = "a TaintPolicy limits how many pods the taint may affect, and that cannot be known: "
		nodes   = "taints of nodes are not followed, because the feature gate NodeTaintEviction is off"
		devices = "taints of devices are not followed, because the feature gate DeviceTaintEviction is off"
	)
	yes := func() bool { return true }
	rule := ruleJSON(`{}`, "example.com/k", "NoExecute")
	t.Run("of nodes", func(t *testing.T) {
		b := newBlast(t)
		b.show(&preview.View{Tracker: b.tracker, PodsKnown: yes, DevicesKnown: yes, BudgetsKnown: yes})
		require.Equal(t, []string{warning + nodes}, b.taints(t, "n1", false, b.taintNow("example.com/broken")).Warnings)
		require.Equal(t, []string{warning + nodes}, b.preview.registration(keeping(corev1.TaintEffectNoExecute, true)))
		require.NotContains(t, b.rule(t, rule, "").Warnings, warning+devices)
	})
	t.Run("of devices", func(t *testing.T) {
		b := newBlast(t)
		b.show(&preview.View{Tracker: b.tracker, PodsKnown: yes, NodesKnown: yes, BudgetsKnown: yes})
		require.Contains(t, b.rule(t, rule, "").Warnings, warning+devices)
		require.Contains(t, b.rule(t, ruleJSON(`{}`, "example.com/k", "None"), "").Warnings, warning+devices)
		require.Empty(t, b.taints(t, "n1", false, b.taintNow("example.com/broken")).Warnings)
	})
	t.Run("with a limit it is a fault that names the feature gate", func(t *testing.T) {
		b := newBlast(t, limiting(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(10))}))
		b.show(&preview.View{Tracker: b.tracker, PodsKnown: yes, DevicesKnown: yes, BudgetsKnown: yes})
		_, err := b.tryTaints(t, "n1", false, b.taintNow("example.com/broken"))
		require.EqualError(t, err, fault+nodes)
		response, err := b.tryTaints(t, "n1", false, b.taintNow("free.example.org/x"))
		require.NoError(t, err)
		require.True(t, response.Allowed, "the limit is not about it")
	})
}

func TestPreviewOfRules(t *testing.T) {
	b := newBlast(t)
	b.user("a", "x0")
	b.user("b", "x1")
	one, all := `{"driver":"gpu","device":"x0"}`, `{"driver":"gpu"}`
	rule := ruleJSON
	for name, tt := range map[string]struct {
		now, old string
		want     string
	}{
		"created":                       {rule(one, "k", "NoExecute"), "", "evicts 1 pod in 1 namespace: 1 now"},
		"created with nobody to evict":  {rule(`{"driver":"other"}`, "k", "NoExecute"), "", ""},
		"created without a name":        {strings.Replace(rule(all, "k", "NoExecute"), `"name":"r"`, `"generateName":"r-"`, 1), "", "evicts 2 pods in 1 namespace: 2 now"},
		"made wider":                    {rule(all, "k", "NoExecute"), rule(one, "k", "NoExecute"), "evicts 1 pod in 1 namespace: 1 now"},
		"made narrower":                 {rule(one, "k", "NoExecute"), rule(all, "k", "NoExecute"), ""},
		"written again":                 {rule(all, "k", "NoExecute"), rule(all, "k", "NoExecute"), ""},
		"with the effect None":          {rule(all, "k", "None"), "", "with the effect NoExecute it would evict 2 pods in 1 namespace: 2 now"},
		"from None to NoExecute":        {rule(all, "k", "NoExecute"), rule(all, "k", "None"), "evicts 2 pods in 1 namespace: 2 now"},
		"from NoExecute to None":        {rule(all, "k", "None"), rule(all, "k", "NoExecute"), ""},
		"with the effect NoSchedule":    {rule(all, "k", "NoSchedule"), "", ""},
		"that selects nothing":          {rule("null", "k", "NoExecute"), "", ""},
		"with an effect nobody knows":   {rule(all, "k", "Later"), "", ""},
		"with None and nobody to evict": {rule(`{"driver":"other"}`, "k", "None"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var previews []string
			for _, warning := range b.rule(t, tt.now, tt.old).Warnings {
				if strings.Contains(warning, "evict") && strings.Contains(warning, "namespace") {
					previews = append(previews, warning)
				}
			}
			if tt.want == "" {
				require.Empty(t, previews)
				return
			}
			require.Equal(t, []string{tt.want}, previews)
		})
	}
}

func TestPreviewOfSlices(t *testing.T) {
	b := newBlast(t, limiting(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(0))}))
	b.user("a", "x0")
	slice := func(taints string) string {
		return `{"metadata":{"generateName":"s-"},"spec":{"driver":"gpu","nodeName":"n1","pool":{"name":"p","generation":3},"devices":[{"name":"x0","taints":` + taints + `}]}}`
	}
	const hot = `[{"key":"example.com/hot","effect":"NoExecute","timeAdded":"2026-11-20T12:00:00Z"}]`
	ask := func(now, old string, user ...string) admission.Response {
		review := asUser(deviceReview(t, "resourceslices", "v1", now, old), user[0], user[1:]...)
		review.Request.Name = ""
		review.Request.UserInfo.Extra = map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/node-name": {"n1"}}
		return judged(t, b.reviewer().handler(request.validateSlice), review)
	}
	const driver = "system:serviceaccount:gpu:driver"
	response := ask(slice(hot), "", driver)
	require.True(t, response.Allowed, "no limit holds a driver back from its own devices: %v", response.Result)
	require.Equal(t, []string{"evicts 1 pod in 1 namespace: 1 now"}, response.Warnings)
	require.Equal(t, response.Warnings, ask(slice(hot), slice("null"), driver).Warnings)
	require.Empty(t, ask(slice(hot), slice(hot), driver).Warnings)
	require.Empty(t, ask(slice("null"), slice(hot), driver).Warnings)

	response = ask(slice(hot), slice("null"), "ann", "sre")
	requireReason(t, "TooManyAffected", response)
	require.NotContains(t, response.Result.Message, "EvictionApproval", "there are none for slices")
}

// keeping returns a policy that puts taints on the nodes of a pool, and with reconcile
// keeps them there.
func keeping(effect corev1.TaintEffect, reconcile bool) *v1alpha1.TaintPolicy {
	return &v1alpha1.TaintPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: v1alpha1.TaintPolicySpec{
			Taints: []v1alpha1.TaintSelector{{Key: "dedicated"}},
			Register: []v1alpha1.TaintRegistration{
				{
					NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "banana"}}, Reconcile: reconcile,
					Taints: []v1alpha1.RegisteredTaint{{Key: "dedicated", Value: "banana", Effect: effect}},
				},
				{
					NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "cherry"}},
					Taints:       []v1alpha1.RegisteredTaint{{Key: "dedicated", Value: "cherry", Effect: corev1.TaintEffectNoExecute}},
				},
			},
		},
	}
}

func TestPreviewOfATaintPolicy(t *testing.T) {
	b := newBlast(t)
	for _, name := range []string{"n1", "n2", "n3"} {
		b.node(name, 2)
	}
	for name, pool := range map[string]string{"n1": "banana", "n2": "banana", "n3": "cherry"} {
		b.tracker.SetNode(tracker.Node{Name: name, UID: types.UID(name), Labels: tracker.LabelsOf(map[string]string{"pool": pool})}, noon)
	}
	require.Equal(t, []string{"evicts 4 pods in 1 namespace: 4 now"}, b.preview.registration(keeping(corev1.TaintEffectNoExecute, true)))
	require.Empty(t, b.preview.registration(keeping(corev1.TaintEffectNoExecute, false)), "nodes that there are keep what they have")
	require.Empty(t, b.preview.registration(keeping(corev1.TaintEffectNoSchedule, true)))
	b.unread = true
	require.Equal(t, []string{errPodsUnread.warning}, b.preview.registration(keeping(corev1.TaintEffectNoExecute, true)))
}

func TestAnUnfollowedPodIsToldFromOtherFaults(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, unfollowed(tracker.SourceNode), ErrUnfollowed)
	require.NotErrorIs(t, errPodsUnread, ErrUnfollowed)
}
