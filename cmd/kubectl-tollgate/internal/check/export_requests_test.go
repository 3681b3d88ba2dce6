package check

import (
	"encoding/json"
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// requestKind is a kind of object, as a request names it.
type requestKind struct{ group, resource, kind string }

// about returns a request of somebody about an object.
func (d dice) about(k requestKind, operation admissionv1.Operation, namespace *corev1.Namespace, object, old runtime.Object) *request {
	r := &request{
		AdmissionRequest: &admissionv1.AdmissionRequest{
			Kind:      metav1.GroupVersionKind{Group: k.group, Version: "v1", Kind: k.kind},
			Resource:  metav1.GroupVersionResource{Group: k.group, Version: "v1", Resource: k.resource},
			Operation: operation, UserInfo: d.user(), Name: "x",
		},
		object: object, old: old, namespace: namespace,
	}
	if namespace != nil {
		r.Namespace = namespace.Name
	}
	return r
}

func (d dice) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: "x", Labels: d.labels()}
}

func (d dice) podSpec(tolerations []corev1.Toleration) corev1.PodSpec {
	return corev1.PodSpec{
		Tolerations: tolerations, HostNetwork: d.IntN(2) == 0, ServiceAccountName: pick(d, "", "default", "runner"),
		Containers: []corev1.Container{{Name: "c", Image: "i"}},
	}
}

// ofPods returns a request about something that has the tolerations of a pod.
func (d dice) ofPods(namespace *corev1.Namespace) *request {
	if d.IntN(3) == 0 {
		return d.ofTemplate(namespace)
	}
	now := &corev1.Pod{ObjectMeta: d.meta(), Spec: d.podSpec(d.tolerations(1))}
	k := requestKind{"", "pods", "Pod"}
	switch d.IntN(4) {
	case 0: // something is added
		old := now.DeepCopy()
		now.Spec.Tolerations = append(d.tolerations(0), now.Spec.Tolerations...)
		if d.IntN(2) == 0 {
			now.Spec.Tolerations = append(now.Spec.Tolerations, pick(d, old.Spec.Tolerations...))
		}
		return d.about(k, admissionv1.Update, namespace, now, old)
	case 1: // the last gate goes
		old := now.DeepCopy()
		old.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/a"}, {Name: "example.com/b"}}
		if d.IntN(4) == 0 {
			now.Spec.SchedulingGates = old.Spec.SchedulingGates[:1]
		}
		if d.IntN(2) == 0 {
			owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: pick(d, "DaemonSet", "ReplicaSet"), Name: "x", UID: "u", Controller: new(true)}
			now.OwnerReferences, old.OwnerReferences = []metav1.OwnerReference{owner}, []metav1.OwnerReference{owner}
		}
		return d.about(k, admissionv1.Update, namespace, now, old)
	default:
		return d.about(k, admissionv1.Create, namespace, now, nil)
	}
}

// ofTemplate returns a request about something that has a template of pods.
func (d dice) ofTemplate(namespace *corev1.Namespace) *request {
	meta := d.meta()
	template := corev1.PodTemplateSpec{ObjectMeta: d.meta(), Spec: d.podSpec(d.tolerations(1))}
	workloads := []struct {
		requestKind
		of func(corev1.PodTemplateSpec) runtime.Object
	}{
		{requestKind{"apps", "deployments", "Deployment"}, func(t corev1.PodTemplateSpec) runtime.Object {
			return &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Template: t}}
		}},
		{requestKind{"apps", "daemonsets", "DaemonSet"}, func(t corev1.PodTemplateSpec) runtime.Object {
			return &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Template: t}}
		}},
		{requestKind{"batch", "jobs", "Job"}, func(t corev1.PodTemplateSpec) runtime.Object {
			return &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: t}}
		}},
		{requestKind{"batch", "cronjobs", "CronJob"}, func(t corev1.PodTemplateSpec) runtime.Object {
			return &batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: t}}}}
		}},
		{requestKind{"", "podtemplates", "PodTemplate"}, func(t corev1.PodTemplateSpec) runtime.Object {
			return &corev1.PodTemplate{ObjectMeta: meta, Template: t}
		}},
		{requestKind{"", "replicationcontrollers", "ReplicationController"}, func(t corev1.PodTemplateSpec) runtime.Object {
			return &corev1.ReplicationController{ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{Template: &t}}
		}},
		{requestKind{"apps", "controllerrevisions", "ControllerRevision"}, func(t corev1.PodTemplateSpec) runtime.Object {
			return d.revision(meta, t)
		}},
	}
	w := pick(d, workloads...)
	if d.IntN(3) != 0 || w.resource == "controllerrevisions" {
		return d.about(w.requestKind, admissionv1.Create, namespace, w.of(template), nil)
	}
	changed := *template.DeepCopy()
	changed.Spec.Tolerations = append(d.tolerations(0), some(d, 4, template.Spec.Tolerations...)...)
	return d.about(w.requestKind, admissionv1.Update, namespace, w.of(changed), w.of(template))
}

