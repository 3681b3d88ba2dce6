package policies

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/policy"
)

func TestSubresourcesOfAPodSmuggleNothingIn(t *testing.T) {
	const key = "sub.example.com/x"
	namespaces(t, "sub")
	alice := tenant(t, "alice")
	for _, pod := range []*corev1.Pod{podNamed("before", exists(key, "")), podNamed("pod")} {
		pod.Spec.SchedulerName = "none" // kwok's nodes cannot resize what runs
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m")}
		alice.createPod(t, "sub", pod)
	}
	enforce(t, `
kind: TolerationPolicy
metadata: {name: sub}
spec:
  taints: [{key: sub.example.com/x}]
`)
	pods := alice.CoreV1().Pods("sub")
	// smuggle writes a subresource with a whole pod that has one more toleration.
	smuggle := func(t *testing.T, name, subresource string, edit func(*corev1.Pod)) {
		t.Helper()
		stored := podNow(t, "sub", name)
		edited := stored.DeepCopy()
		edit(edited)
		edited.Spec.Tolerations = append(edited.Spec.Tolerations, exists(key, corev1.TaintEffectNoSchedule))
		body, err := json.Marshal(edited)
		require.NoError(t, err)
		// Whether the API server takes the rest or refuses it all, the toleration stays out.
		_ = alice.CoreV1().RESTClient().Put().Namespace("sub").Resource("pods").Name(name).SubResource(subresource).
			Body(body).SetHeader("Content-Type", "application/json").Do(t.Context()).Error()
		require.Equal(t, stored.Spec.Tolerations, podNow(t, "sub", name).Spec.Tolerations)
	}
	ephemeral := func(p *corev1.Pod) {
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: fmt.Sprintf("debug-%d", len(p.Spec.EphemeralContainers)), Image: "image"},
		})
	}
	t.Run("C01 an ephemeral container is added, whatever the pod tolerates", func(t *testing.T) {
		for _, name := range []string{"before", "pod"} {
			p := podNow(t, "sub", name)
			ephemeral(p)
			_, err := pods.UpdateEphemeralContainers(t.Context(), name, p, metav1.UpdateOptions{})
			require.NoError(t, err)
		}
	})
	t.Run("C01 and no toleration with it", func(t *testing.T) { smuggle(t, "pod", "ephemeralcontainers", ephemeral) })
	t.Run("C03 a pod is resized, whatever it tolerates", func(t *testing.T) {
		for _, name := range []string{"before", "pod"} {
			_, err := pods.Patch(t.Context(), name, types.StrategicMergePatchType,
				[]byte(`{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"10m"}}}]}}`), metav1.PatchOptions{}, "resize")
			require.NoError(t, err)
		}
	})
	t.Run("C03 and no toleration with it", func(t *testing.T) { smuggle(t, "pod", "resize", func(*corev1.Pod) {}) })
	t.Run("C05 nor with its status", func(t *testing.T) { smuggle(t, "pod", "status", func(*corev1.Pod) {}) })
	t.Run("C07 a pod on its way out is judged all the same", func(t *testing.T) {
		held := podWith()
		held.GenerateName, held.Name, held.Finalizers = "", "held", []string{"e2e.example.com/hold"}
		alice.createPod(t, "sub", held)
		require.NoError(t, pods.Delete(t.Context(), "held", metav1.DeleteOptions{}))
		require.NotNil(t, podNow(t, "sub", "held").DeletionTimestamp)
		_, err := pods.Patch(t.Context(), "held", types.JSONPatchType,
			[]byte(`[{"op":"add","path":"/spec/tolerations/-","value":{"key":"`+key+`","operator":"Exists"}}]`), metav1.PatchOptions{})
		requireRefused(t, err, policy.TolerationNotGranted, "TolerationPolicy/sub")
		_, err = pods.Patch(t.Context(), "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	})
}

func TestC02ContainersOfEveryKindCountAsOnesThatRequest(t *testing.T) {
	const request = "c02.example.com/gpu"
	namespaces(t, "containers")
	enforce(t, `
kind: PlacementPolicy
metadata: {name: containers}
spec:
  match: {resources: [c02.example.com/gpu]}
  pod:
    tolerations: [{key: c02.example.com/gpu, operator: Exists, effect: NoSchedule}]
`)
	requests := requestsOne(request)
	pods := map[string]func(*corev1.PodSpec){
		"a container": func(spec *corev1.PodSpec) { spec.Containers[0].Resources = requests },
		"an initContainer": func(spec *corev1.PodSpec) {
			spec.InitContainers = []corev1.Container{{Name: "i", Image: "i", Resources: requests}}
		},
		"a sidecar": func(spec *corev1.PodSpec) {
			spec.InitContainers = []corev1.Container{{Name: "s", Image: "s", RestartPolicy: new(corev1.ContainerRestartPolicyAlways), Resources: requests}}
		},
	}
	given := exists(request, corev1.TaintEffectNoSchedule)
	for name, edit := range pods {
		t.Run(name, func(t *testing.T) {
			pod := podWith()
			edit(&pod.Spec)
			require.Contains(t, tenant(t, "alice").createPod(t, "containers", pod).Spec.Tolerations, given)
		})
	}
	t.Run("none of them", func(t *testing.T) {
		require.NotContains(t, tenant(t, "alice").createPod(t, "containers", podWith()).Spec.Tolerations, given)
	})
}

func TestC20EachObjectOfADeletionOfManyIsJudged(t *testing.T) {
	enforce(t, `
kind: TaintPolicy
metadata: {name: collection}
spec:
  taints: [{target: Device, key: collection.example.com/kept}]
  setters:
  - subjects: [{kind: Group, name: sre}]
`)
	sre, alice := tenant(t, "sally", "sre"), tenant(t, "alice")
	labels := map[string]string{"collection": "c20"}
	for name, key := range map[string]string{"c20-kept": "collection.example.com/kept", "c20-free": "collection.example.com/free"} {
		rule := ruleObject(name, "none.example.com", key, "NoSchedule")
		rule.Labels = labels
		_, err := sre.ResourceV1().DeviceTaintRules().Create(t.Context(), rule, metav1.CreateOptions{})
		require.NoError(t, err)
		deleteRuleAfter(t, name)
	}
	selected := metav1.ListOptions{LabelSelector: "collection=c20"}
	err := alice.ResourceV1().DeviceTaintRules().DeleteCollection(t.Context(), metav1.DeleteOptions{}, selected)
	requireRefused(t, err, policy.TaintNotGranted, "TaintPolicy/collection", "collection.example.com/kept")
	_, err = sre.ResourceV1().DeviceTaintRules().Get(t.Context(), "c20-kept", metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, sre.ResourceV1().DeviceTaintRules().DeleteCollection(t.Context(), metav1.DeleteOptions{}, selected))
	eventually(t, "both rules are gone", func(ctx context.Context) error {
		list, err := sre.ResourceV1().DeviceTaintRules().List(ctx, selected)
		if err == nil && len(list.Items) > 0 {
			err = errStill
		}
		return err
	})
}

func TestC21NothingStandsBetweenAUserAndARunningPod(t *testing.T) {
	// exec, attach and portforward carry no taint and no toleration.
	client := admin(t).AdmissionregistrationV1()
	validating, err := client.ValidatingWebhookConfigurations().Get(t.Context(), "tollgate", metav1.GetOptions{})
	require.NoError(t, err)
	mutating, err := client.MutatingWebhookConfigurations().Get(t.Context(), "tollgate", metav1.GetOptions{})
	require.NoError(t, err)
	var rules []admissionregistrationv1.RuleWithOperations
	for _, webhook := range validating.Webhooks {
		rules = append(rules, webhook.Rules...)
	}
	for _, webhook := range mutating.Webhooks {
		rules = append(rules, webhook.Rules...)
	}
	require.NotEmpty(t, rules)
	for _, rule := range rules {
		require.NotContains(t, rule.Operations, admissionregistrationv1.Connect)
		require.NotContains(t, rule.Operations, admissionregistrationv1.OperationAll)
		require.False(t, slices.ContainsFunc(rule.Resources, func(name string) bool { return name == "*" || name == "*/*" || name == "pods/*" }), rule)
	}
}
