package devices

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/tollgate-dev/tollgate/e2e/devices/auditlog"
	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
)

func TestAllConsumersOfASharedClaimG11(t *testing.T) {
	t.Parallel()
	// As many as a claim can be reserved for.
	const consumers = resourcev1.ResourceClaimReservedForMaxSize
	s := newSite(t, shared)
	s.publish(t, "pool", dra.Device("shared"), dra.Device("other"))
	var uses []use
	for i := range consumers {
		uses = append(uses, use{pod: fmt.Sprintf("leave-%d", i), claim: "shared", pool: "pool", device: "shared"})
	}
	s.place(t, uses...)
	staying := s.place(t, use{pod: "other", claim: "other", pool: "pool", device: "other"})
	// It names the claim, which is not reserved for it, and it is not scheduled.
	gated := dra.Pod("gated", "shared")
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "e2e.example.com/gate"}}
	gated, err := s.client.CoreV1().Pods(s.namespace).Create(t.Context(), gated, metav1.CreateOptions{})
	require.NoError(t, err)
	staying["gated"] = gated

	rule := dra.Rule(s.namespace, s.driver, dra.Taint(key, "", noExecute))
	rule.Spec.DeviceSelector.Device = new("shared")
	_, err = s.client.ResourceV1().DeviceTaintRules().Create(t.Context(), rule, metav1.CreateOptions{})
	require.NoError(t, err)
	s.waitAlive(t, staying)
	s.waitDeletions(t, consumers)
	s.requireCompleted(t, s.waitCondition(t, rule.Name, inProgress, "False "), consumers)
}

// It is not parallel: the event that it waits for is written once, and not at all while
// the pods of other tests leave faster than events may be written.
func TestDeletionThatIsDeniedIsRepeatedG16(t *testing.T) {
	s := newSite(t, shared)
	allow := s.denyDeletions(t)
	s.publish(t, "pool", dra.Device("a"))
	s.place(t, use{pod: "guarded", claim: "a", pool: "pool", device: "a"})
	rule := s.rule(t, "r", "pool", noExecute)
	eventually(t, "an event says so", func(ctx context.Context) error {
		events, err := s.client.CoreV1().Events(s.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, event := range events.Items {
			if event.Reason == "DeviceTaintManagerEvictionHeldUp" && strings.Contains(event.Message, "not now") {
				return nil
			}
		}
		return fmt.Errorf("%d other events", len(events.Items))
	})
	require.Contains(t, s.waitCondition(t, rule.Name, inProgress, "True PodsPendingEviction"), "1 pod needs to be evicted")
	require.Empty(t, s.deletions(t))
	allow()
	s.waitAlive(t, nil)
	s.waitDeletions(t, 1)
	counts := auditlog.Count(s.asked(t))
	t.Logf("requests: %v", counts)
	require.Equal(t, 1, counts["patch pods/status 200"], "the condition stands after the first attempt")
	s.requireCompleted(t, s.waitCondition(t, rule.Name, inProgress, "False "), 1)
}

// denyDeletions makes the API server refuse to delete pods of the namespace, to
// everybody, until what it returns is called.
func (s *site) denyDeletions(t *testing.T) (allow func()) {
	t.Helper()
	client := s.client.AdmissionregistrationV1()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.namespace}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				}}},
			},
			Validations: []admissionregistrationv1.Validation{{Expression: "object == oldObject", Message: "not now"}},
		},
	}
	_, err := client.ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{})
	require.NoError(t, err)
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        s.namespace,
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	_, err = client.ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{})
	require.NoError(t, err)
	tried := dra.Pod("tried")
	tried.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "e2e.example.com/gate"}}
	_, err = s.client.CoreV1().Pods(s.namespace).Create(t.Context(), tried, metav1.CreateOptions{})
	require.NoError(t, err)
	remove := func(options metav1.DeleteOptions) error {
		return s.client.CoreV1().Pods(s.namespace).Delete(t.Context(), "tried", options)
	}
	eventually(t, "deletions denied", func(context.Context) error {
		if remove(metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}) == nil {
			return errors.New("not denied")
		}
		return nil
	})
	return func() {
		t.Helper()
		require.NoError(t, client.ValidatingAdmissionPolicyBindings().Delete(t.Context(), s.namespace, metav1.DeleteOptions{}))
		require.NoError(t, client.ValidatingAdmissionPolicies().Delete(t.Context(), s.namespace, metav1.DeleteOptions{}))
		eventually(t, "deletions allowed", func(context.Context) error { return remove(metav1.DeleteOptions{}) })
	}
}

