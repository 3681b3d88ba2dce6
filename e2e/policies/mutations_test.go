package policies

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/policy"
)

// another is a mutating webhook that is not Tollgate's: it answers each review of a pod
// of its namespace with the patch that it is given, once for each pod, and counts how
// often it is asked.
type another struct {
	mu    sync.Mutex
	patch string
	asked int
}

// ServeHTTP implements http.Handler.
func (a *another) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	var pod corev1.Pod
	if err := json.Unmarshal(review.Request.Object.Raw, &pod); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if pod.Annotations["another.example.com/seen"] == "" {
		review.Response.PatchType = new(admissionv1.PatchTypeJSONPatch)
		review.Response.Patch = []byte(a.patch)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

func (a *another) times() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked
}

// beside registers another mutating webhook for the pods of a namespace, whose name
// puts it after Tollgate's or before.
func beside(t *testing.T, name, namespace, patch string) *another {
	t.Helper()
	handler := &another{patch: patch}
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
	server.StartTLS()
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	client := admin(t).AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err := client.Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name:                    "another.example.com",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: new(server.URL), CABundle: authority},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			FailurePolicy:           new(admissionregistrationv1.Fail),
			ReinvocationPolicy:      new(admissionregistrationv1.IfNeededReinvocationPolicy),
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Delete(afterwards(t), name, metav1.DeleteOptions{})) })
	becomes(t, "the API server asks the other webhook", func() error {
		err := admin(t).admit(t, namespace, podWith()) // it may well be refused for what the other webhook does
		if handler.times() == 0 {
			return fmt.Errorf("it does not: %w", err)
		}
		return nil
	})
	return handler
}

func TestD08WhatPoliciesGiveAgreesWithWhatOtherWebhooksGive(t *testing.T) {
	const key = "beside.example.com/x"
	enforce(t, `
kind: PlacementPolicy
metadata: {name: beside-a}
spec:
  match: {namespaces: [beside-*]}
  pod:
    tolerations: [{key: beside.example.com/x, operator: Equal, value: v, effect: NoSchedule}]
    nodeSelector: {beside.example.com/pool: a}
    topologySpread: {nodeTaintsPolicy: Honor}
---
kind: PlacementPolicy
metadata: {name: beside-b}
spec:
  match: {namespaces: [beside-*]}
  pod: {nodeSelector: {beside.example.com/pool: b}, schedulingGates: [beside.example.com/gate]}
`)
	seen := `{"op":"add","path":"/metadata/annotations","value":{"another.example.com/seen":"true"}}`
	for position, name := range map[string]string{"before": "a-another", "after": "z-another"} {
		namespace := "beside-" + position
		namespaces(t, namespace)
		t.Run(position+" it, a container with a spread constraint comes in", func(t *testing.T) {
			other := beside(t, name, namespace, `[`+seen+`,
{"op":"add","path":"/spec/topologySpreadConstraints","value":[{"maxSkew":1,"topologyKey":"kubernetes.io/hostname","whenUnsatisfiable":"ScheduleAnyway","labelSelector":{}}]},
{"op":"add","path":"/spec/tolerations/0","value":{"key":"`+key+`","operator":"Exists"}}]`)
			asked := other.times()
			pod := tenant(t, "alice").createPod(t, namespace, podWith())
			require.LessOrEqual(t, other.times()-asked, 2, "it settles within two rounds")
			require.Equal(t, new(corev1.NodeInclusionPolicyHonor), pod.Spec.TopologySpreadConstraints[0].NodeTaintsPolicy)
			require.Len(t, pod.Spec.SchedulingGates, 1)
			require.Len(t, pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, 1)
			require.Equal(t, []string{"a", "b"},
				pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0].Values)
			require.Contains(t, pod.Spec.Tolerations, exists(key, ""))
		})
	}
	t.Run("what it already has is not given again, nor by a second creation of the same", func(t *testing.T) {
		namespaces(t, "beside-again")
		alice := tenant(t, "alice")
		first := alice.createPod(t, "beside-again", podWith())
		again := podWith()
		again.Spec = *first.Spec.DeepCopy()
		again.Spec.Volumes, again.Spec.Containers[0].VolumeMounts = nil, nil // of the ServiceAccount's token, which each pod gets anew
		second := alice.createPod(t, "beside-again", again)
		second.Spec.Volumes, second.Spec.Containers[0].VolumeMounts = first.Spec.Volumes, first.Spec.Containers[0].VolumeMounts
		require.Equal(t, first.Spec, second.Spec)
	})
	t.Run("a webhook that steers elsewhere is contradicted by the validator", func(t *testing.T) {
		namespaces(t, "beside-contrary")
		steer := `[{"op":"add","path":"/spec/nodeSelector","value":{"beside.example.com/pool":"c"}}]`
		beside(t, "z-contrary", "beside-contrary", steer)
		err := tenant(t, "alice").admit(t, "beside-contrary", podWith())
		requireRefused(t, err, policy.PlacementContradicted, "PlacementPolicy/beside-a", "beside.example.com/pool", "c")
	})
}

func TestD09WhatPoliciesGiveIsNeverInvalid(t *testing.T) {
	namespaces(t, "invalid")
	refused := map[string]string{
		"seconds without NoExecute": `{tolerations: [{key: invalid.example.com/x, operator: Exists, effect: NoSchedule, tolerationSeconds: 5}]}`,
		"a value with Exists":       `{tolerations: [{key: invalid.example.com/x, operator: Exists, value: v}]}`,
		"a key that is none":        `{tolerations: [{key: "not a key", operator: Exists}]}`,
		"a label that is none":      `{nodeSelector: {invalid.example.com/x: "not a value!"}}`,
		"In without values":         `{nodeAffinity: [{key: invalid.example.com/x, operator: In}]}`,
		"a gate that is none":       `{schedulingGates: ["not a gate"]}`,
	}
	for name, gives := range refused {
		t.Run(name+" is refused when the policy is written", func(t *testing.T) {
			policy := objects(t, fmt.Sprintf("kind: PlacementPolicy\nmetadata: {name: invalid}\nspec: {match: {namespaces: [invalid]}, pod: %s}", gives))[0]
			requireInvalid(t, admin(t).write(t, policy), "spec.pod")
		})
	}
	t.Run("what would not fit is not added", func(t *testing.T) {
		enforce(t, `
kind: PlacementPolicy
metadata: {name: fits}
spec:
  match: {namespaces: [invalid]}
  pod:
    tolerations: [{key: invalid.example.com/x, operator: Exists}, {key: invalid.example.com/x, operator: Exists}]
`)
		pod := tenant(t, "alice").createPod(t, "invalid", podWith(exists("invalid.example.com/x", "")))
		count := 0
		for _, toleration := range pod.Spec.Tolerations {
			if toleration.Key == "invalid.example.com/x" {
				count++
			}
		}
		require.Equal(t, 1, count)
	})
}
