package check

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// costly is a policy with many guards and grants of every kind but RBAC.
func costly() v1alpha1.TolerationPolicy {
	p := v1alpha1.TolerationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "costly"}}
	for i := range 10 {
		p.Spec.Taints = append(p.Spec.Taints, v1alpha1.TaintSelector{Key: "example-" + strconv.Itoa(i) + ".com/*", Values: []string{"a", "5"}, Effects: []corev1.TaintEffect{corev1.TaintEffectNoExecute}})
	}
	p.Spec.Taints = append(p.Spec.Taints, v1alpha1.TaintSelector{Key: "*"})
	p.Spec.Grants = []v1alpha1.TolerationGrant{
		{Namespaces: []string{"banana", "banana-*"}, MaxTolerationSeconds: new(int64(600))},
		{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "system"}}},
		{Expression: "pod.metadata.?labels[?'app'].orValue('') == 'web' && toleration.key.startsWith('dedicated')"},
	}
	return p
}

func podOf(n int, key func(int) string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: map[string]string{"app": "web"}}}
	for i := range n {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: key(i), Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	}
	return pod
}

func podRequest(now, old *corev1.Pod) *request {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "apple", Labels: map[string]string{corev1.LabelMetadataName: "apple"}}}
	r := &request{AdmissionRequest: &admissionv1.AdmissionRequest{
		Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Operation: admissionv1.Create, Namespace: "apple", Name: "x", UserInfo: authenticationv1.UserInfo{Username: "jane"},
	}, object: now, namespace: namespace}
	if old != nil {
		r.Operation, r.old = admissionv1.Update, old
	}
	return r
}

func TestLargePodsStayWithinWhatTheAPIServerSpends(t *testing.T) {
	t.Parallel()
	numbered := func(prefix string) func(int) string { return func(i int) string { return prefix + strconv.Itoa(i) } }
	rbac := v1alpha1.TolerationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "rbac"}, Spec: v1alpha1.TolerationPolicySpec{
		Taints: []v1alpha1.TaintSelector{{Key: "*"}},
		Grants: []v1alpha1.TolerationGrant{{RBAC: true, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "jane"}}}},
	}}
	all := podOf(400, numbered("dedicated"))
	more := all.DeepCopy()
	more.Spec.Tolerations = append(more.Spec.Tolerations, podOf(40, numbered("dedicated-new")).Spec.Tolerations...)
	for sentence, c := range map[string]struct {
		policy v1alpha1.TolerationPolicy
		now    *corev1.Pod
		old    *corev1.Pod
		denied bool
	}{
		"a pod without tolerations":                      {policy: costly(), now: podOf(0, nil)},
		"a pod with 500 tolerations that are granted":    {policy: costly(), now: podOf(500, numbered("dedicated"))},
		"a pod with 500 tolerations that are not":        {policy: costly(), now: podOf(500, numbered("other")), denied: true},
		"a pod of 400 that gets 40 more":                 {policy: costly(), now: more, old: all},
		"a pod with as many keys as RBAC is asked about": {policy: rbac, now: podOf(8, numbered("key"))},
		"a pod with one key more":                        {policy: rbac, now: podOf(9, numbered("key")), denied: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			found := policies{tolerations: []v1alpha1.TolerationPolicy{c.policy}}
			got := askPolicies(t, enforce(t, exportAll(t, &found)), podRequest(c.now, c.old), everybody)
			require.Equal(t, c.denied, got.denied, &got)
			require.Less(t, got.cost, int64(celconfig.RuntimeCELCostBudget), &got)
			t.Logf("it costs %d of %d", got.cost, celconfig.RuntimeCELCostBudget)
		})
	}
}

func BenchmarkExport(b *testing.B) {
	var found policies
	for i := range 100 {
		p := costly()
		p.Name += strconv.Itoa(i)
		found.tolerations = append(found.tolerations, p)
	}
	b.ReportAllocs()
	for b.Loop() {
		exportAll(b, &found)
	}
}

// BenchmarkEvaluate is about a pod with four tolerations, as the API server judges it.
func BenchmarkEvaluate(b *testing.B) {
	found := policies{tolerations: []v1alpha1.TolerationPolicy{costly()}}
	exported := enforce(b, exportAll(b, &found))
	r := podRequest(podOf(4, func(i int) string { return "dedicated" + strconv.Itoa(i) }), nil)
	b.ReportAllocs()
	for b.Loop() {
		askPolicies(b, exported, r, everybody)
	}
}
