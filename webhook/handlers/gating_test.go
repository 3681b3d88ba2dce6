package handlers

import (
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

// queued adds a policy under which only the queue opens its gate.
func queued(h holding) holding {
	return holding{h.policies.WithGates([]v1alpha1.GatePolicy{{
		ObjectMeta: metav1.ObjectMeta{Name: "queue"},
		Spec: v1alpha1.GatePolicySpec{
			Gates:  []string{"example.com/queue"},
			Owners: []rbacv1.Subject{{Kind: "User", Name: "queue"}},
		},
	}})}
}

const (
	waiting         = `{"spec":{"schedulingGates":[{"name":"example.com/queue"}]}}`
	waitingTolerant = `{"spec":{"schedulingGates":[{"name":"example.com/queue"}],"tolerations":[` + dedicated + `]}}`
)

func TestOnlyOwnersOpenGates(t *testing.T) {
	tests := map[string]struct {
		who      authenticationv1.UserInfo
		old, pod string
		reasons  map[policy.Reason]string
	}{
		"KEP-3838 the owner tightens and opens": {named("queue"), waiting, `{"spec":{"nodeSelector":{"zone":"a"}}}`, nil},
		"SD-04 another tightens and opens": {
			named("mallory"), waiting, `{"spec":{"nodeSelector":{"zone":"a"}}}`,
			map[policy.Reason]string{policy.GateNotOwned: "spec.schedulingGates", policy.GatedPodNotOwned: "spec.nodeSelector"},
		},
		"another changes something else": {named("mallory"), waiting, `{"metadata":{"labels":{"a":"b"}},"spec":{"schedulingGates":[{"name":"example.com/queue"}]}}`, nil},
		"C07 a terminating pod": {
			named("mallory"), waiting, `{"metadata":{"deletionTimestamp":"2026-11-20T12:00:00Z"},"spec":{}}`,
			map[policy.Reason]string{policy.GateNotOwned: "spec.schedulingGates"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			config := testConfig()
			config.Policies = queued(dedicatedTo(t, byAlice))
			response := judgePod(t, config, asked(t, "pods", "", tt.who, tt.pod, tt.old))
			require.Equal(t, len(tt.reasons) == 0, response.Allowed)
			for reason, path := range tt.reasons {
				requireRefused(t, response, reason, path, "GatePolicy/queue", "user queue")
			}
		})
	}
	t.Run("anyone creates a pod behind a gate", func(t *testing.T) {
		config := testConfig()
		config.Policies = queued(dedicatedTo(t, byAlice))
		require.True(t, judgePod(t, config, asked(t, "pods", "", named("mallory"), waiting, nil)).Allowed)
	})
}

func TestTolerationsAreJudgedAgainWhenTheLastGateGoes(t *testing.T) {
	const two = `{"spec":{"schedulingGates":[{"name":"example.com/queue"},{"name":"b"}],"tolerations":[` + dedicated + `]}}`
	const daemon = `{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"DaemonSet","name":"d","uid":"d","controller":true}]},"spec":{` +
		`"tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute"}]}}`
	tests := map[string]struct {
		grants   string
		old, pod string
		want     bool
	}{
		"a namespace that is granted":                  {`{namespaces: [apple]}`, waitingTolerant, tolerant, true},
		"C06 a namespace that is not granted any more": {`{namespaces: [banana]}`, waitingTolerant, tolerant, false},
		"C09 labels that are gone":                     {`{namespaceSelector: {matchLabels: {tier: system}}}`, waitingTolerant, tolerant, false},
		"who set them was judged then":                 {byAlice, waitingTolerant, tolerant, true},
		"RBAC of who set them was judged then":         {`{rbac: true}`, waitingTolerant, tolerant, true},
		"an expression about who set them":             {`{expression: "request.userInfo.username == 'alice'"}`, waitingTolerant, tolerant, true},
		"an expression about the pod":                  {`{expression: "has(pod.metadata.labels)"}`, waitingTolerant, tolerant, false},
		"a user in a namespace":                        {`{namespaces: [banana], subjects: [{kind: User, name: alice}]}`, waitingTolerant, tolerant, false},
		"another gate stays":                           {`{namespaces: [banana]}`, two, waitingTolerant, true},
		"both gates go":                                {`{namespaces: [banana]}`, two, tolerant, false},
		"C28 a pod that was never gated":               {`{namespaces: [banana]}`, tolerant, tolerant, true},
		"what the DaemonSet controller gave":           {`{namespaces: [banana]}`, `{"spec":{"schedulingGates":[{"name":"b"}],"tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute"}]}}`, daemon, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			config := testConfig()
			config.Policies = granting(t, map[string]string{
				"dedicated": `{taints: [{key: dedicated}, {key: "node.kubernetes.io/*"}], grants: [` + tt.grants + `]}`,
			})
			response := judgePod(t, config, asked(t, "pods", "", named("queue"), tt.pod, tt.old))
			if tt.want {
				require.True(t, response.Allowed, "%v", response.Result)
				return
			}
			requireRefused(t, response, policy.TolerationNotGranted, "spec.tolerations[0]", "TolerationPolicy/dedicated")
			require.Len(t, response.Result.Details.Causes, 1)
		})
	}
	t.Run("one that is added at the same time is refused once", func(t *testing.T) {
		config := testConfig()
		config.Policies = dedicatedTo(t, `{namespaces: [banana]}`)
		response := judgePod(t, config, asked(t, "pods", "", named("queue"), tolerant, waiting))
		requireRefused(t, response, policy.TolerationNotGranted, "spec.tolerations[0]")
		require.Len(t, response.Result.Details.Causes, 1)
	})
	t.Run("one that is added at the same time is judged by who adds it", func(t *testing.T) {
		config := testConfig()
		config.Policies = dedicatedTo(t, byAlice)
		require.False(t, judgePod(t, config, asked(t, "pods", "", named("queue"), tolerant, waiting)).Allowed)
		require.True(t, judgePod(t, config, asked(t, "pods", "", named("alice"), tolerant, waiting)).Allowed)
	})
}
