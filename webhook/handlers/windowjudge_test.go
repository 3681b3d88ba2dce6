package handlers

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

// guardedWindow is a configuration in which only alice may tolerate taints, of nodes and
// of devices, that pods and claims are given 20 seconds of.
func guardedWindow(t *testing.T, on bool) Config {
	t.Helper()
	config := testConfig()
	config.Window = on
	config.Policies = holding{granting(t, map[string]string{
		"guard": `{taints: [{key: rack}, {key: degraded, target: Device}], grants: [{subjects: [{kind: User, name: alice}]}]}`,
	}).policies.WithEvictions([]v1alpha1.EvictionPolicy{
		windowPolicy("rack", v1alpha1.TaintTargetNode, "rack", 20), windowPolicy("degraded", v1alpha1.TaintTargetDevice, "degraded", 30),
	})}
	config.Live = storing(
		nodeTainted("evicting", corev1.Taint{Key: "rack", Value: "7", Effect: corev1.TaintEffectNoExecute}),
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "apple", Name: "p", UID: "p", Annotations: map[string]string{v1alpha1.AnnotationWindow: "rack=20"}},
			Spec:       corev1.PodSpec{Tolerations: podWindows.all([]v1alpha1.WindowToleration{{Key: "rack", Seconds: 20}})},
		},
	)
	return config
}

func TestWhatIsGivenIsNotRefused(t *testing.T) {
	given := `{"metadata":{"annotations":{"tollgate.dev/window":"rack=20"}},"spec":{"tolerations":[` + rackWindow + `]}}`
	longer := `{"metadata":{},"spec":{"tolerations":[{"key":"rack","operator":"Exists","effect":"NoExecute","tolerationSeconds":21}]}}`
	claimed := `{"metadata":{"annotations":{"tollgate.dev/window":"degraded=30"}},"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"gpu","tolerations":[` + gpuWindow + `]}}]}}}`
	forever := `{"metadata":{},"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"gpu","tolerations":[{"key":"degraded","operator":"Exists","effect":"NoExecute"}]}}]}}}`
	const claims = "resource.k8s.io/resourceclaims"

	t.Run("a pod with its window", func(t *testing.T) {
		require.True(t, judgePod(t, guardedWindow(t, true), asked(t, "pods", "", named("mallory"), given, nil)).Allowed)
	})
	t.Run("but not with more", func(t *testing.T) {
		response := judgePod(t, guardedWindow(t, true), asked(t, "pods", "", named("mallory"), longer, nil))
		requireRefused(t, response, policy.TolerationNotGranted, "spec.tolerations[0]")
	})
	t.Run("nor in another mode", func(t *testing.T) {
		response := judgePod(t, guardedWindow(t, false), asked(t, "pods", "", named("mallory"), given, nil))
		requireRefused(t, response, policy.TolerationNotGranted, "spec.tolerations[0]")
	})
	t.Run("a claim with its window", func(t *testing.T) {
		require.True(t, judgePod(t, guardedWindow(t, true), asked(t, claims, "", named("mallory"), claimed, nil)).Allowed)
	})
	t.Run("a template with its window", func(t *testing.T) {
		template := `{"metadata":{"name":"t"},"spec":` + claimed + `}`
		require.True(t, judgePod(t, guardedWindow(t, true), asked(t, "resource.k8s.io/resourceclaimtemplates", "", named("mallory"), template, nil)).Allowed)
	})
	t.Run("but not with more, nor in another mode", func(t *testing.T) {
		path := "spec.devices.requests[0].exactly.tolerations[0]"
		requireRefused(t, judgePod(t, guardedWindow(t, true), asked(t, claims, "", named("mallory"), forever, nil)), policy.TolerationNotGranted, path)
		requireRefused(t, judgePod(t, guardedWindow(t, false), asked(t, claims, "", named("mallory"), claimed, nil)), policy.TolerationNotGranted, path)
	})
	t.Run("a gate opens for a pod with the window that it was given, whatever the policies are now", func(t *testing.T) {
		gated := `{"metadata":{"annotations":{"tollgate.dev/window":"rack=99"}},"spec":{"schedulingGates":[{"name":"x"}],"tolerations":[{"key":"rack","operator":"Exists","effect":"NoExecute","tolerationSeconds":99}]}}`
		open := `{"metadata":{"annotations":{"tollgate.dev/window":"rack=99"}},"spec":{"tolerations":[{"key":"rack","operator":"Exists","effect":"NoExecute","tolerationSeconds":99}]}}`
		config := guardedWindow(t, true)
		config.Policies = holding{granting(t, map[string]string{"guard": `{taints: [{key: rack}], grants: []}`}).policies}
		require.True(t, judgePod(t, config, asked(t, "pods", "", named("mallory"), open, gated)).Allowed)

		bare := `{"metadata":{},"spec":{"schedulingGates":[{"name":"x"}],"tolerations":[` + rackWindow + `]}}`
		response := judgePod(t, config, asked(t, "pods", "", named("mallory"), `{"metadata":{},"spec":{"tolerations":[`+rackWindow+`]}}`, bare))
		requireRefused(t, response, policy.TolerationNotGranted, "spec.tolerations[0]")
	})
}