// revision returns a ControllerRevision of a template, or of something else.
func (d dice) revision(meta metav1.ObjectMeta, template corev1.PodTemplateSpec) runtime.Object {
	raw, err := json.Marshal(map[string]any{"spec": map[string]any{"template": template}})
	if err != nil {
		panic(err)
	}
	raw = pick(d, raw, raw, []byte(`{"spec": 7}`), []byte(`{"spec":{"template":["x"]}}`), []byte(`{}`))
	return &appsv1.ControllerRevision{ObjectMeta: meta, Data: runtime.RawExtension{Raw: raw}, Revision: 1}
}

// ofClaims returns a request about a claim or a template of claims.
func (d dice) ofClaims(namespace *corev1.Namespace) *request {
	spec := resourcev1.ResourceClaimSpec{}
	for range 1 + d.IntN(3) {
		r := resourcev1.DeviceRequest{Name: "r"}
		if d.IntN(2) == 0 {
			r.Exactly = &resourcev1.ExactDeviceRequest{DeviceClassName: pick(d, classNames...), Tolerations: d.deviceTolerations()}
		} else {
			for range 1 + d.IntN(2) {
				r.FirstAvailable = append(r.FirstAvailable, resourcev1.DeviceSubRequest{Name: "s", DeviceClassName: pick(d, classNames...), Tolerations: d.deviceTolerations()})
			}
		}
		spec.Devices.Requests = append(spec.Devices.Requests, r)
	}
	if d.IntN(2) == 0 {
		return d.about(requestKind{"resource.k8s.io", "resourceclaims", "ResourceClaim"}, admissionv1.Create, namespace,
			&resourcev1.ResourceClaim{ObjectMeta: d.meta(), Spec: spec}, nil)
	}
	return d.about(requestKind{"resource.k8s.io", "resourceclaimtemplates", "ResourceClaimTemplate"}, admissionv1.Create, namespace,
		&resourcev1.ResourceClaimTemplate{ObjectMeta: d.meta(), Spec: resourcev1.ResourceClaimTemplateSpec{ObjectMeta: d.meta(), Spec: spec}}, nil)
}

func (d dice) deviceTolerations() []resourcev1.DeviceToleration {
	var list []resourcev1.DeviceToleration
	for range d.IntN(4) {
		t := d.toleration()
		one := resourcev1.DeviceToleration{
			Key: t.Key, Value: t.Value, Operator: resourcev1.DeviceTolerationOperator(t.Operator), Effect: resourcev1.DeviceTaintEffect(t.Effect), TolerationSeconds: t.TolerationSeconds,
		}
		if t.Operator != corev1.TolerationOpExists {
			one.Operator, one.Value = resourcev1.DeviceTolerationOpEqual, pick(d, values...)
		}
		if t.Effect == corev1.TaintEffectPreferNoSchedule {
			one.Effect = resourcev1.DeviceTaintEffectNone
		}
		list = append(list, one)
	}
	return list
}

