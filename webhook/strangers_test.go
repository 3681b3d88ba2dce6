package webhook

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
)

// asked is how one who shows an authorization header, or none, is answered for a taint on a node
// that had none, and that evicts all pods there.
func (b *blast) asked(t *testing.T, endpoint http.Handler, authorization, node string) *admissionv1.AdmissionResponse {
	t.Helper()
	review := asUser(nodeReview(t, admissionv1.Update, nodeJSON(t, nil, b.taintNow("example.com/broken")), nodeJSON(t, nil)), "ann", "sre")
	review.Request.Name = node
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/validate", bytes.NewReader(marshal(t, review)))
	r.Header.Set("Content-Type", "application/json")
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	answer := httptest.NewRecorder()
	endpoint.ServeHTTP(answer, r)
	require.Equal(t, http.StatusOK, answer.Code, answer.Body)
	var answered admissionv1.AdmissionReview
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &answered))
	return answered.Response
}

func TestE05WhatAStrangerSendsChangesNothingForOthers(t *testing.T) {
	options, key := askingForTokens(t, false)
	known := "Bearer " + mint(t, key, "*")
	guard := options.Callers.Guard(EndpointValidate)
	require.Eventually(t, func() bool { // Where that is optional, nobody waits for the keys of tokens.
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/validate", http.NoBody)
		r.Header.Set("Authorization", known)
		visit, _ := guard.Identify(r)
		return visit.Proven("")
	}, time.Minute, time.Millisecond)
	limited := func() (*blast, http.Handler) {
		b := newBlast(t, limiting(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(10))}))
		b.node("n1", 10)
		b.node("n2", 3)
		return b, newEndpoint(EndpointValidate, options, map[resource]handler{nodes: b.nodes()})
	}

	t.Run("a write that nobody made does not count", func(t *testing.T) {
		b, endpoint := limited()
		for range 20 {
			require.True(t, b.asked(t, endpoint, "", "n1").Allowed, "it is answered all the same")
			require.True(t, b.asked(t, endpoint, "Bearer x", "n1").Allowed)
			b.clock.SetTime(b.clock.Now().Add(9 * time.Second))
			require.True(t, b.asked(t, endpoint, "", "n2").Allowed)
		}
		require.True(t, b.asked(t, endpoint, known, "n2").Allowed)
	})
	t.Run("nor does it use an approval", func(t *testing.T) {
		b, endpoint := limited()
		b.node("n3", 12)
		b.approvals.list = []v1alpha1.EvictionApproval{approval("a", 13, func(a *v1alpha1.EvictionApproval) { a.Spec.Node = "n3" })}
		require.True(t, b.asked(t, endpoint, "", "n3").Allowed)
		b.tracker.SetPod(podOn("n3", 99)) // the write that is made hits another pod
		require.True(t, b.asked(t, endpoint, known, "n3").Allowed)
	})
	t.Run("a write of the API server does, before it is seen", func(t *testing.T) {
		b, endpoint := limited()
		require.True(t, b.asked(t, endpoint, known, "n1").Allowed)
		require.False(t, b.asked(t, endpoint, known, "n2").Allowed)
		require.False(t, b.asked(t, endpoint, "", "n2").Allowed)
	})
	t.Run("whoever sent it, a write counts once it is seen", func(t *testing.T) {
		b, endpoint := limited()
		require.True(t, b.asked(t, endpoint, "", "n1").Allowed)
		b.tracker.SetNode(tracker.Node{Name: "n1", UID: "n1", Taints: []corev1.Taint{b.taintNow("example.com/broken")}}, b.clock.Now())
		require.False(t, b.asked(t, endpoint, "", "n2").Allowed)
	})
}
