package handlers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
)

// asked returns the response to a caller who taints a node that had none, so that all pods there
// are evicted.
func (b *blast) asked(t *testing.T, proven bool, node string) admission.Response {
	t.Helper()
	req := asking(t, node, false, b.taintNow("example.com/broken"))
	req.Unproven = !proven
	response, err := answer(t.Context(), b.nodes(), req)
	require.NoError(t, err)
	return response
}

func TestE05WhatAStrangerSendsChangesNothingForOthers(t *testing.T) {
	limited := func() *blast {
		b := newBlast(t, limiting(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(10))}))
		b.node("n1", 10)
		b.node("n2", 3)
		return b
	}

	t.Run("a write that nobody made does not count", func(t *testing.T) {
		b := limited()
		for range 20 {
			require.True(t, b.asked(t, false, "n1").Allowed, "it is answered all the same")
			b.clock.SetTime(b.clock.Now().Add(9 * time.Second))
			require.True(t, b.asked(t, false, "n2").Allowed)
		}
		require.True(t, b.asked(t, true, "n2").Allowed)
	})
	t.Run("nor does it use an approval", func(t *testing.T) {
		b := limited()
		b.node("n3", 12)
		b.approvals.list = []v1alpha1.EvictionApproval{approval("a", 13, func(a *v1alpha1.EvictionApproval) { a.Spec.Node = "n3" })}
		require.True(t, b.asked(t, false, "n3").Allowed)
		b.tracker.SetPod(podOn("n3", 99)) // the write that is made hits another pod
		require.True(t, b.asked(t, true, "n3").Allowed)
	})
	t.Run("a write of the API server does, before it is seen", func(t *testing.T) {
		b := limited()
		require.True(t, b.asked(t, true, "n1").Allowed)
		require.False(t, b.asked(t, true, "n2").Allowed)
		require.False(t, b.asked(t, false, "n2").Allowed)
	})
	t.Run("whoever sent it, a write counts once it is seen", func(t *testing.T) {
		b := limited()
		require.True(t, b.asked(t, false, "n1").Allowed)
		b.tracker.SetNode(tracker.Node{Name: "n1", UID: "n1", Taints: []corev1.Taint{b.taintNow("example.com/broken")}}, b.clock.Now())
		require.False(t, b.asked(t, false, "n2").Allowed)
	})
}
