package handlers

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

func TestNobodyGetsByAGateWithALabelThatIsLeftOut(t *testing.T) {
	queue := givingPods("queue", v1alpha1.PodPlacement{
		Tolerations: []corev1.Toleration{{Key: "x", Operator: corev1.TolerationOpExists}}, SchedulingGates: []string{"example.com/queue"},
	})
	queue.Spec.Match.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "no-system-pods", Expression: "object.metadata.labels['tier'] != 'system'"}}
	source := placements(queue)
	giver := by(testPlacer(), source).mutating(request.mutatePod)
	verdict := func(object string) policy.Verdict {
		found, err := misplaced(t.Context(), testPlacer(), source.Current(), creating(object))
		require.NoError(t, err)
		return policy.Decide(found).Verdict
	}
	for metadata, want := range map[string]string{
		`{"labels":{"tier":"system"}}`: `{}`,
		`{"labels":{"tier":"web"}}`:    `{"tolerations":[{"key":"x","operator":"Exists"}],"schedulingGates":[{"name":"example.com/queue"}]}`,
		`{"labels":{"a":"b"}}`:         `{"schedulingGates":[{"name":"example.com/queue"}]}`,
		`{}`:                           `{"schedulingGates":[{"name":"example.com/queue"}]}`,
	} {
		bare := `{"metadata":` + metadata + `,"spec":{}}`
		placed := placedBy(t, giver, bare)
		require.JSONEq(t, `{"metadata":`+metadata+`,"spec":`+want+`}`, placed)
		require.Equal(t, policy.Allowed, verdict(placed))
		require.Equal(t, want == `{}`, verdict(bare) == policy.Allowed, metadata)
	}
}
