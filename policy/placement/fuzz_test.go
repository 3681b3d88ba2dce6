package placement

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// FuzzPlacement makes policies and a pod from seeds.
func FuzzPlacement(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed, uint8(seed))
	}
	f.Fuzz(func(t *testing.T, seed uint64, n uint8) {
		random := rand.New(rand.NewPCG(seed, uint64(n)))
		policies := make([]v1alpha1.PlacementPolicy, n%8)
		for i := range policies {
			policies[i] = randomPolicy(random, string(rune('a'+i)))
		}
		spec := randomSpec(random)
		matching, err := Compile(policies).MatchPod(t.Context(), banana())
		require.NoError(t, err)
		placed := place(matching, spec)
		again := matching.GivePod(Pod{Spec: &placed})
		require.True(t, again.Empty())
		requireTightened(t, &spec, &placed)
		requireNothingMissing(t, matching, &placed)
	})
}