// ofNamespaces returns a request about the labels of a namespace.
func (d dice) ofNamespaces() *request {
	k, name := requestKind{"", "namespaces", "Namespace"}, pick(d, names...)
	labelled := func() *corev1.Namespace {
		labels := map[string]string{corev1.LabelMetadataName: name}
		maps.Copy(labels, d.labels())
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
	var r *request
	if d.IntN(2) == 0 {
		r = d.about(k, admissionv1.Create, nil, labelled(), nil)
	} else {
		r = d.about(k, admissionv1.Update, nil, labelled(), labelled())
		r.SubResource = pick(d, "", "status", "finalize")
	}
	r.Name = name
	return r
}

// ofNodes returns a request about the taints of a node.
func (d dice) ofNodes() *request {
	k := requestKind{"", "nodes", "Node"}
	now := &corev1.Node{ObjectMeta: d.meta(), Spec: corev1.NodeSpec{Taints: d.taints()}}
	if d.IntN(4) == 0 {
		r := d.about(k, admissionv1.Create, nil, now, nil)
		if d.IntN(2) == 0 {
			r.UserInfo.Username = "system:node:" + pick(d, "x", "y")
			r.UserInfo.Groups = append(r.UserInfo.Groups, pick(d, "system:nodes", "others"))
		}
		return r
	}
	old := now.DeepCopy()
	old.Spec.Taints = append(some(d, 3, old.Spec.Taints...), d.taints()...)
	seen := map[string]bool{}
	old.Spec.Taints = slices.DeleteFunc(old.Spec.Taints, func(t corev1.Taint) bool {
		at := t.Key + ":" + string(t.Effect)
		twice := seen[at]
		seen[at] = true
		return twice
	})
	return d.about(k, admissionv1.Update, nil, now, old)
}

// taints returns some taints, one of each key and effect. Their times are long ago: only
// those near to now are taken for Tollgate's.
func (d dice) taints() []corev1.Taint {
	var list []corev1.Taint
	for _, key := range some(d, 3, keys...) {
		t := corev1.Taint{Key: key, Value: pick(d, values...), Effect: pick(d, effects...)}
		if d.IntN(2) == 0 {
			t.TimeAdded = new(metav1.Unix(1_700_000_000+int64(d.IntN(2)), 0))
		}
		list = append(list, t)
	}
	return list
}

// ofRules returns a request about a DeviceTaintRule.
func (d dice) ofRules() *request {
	k := requestKind{"resource.k8s.io", "devicetaintrules", "DeviceTaintRule"}
	one := func() *resourcev1.DeviceTaintRule {
		rule := &resourcev1.DeviceTaintRule{ObjectMeta: d.meta()}
		rule.Spec.Taint = resourcev1.DeviceTaint{
			Key: pick(d, keys...), Value: pick(d, values...),
			Effect:    pick(d, resourcev1.DeviceTaintEffectNone, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNoExecute),
			TimeAdded: new(metav1.Unix(1_700_000_000+int64(d.IntN(2)), 0)),
		}
		switch d.IntN(4) {
		case 0:
		case 1:
			rule.Spec.DeviceSelector = &resourcev1.DeviceTaintSelector{}
		default:
			rule.Spec.DeviceSelector = &resourcev1.DeviceTaintSelector{Driver: new(pick(d, drivers...))}
		}
		return rule
	}
	now := one()
	switch d.IntN(4) {
	case 0:
		return d.about(k, admissionv1.Create, nil, now, nil)
	case 1:
		return d.about(k, admissionv1.Delete, nil, nil, now)
	}
	old := one()
	if d.IntN(3) != 0 {
		old = now.DeepCopy()
		switch d.IntN(4) {
		case 0:
			old.Spec.Taint.Value = pick(d, values...)
		case 1:
			old.Spec.Taint.Effect = resourcev1.DeviceTaintEffectNone
		case 2:
			old.Spec.DeviceSelector = one().Spec.DeviceSelector
		default:
			old.Spec.Taint.TimeAdded = nil
		}
	}
	return d.about(k, admissionv1.Update, nil, now, old)
}
