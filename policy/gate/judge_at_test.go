package gate

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

func TestSD17TheTemplateOfASuspendedJobIsNamedWhereItStands(t *testing.T) {
	t.Parallel()
	set := Compile([]v1alpha1.GatePolicy{gatePolicy("queue", []string{"hold"}, controller)})
	old, pod := held("hold"), required(steered(held(), "zone", "a"), "gpu")
	path := field.NewPath("spec", "template", "spec")
	require.Equal(t, []string{
		"queue GatedPodNotOwned spec.template.spec.affinity.nodeAffinity",
		"queue GatedPodNotOwned spec.template.spec.nodeSelector",
		"queue GateNotOwned spec.template.spec.schedulingGates",
	}, found(set.JudgeAt(path, &asAlice, &pod, &old)))
	require.Empty(t, set.JudgeAt(path, &asController, &pod, &old).Findings)
}
