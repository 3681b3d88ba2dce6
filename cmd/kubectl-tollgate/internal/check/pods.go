package check

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// controllers are who makes pods from workloads, by kind.
var controllers = map[schema.GroupKind]string{
	{Group: appsv1.GroupName, Kind: "Deployment"}:  "replicaset-controller",
	{Group: appsv1.GroupName, Kind: "ReplicaSet"}:  "replicaset-controller",
	{Group: appsv1.GroupName, Kind: "StatefulSet"}: "statefulset-controller",
	{Group: appsv1.GroupName, Kind: "DaemonSet"}:   "daemon-set-controller",
	{Group: batchv1.GroupName, Kind: "Job"}:        "job-controller",
	{Group: batchv1.GroupName, Kind: "CronJob"}:    "job-controller",
	{Kind: "ReplicationController"}:                "replication-controller",
}

// JudgePod judges a pod as a controller makes it from a workload, where that is one. A
// workload is let in that nobody could run a pod of: what PlacementPolicies have to say, they
// say to pods.
func (c *Checker) JudgePod(ctx context.Context, workload Object) (Result, bool) {
	controller, ok := controllers[workload.GroupVersionKind().GroupKind()]
	if !ok {
		return Result{}, false
	}
	object := workload.DeepCopy()
	c.place(object)
	pod, err := c.podOf(object)
	if err != nil {
		return Result{Position: workload.Position, Kind: "Pod", Name: nameOf(object), Verdict: Undecided, Message: err.Error()}, true
	}
	by := Subject{User: "system:serviceaccount:" + metav1.NamespaceSystem + ":" + controller}
	return c.Judge(ctx, Object{Position: workload.Position, Unstructured: pod}, by), true
}

// podOf returns a pod as a controller makes it. It has the workload for its owner, also where
// there would be another object between the two: they have the same template.
func (c *Checker) podOf(workload *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	k, _ := kindOf(workload)
	typed, err := c.read(&k, workload.DeepCopy())
	if err != nil {
		return nil, err
	}
	template := TemplateOf(typed)
	if template == nil {
		return nil, fmt.Errorf("%s %s has no template", workload.GetKind(), workload.GetName())
	}
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: nameOf(workload) + "-", Namespace: workload.GetNamespace(),
			Labels: template.Labels, Annotations: template.Annotations, Finalizers: template.Finalizers,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: workload.GetAPIVersion(), Kind: workload.GetKind(), Name: workload.GetName(),
				UID: identityOf(workload), Controller: new(true), BlockOwnerDeletion: new(true),
			}},
		},
		Spec: template.Spec,
	}
	if workload.GetKind() == "DaemonSet" {
		TolerateAsDaemon(&pod.Spec)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		return nil, fmt.Errorf("make a pod of %s %s: %w", workload.GetKind(), workload.GetName(), err)
	}
	return &unstructured.Unstructured{Object: content}, nil
}
