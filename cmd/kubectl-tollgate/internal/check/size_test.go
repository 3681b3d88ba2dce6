package check

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestWorkloadsHaveOnePodUnlessTheySayHowMany(t *testing.T) {
	t.Parallel()
	one, four := int32(1), int32(4)
	deployment, recreated, job := &appsv1.Deployment{}, &appsv1.Deployment{}, &batchv1.Job{}
	recreated.Spec.Strategy.Type, recreated.Spec.Replicas = appsv1.RecreateDeploymentStrategyType, &four
	set, stateful, controller := &appsv1.ReplicaSet{}, &appsv1.StatefulSet{}, &corev1.ReplicationController{}
	s := &APIServer{}
	require.NoError(t, s.Admit(t.Context(), deployment))
	require.NoError(t, s.Admit(t.Context(), recreated))
	require.NoError(t, s.Admit(t.Context(), job))
	require.NoError(t, s.Admit(t.Context(), set))
	require.NoError(t, s.Admit(t.Context(), stateful))
	controller.Spec.Template = &corev1.PodTemplateSpec{}
	require.NoError(t, s.Admit(t.Context(), controller))
	for _, count := range []*int32{deployment.Spec.Replicas, job.Spec.Parallelism, set.Spec.Replicas, stateful.Spec.Replicas, controller.Spec.Replicas} {
		require.Equal(t, &one, count)
	}
	require.Equal(t, intstr.FromString("25%"), *deployment.Spec.Strategy.RollingUpdate.MaxSurge)
	require.Equal(t, &four, recreated.Spec.Replicas)
	require.Nil(t, recreated.Spec.Strategy.RollingUpdate)
}
