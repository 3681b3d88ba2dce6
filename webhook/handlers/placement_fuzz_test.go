package handlers

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/webhook/review"
)

// FuzzPlacement gives pods that a client may send, well-formed or not. Whatever is
// answered can be applied, and what comes of it is a pod to which nothing is added.
func FuzzPlacement(f *testing.F) {
	for _, spec := range []string{
		`{}`, `{"tolerations":null,"nodeSelector":{},"schedulingGates":[],"affinity":null}`,
		`{"tolerations":[{"key":"x","operator":"Exists"},null],"nodeSelector":{"a":"b"}}`,
		`{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{},{"matchExpressions":[{"key":"k","operator":"In","values":["v"]}]}]}}}}`,
		`{"affinity":{"nodeAffinity":null},"nodeName":"n","topologySpreadConstraints":[{},{"nodeTaintsPolicy":null}]}`,
	} {
		f.Add([]byte(`{"metadata":{"name":"p","labels":{"a":"b"}},"spec":` + spec + `}`))
	}
	giver := by(testPlacer(), placements(everythingForPods())).mutating(request.mutatePod)
	f.Fuzz(func(t *testing.T, object []byte) {
		var pod corev1.Pod
		if v, err := review.Parse(object); err != nil || v.IsNull() || review.Unmarshal(object, &pod) != nil {
			return // the API server sends pods
		}
		give := func(object []byte) []byte {
			response, err := answer(t.Context(), giver, creating(string(object)))
			require.NoError(t, err)
			if len(response.Patches) == 0 {
				return object
			}
			text, err := json.Marshal(response.Patches)
			require.NoError(t, err)
			patch, err := jsonpatch.DecodePatch(text)
			require.NoError(t, err)
			out, err := patch.Apply(object)
			require.NoError(t, err, "%s\n%s", object, text)
			return out
		}
		once := give(canonical(t, &pod))
		require.Equal(t, string(once), string(give(once)))
	})
}

// canonical returns the pod as the API server sends it.
func canonical(t *testing.T, pod *corev1.Pod) []byte {
	t.Helper()
	text, err := json.Marshal(pod)
	require.NoError(t, err)
	return text
}