func TestAWindowGetsNoPodPastTheScheduler(t *testing.T) {
	given := `{"metadata":{"annotations":{"tollgate.dev/window":"rack=20"}},"spec":{"nodeName":"evicting","tolerations":[` + rackWindow + `]}}`
	unmarked := `{"metadata":{},"spec":{"nodeName":"evicting","tolerations":[` + rackWindow + `]}}`
	t.Run("by its node name", func(t *testing.T) {
		response := judgePod(t, guardedWindow(t, true), asked(t, "pods", "", named("mallory"), given, nil))
		requireRefused(t, response, policy.TaintNotTolerated, "spec.nodeName", "rack=7:NoExecute")
	})
	t.Run("nor by a toleration that is like one", func(t *testing.T) {
		response := judgePod(t, guardedWindow(t, true), asked(t, "pods", "", named("mallory"), unmarked, nil))
		require.False(t, response.Allowed)
		require.True(t, judgePod(t, guardedWindow(t, true), asked(t, "pods", "", named("alice"), unmarked, nil)).Allowed, "she may")
	})
	t.Run("nor by a binding", func(t *testing.T) {
		binding := corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Target: corev1.ObjectReference{Kind: "Node", Name: "evicting"}}
		response := judgePod(t, guardedWindow(t, true), asked(t, "pods", "binding", named("mallory"), binding, nil))
		requireRefused(t, response, policy.TaintNotTolerated, "target.name", "rack=7:NoExecute")
	})
}

func TestNobodyElseSaysWhichTaintsOfANodeAreTwins(t *testing.T) {
	with := func(value string) string {
		if value == "" {
			return `{"metadata":{"name":"n1"},"spec":{}}`
		}
		return `{"metadata":{"name":"n1","annotations":{"a":"b","tollgate.dev/twins":"` + value + `"}},"spec":{}}`
	}
	node := governedBy()
	handlers := map[string]Handler{"": node.handler(request.validateNode), "status": node.judging(request.judgeNodeStatus)}
	for subresource, j := range handlers {
		for sentence, tt := range map[string]struct{ user, old, now, reason string }{
			"a node":             {"system:node:n1", "", "rack=7", "WindowReserved"},
			"an administrator":   {"ann", "rack=7", "", "WindowReserved"},
			"another value":      {"ann", "rack=7", "rack=8", "WindowReserved"},
			"none, as before":    {"ann", "", "", ""},
			"the same as before": {"system:node:n1", "rack=7", "rack=7", ""},
		} {
			t.Run(subresource+" "+sentence, func(t *testing.T) {
				review := asUser(nodeReview(t, admissionv1.Update, with(tt.now), with(tt.old)), tt.user)
				review.Request.SubResource = subresource
				requireReason(t, tt.reason, judged(t, j, review))
			})
		}
	}
	t.Run("but Tollgate", func(t *testing.T) {
		review := asUser(nodeReview(t, admissionv1.Update, with("rack=7"), with("")), "system:serviceaccount:tollgate-system:tollgate")
		requireReason(t, "", judged(t, handlers[""], review))
	})
	t.Run("a new node has none", func(t *testing.T) {
		unstamped := governedBy()
		unstamped.NodeTaintTimestamps = false
		for _, r := range []*reviewer{governedBy(taintPolicies()...), unstamped} {
			got := placedBy(t, r.mutating(request.mutateNode), with("rack=7"))
			require.NotContains(t, got, v1alpha1.AnnotationTwins)
			require.Contains(t, got, `"a":"b"`)
		}
	})
}
