package spread

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func TestAffineNodesAreThoseThatThePodRequires(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: map[string]string{"pool": "a"}}}
	s, err := Read(pod, Options{})
	require.NoError(t, err)
	taint := []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
	require.True(t, s.Affine(&Node{Labels: labels.Set{"pool": "a"}, Taints: taint}))
	require.False(t, s.Affine(&Node{Labels: labels.Set{"pool": "b"}}))
	require.False(t, s.Affine(&Node{}))
}
