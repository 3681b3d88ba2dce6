package export

import (
	"encoding/json"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// request is what somebody asks of the API server, always as a dry run.
type request struct {
	resource  schema.GroupVersionResource
	kind      schema.GroupVersionKind
	operation admissionv1.Operation
	namespace string
	user      string
	groups    []string

	object *unstructured.Unstructured
	// seen is the object after the API server's own admission, and old the one that is
	// stored.
	seen, old *unstructured.Unstructured
	// judged is how many tolerations, or taints, the request is about.
	judged int
}

func (d dice) request(t *testing.T, kind, resource string, operation admissionv1.Operation, group, namespace string, object runtime.Object, judged int) *request {
	t.Helper()
	data, err := json.Marshal(object)
	require.NoError(t, err)
	u := &unstructured.Unstructured{}
	require.NoError(t, json.Unmarshal(data, &u.Object))
	gv := schema.GroupVersion{Group: group, Version: "v1"}
	u.SetGroupVersionKind(gv.WithKind(kind))
	u.SetNamespace(namespace)
	who := pick(d, people...)
	return &request{
		resource: gv.WithResource(resource), kind: gv.WithKind(kind), operation: operation, namespace: namespace,
		user: who.name, groups: append(append([]string(nil), who.groups...), tenants, "system:authenticated"), object: u, judged: judged,
	}
}

func (d dice) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: d.labels()}
}

func podSpec(tolerations []corev1.Toleration) corev1.PodSpec {
	return corev1.PodSpec{Tolerations: tolerations, Containers: []corev1.Container{{Name: "c", Image: "registry.example.com/c"}}}
}

// created returns a request for something new in a namespace.
func (d dice) created(t *testing.T) *request {
	t.Helper()
	namespace, tolerations := pick(d, namespaces...), d.tolerations()
	n := len(tolerations)
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": pick(d, "web", "x")}}, Spec: podSpec(tolerations)}
	selector := &metav1.LabelSelector{MatchLabels: template.Labels}
	once := template
	once.Spec.RestartPolicy = corev1.RestartPolicyNever
	switch d.IntN(10) {
	case 0:
		return d.request(t, "Deployment", "deployments", admissionv1.Create, "apps", namespace,
			&appsv1.Deployment{ObjectMeta: d.meta("x"), Spec: appsv1.DeploymentSpec{Selector: selector, Template: template}}, n)
	case 1:
		return d.request(t, "DaemonSet", "daemonsets", admissionv1.Create, "apps", namespace,
			&appsv1.DaemonSet{ObjectMeta: d.meta("x"), Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}}, n)
	case 2:
		return d.request(t, "CronJob", "cronjobs", admissionv1.Create, "batch", namespace, &batchv1.CronJob{ObjectMeta: d.meta("x"), Spec: batchv1.CronJobSpec{
			Schedule: "@daily", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: once}},
		}}, n)
	case 3:
		return d.request(t, "PodTemplate", "podtemplates", admissionv1.Create, "", namespace, &corev1.PodTemplate{ObjectMeta: d.meta("x"), Template: template}, n)
	case 4, 5:
		return d.claim(t, namespace)
	default:
		return d.request(t, "Pod", "pods", admissionv1.Create, "", namespace, &corev1.Pod{ObjectMeta: d.meta("x"), Spec: podSpec(tolerations)}, n)
	}
}

func (d dice) claim(t *testing.T, namespace string) *request {
	t.Helper()
	tolerations := func() []resourcev1.DeviceToleration {
		var list []resourcev1.DeviceToleration
		for range 1 + d.IntN(3) {
			from := d.toleration()
			one := resourcev1.DeviceToleration{Key: from.Key, Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffect(from.Effect), TolerationSeconds: from.TolerationSeconds}
			if from.Key != "" && d.IntN(2) == 0 {
				one.Operator, one.Value = resourcev1.DeviceTolerationOpEqual, pick(d, values...)
			}
			if from.Effect == corev1.TaintEffectPreferNoSchedule {
				one.Effect = resourcev1.DeviceTaintEffectNone
			}
			list = append(list, one)
		}
		return list
	}
	first, second, third := tolerations(), tolerations(), tolerations()
	spec := resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
		{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: pick(d, classes...), Tolerations: first}},
		{Name: "s", FirstAvailable: []resourcev1.DeviceSubRequest{
			{Name: "a", DeviceClassName: pick(d, classes...), Tolerations: second}, {Name: "b", DeviceClassName: pick(d, classes...), Tolerations: third},
		}},
	}}}
	n := len(first) + len(second) + len(third)
	if d.IntN(2) == 0 {
		return d.request(t, "ResourceClaim", "resourceclaims", admissionv1.Create, "resource.k8s.io", namespace, &resourcev1.ResourceClaim{ObjectMeta: d.meta("x"), Spec: spec}, n)
	}
	return d.request(t, "ResourceClaimTemplate", "resourceclaimtemplates", admissionv1.Create, "resource.k8s.io", namespace,
		&resourcev1.ResourceClaimTemplate{ObjectMeta: d.meta("x"), Spec: resourcev1.ResourceClaimTemplateSpec{ObjectMeta: d.meta(""), Spec: spec}}, n)
}

// updated returns a request that adds tolerations to a pod that is stored, or takes its last
// gate.
func (d dice) updated(t *testing.T, pods []*unstructured.Unstructured) *request {
	t.Helper()
	old := pick(d, pods...)
	var pod corev1.Pod
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(old.Object, &pod))
	n := len(pod.Spec.Tolerations)
	if d.IntN(2) == 0 {
		pod.Spec.SchedulingGates = nil
	}
	if d.IntN(2) == 0 {
		added := d.tolerations()
		pod.Spec.Tolerations, n = append(pod.Spec.Tolerations, added...), n+len(added)
	}
	pod.Labels = d.labels()
	r := d.request(t, "Pod", "pods", admissionv1.Update, "", pod.Namespace, &pod, n)
	r.old = old
	return r
}

// tainted returns a request that changes the taints of a node.
func (d dice) tainted(t *testing.T, nodes []*unstructured.Unstructured) *request {
	t.Helper()
	old := pick(d, nodes...)
	var node corev1.Node
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(old.Object, &node))
	node.Spec.Taints = some(d, 4, node.Spec.Taints...)
	for i := range node.Spec.Taints {
		switch t := &node.Spec.Taints[i]; d.IntN(4) {
		case 0:
			t.Value = pick(d, values...)
		case 1:
			t.TimeAdded = new(metav1.Unix(1_700_000_000, 0))
		}
	}
	for _, key := range some(d, 3, keys...) {
		taint := corev1.Taint{Key: key, Value: pick(d, values...), Effect: pick(d, effects...)}
		if !has(node.Spec.Taints, &taint) {
			node.Spec.Taints = append(node.Spec.Taints, taint)
		}
	}
	r := d.request(t, "Node", "nodes", admissionv1.Update, "", "", &node, len(node.Spec.Taints))
	r.old = old
	return r
}

func has(taints []corev1.Taint, t *corev1.Taint) bool {
	for i := range taints {
		if taints[i].MatchTaint(t) {
			return true
		}
	}
	return false
}

func (d dice) storedPod(i int) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: d.meta("stored-" + strconv.Itoa(i)), Spec: podSpec(d.tolerations())}
	pod.Namespace = pick(d, namespaces...)
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}}
	return pod
}
