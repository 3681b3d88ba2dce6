package check

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// defaultSize fills in how many pods workloads always have, and how many more a
// Deployment may have while it rolls out.
func defaultSize(object runtime.Object) {
	switch o := object.(type) {
	case *appsv1.Deployment:
		defaultOne(&o.Spec.Replicas)
		defaultRollout(&o.Spec.Strategy)
	case *appsv1.ReplicaSet:
		defaultOne(&o.Spec.Replicas)
	case *appsv1.StatefulSet:
		defaultOne(&o.Spec.Replicas)
	case *corev1.ReplicationController:
		defaultOne(&o.Spec.Replicas)
	case *batchv1.Job:
		defaultOne(&o.Spec.Parallelism)
	}
}

func defaultOne(count **int32) {
	if *count == nil {
		*count = new(int32(1))
	}
}

func defaultRollout(strategy *appsv1.DeploymentStrategy) {
	if strategy.Type == "" {
		strategy.Type = appsv1.RollingUpdateDeploymentStrategyType
	}
	if strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return
	}
	if strategy.RollingUpdate == nil {
		strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{}
	}
	for _, share := range []**intstr.IntOrString{&strategy.RollingUpdate.MaxSurge, &strategy.RollingUpdate.MaxUnavailable} {
		if *share == nil {
			*share = new(intstr.FromString("25%"))
		}
	}
}
