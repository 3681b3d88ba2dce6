package handlers

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// BenchmarkPlacement gives a typical pod, and judges it as it then is, with policies of
// which 1 % are for it, and one at least (PA5).
func BenchmarkPlacement(b *testing.B) {
	for _, n := range []int{0, 1, 100, 1000} {
		policies := make([]v1alpha1.PlacementPolicy, n)
		for i := range policies {
			policies[i] = givingPods(fmt.Sprintf("p%04d", i), v1alpha1.PodPlacement{
				Tolerations:  []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "banana"}},
				NodeSelector: map[string]string{"dedicated": "banana"},
			})
			if i%100 != 0 {
				policies[i].Spec.Match.Namespaces = []string{fmt.Sprintf("team-%d", i)}
			}
		}
		pod, err := json.Marshal(typicalPod())
		require.NoError(b, err)
		source, p, req := placements(policies...), testPlacer(), creating(string(pod))
		b.Run(fmt.Sprintf("give/policies=%d", n), func(b *testing.B) {
			giver := by(p, source).mutating(request.mutatePod)
			b.ReportAllocs()
			for b.Loop() {
				response, err := answer(b.Context(), giver, req)
				if err != nil || (len(response.Patches) > 0) != (n > 0) {
					b.Fatal("the pod is not given what it should be", err)
				}
			}
		})
		b.Run(fmt.Sprintf("judge/policies=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				found, err := misplaced(b.Context(), p, source.Current(), req)
				if err != nil || (len(found) > 0) != (n > 0) {
					b.Fatal("what is missing is not found", err)
				}
			}
		})
	}
}
