package decide

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestTolerationsMatchAsTheRulesSay(t *testing.T) {
	t.Parallel()
	taint := &corev1.Taint{Key: "sla", Value: "5", Effect: corev1.TaintEffectNoSchedule}
	less := &corev1.Toleration{Key: "sla", Operator: corev1.TolerationOpLt, Value: "10"}
	require.False(t, Rules{}.Tolerates(less, taint))
	require.True(t, Rules{ComparisonOperators: true}.Tolerates(less, taint))
	require.True(t, Rules{}.Tolerates(&corev1.Toleration{Operator: corev1.TolerationOpExists}, taint))
	require.False(t, Rules{}.Tolerates(&corev1.Toleration{Key: "sla", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}, taint))
}