func TestPodThatAFinalizerHoldsIsDeletedOnceG17(t *testing.T) {
	t.Parallel()
	s := newSite(t, shared)
	s.publish(t, "pool", dra.Device("a"), dra.Device("b"))
	pods := s.place(t,
		use{pod: "held", claim: "a", pool: "pool", device: "a"},
		// It tolerates for as long as the other may have to wait behind the pods of other tests.
		use{pod: "later", claim: "b", pool: "pool", device: "b", tolerations: []resourcev1.DeviceToleration{dra.TolerateFor(key, 60)}},
	)
	finalizers := func(list string) {
		_, err := s.client.CoreV1().Pods(s.namespace).Patch(t.Context(), "held", types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":`+list+`}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	finalizers(`["e2e.example.com/hold"]`)
	rule := s.rule(t, "r", "pool", noExecute)
	s.waitAlive(t, map[string]*corev1.Pod{"later": pods["later"]})
	// The rule goes on to other pods, and changes, while the first one is held.
	s.editRule(t, rule.Name, func(rule *resourcev1.DeviceTaintRule) { rule.Spec.Taint.Value = "changed" })
	s.waitAlive(t, nil)
	// A pod that is on its way out is not pending.
	s.requireCompleted(t, s.waitCondition(t, rule.Name, inProgress, "False "), 2)
	s.waitDeletions(t, 2)
	require.Equal(t, 2, auditlog.Count(s.asked(t))["patch pods/status 200"])
	finalizers("null")
}

func TestRightsLostWhileEvictingG19(t *testing.T) {
	const pods = 5
	s := newSite(t, shared)
	var devices []resourcev1.Device
	var uses []use
	for i := range pods {
		name := fmt.Sprintf("leave-%d", i)
		devices = append(devices, dra.Device(name))
		uses = append(uses, use{pod: name, claim: name, pool: "pool", device: name})
	}
	s.publish(t, "pool", devices...)
	s.place(t, uses...)
	restore := s.forbidDeletions(t)
	rule := s.rule(t, "r", "pool", noExecute)
	const attempts = 9
	var refused []auditv1.Event
	eventually(t, "refusals", func(context.Context) error {
		refused = slices.DeleteFunc(s.asked(t), func(event auditv1.Event) bool {
			return event.Verb != "delete" || event.ResponseStatus.Code != http.StatusForbidden
		})
		if len(refused) < attempts*pods {
			return fmt.Errorf("refused %d times", len(refused))
		}
		return nil
	})
	took := refused[len(refused)-1].RequestReceivedTimestamp.Sub(refused[0].RequestReceivedTimestamp.Time)
	t.Logf("refused %d times within %s", len(refused), took)
	// Each time it waits twice as long; without that it would take a few milliseconds.
	require.Greater(t, took, time.Second)
	s.waitCondition(t, rule.Name, inProgress, "True PodsPendingEviction: 5 pods need to be evicted")
	require.Empty(t, s.deletions(t))
	restore()
	s.waitAlive(t, nil)
	s.waitDeletions(t, pods)
}

// forbidDeletions takes the right to delete pods from Tollgate, until what it
// returns is called.
func (s *site) forbidDeletions(t *testing.T) (restore func()) {
	t.Helper()
	client := s.client.RbacV1().ClusterRoles()
	role, err := client.Get(t.Context(), "tollgate-evictor", metav1.GetOptions{})
	require.NoError(t, err)
	role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool { return slices.Equal(rule.Resources, []string{"pods"}) })
	_, err = client.Update(t.Context(), role, metav1.UpdateOptions{})
	require.NoError(t, err)
	s.waitMayDelete(t, false)
	return func() {
		t.Helper()
		_, err := client.Patch(t.Context(), "tollgate-evictor", types.JSONPatchType,
			[]byte(`[{"op":"add","path":"/rules/-","value":{"apiGroups":[""],"resources":["pods"],"verbs":["delete"]}}]`), metav1.PatchOptions{})
		require.NoError(t, err)
		s.waitMayDelete(t, true)
	}
}

// waitMayDelete waits until the API server knows whether Tollgate may delete pods.
func (s *site) waitMayDelete(t *testing.T, want bool) {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               account,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: s.namespace, Verb: "delete", Resource: "pods"},
	}}
	eventually(t, "rights of Tollgate", func(ctx context.Context) error {
		answer, err := s.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err == nil && answer.Status.Allowed != want {
			err = fmt.Errorf("allowed: %t", answer.Status.Allowed)
		}
		return err
	})
}

func TestNamespaceThatIsBeingDeletedG19(t *testing.T) {
	t.Parallel()
	s := newSite(t, shared)
	s.publish(t, "pool", dra.Device("a"))
	s.place(t, use{pod: "a", claim: "a", pool: "pool", device: "a"})
	_, err := s.client.CoreV1().Pods(s.namespace).Patch(t.Context(), "a", types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":["e2e.example.com/hold"]}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.NoError(t, s.client.CoreV1().Namespaces().Delete(t.Context(), s.namespace, metav1.DeleteOptions{}))
	eventually(t, "pod on its way out", func(ctx context.Context) error {
		pods, err := s.alive(ctx)
		if err == nil && len(pods) > 0 {
			err = errors.New("not yet")
		}
		return err
	})
	rule := s.rule(t, "r", "pool", noExecute)
	s.waitCondition(t, rule.Name, inProgress, "False NotStarted")
	// It may hear of the rule before it hears that the pod is on its way out. What it asks
	// for then is refused, as the pod is not the one that it knows.
	for _, event := range s.asked(t) {
		require.True(t, event.Verb == "get" || event.ResponseStatus.Code != http.StatusOK, "there is nothing left to do: %v", event)
	}
}
