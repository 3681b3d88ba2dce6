package tightening

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/policy/validation"
)

func TestTheSameSeedGivesTheSamePods(t *testing.T) {
	t.Parallel()
	a, b := rand.New(rand.NewPCG(1, 2)), rand.New(rand.NewPCG(1, 2))
	for range 1_000 {
		oldA, podA := generateUpdate(a)
		oldB, podB := generateUpdate(b)
		require.Equal(t, oldA, oldB)
		require.Equal(t, podA, podB)
	}
}

func TestEveryPodThatIsDrawnCanBeCreated(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for range 1_000 {
		pod := generatePod(r)
		require.Empty(t, validation.ValidatePodCreate(&pod.Spec))
		addOldTerm(r, pod)
		require.NotEmpty(t, validation.ValidatePodCreate(&pod.Spec), "an API server of today would not have stored it")
		require.Empty(t, validation.ValidatePodUpdate(&pod.Spec, &pod.Spec), "it stands, once stored")
	}
}

func TestUpdatesAreAllowedAndRefusedAboutAsOften(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	const pairs = 5_000
	refused := 0
	for range pairs {
		old, pod := generateUpdate(r)
		if len(validation.ValidatePodUpdate(&pod.Spec, &old.Spec)) > 0 {
			refused++
		}
	}
	require.Greater(t, refused, pairs*35/100, "seed %d", seed)
	require.Less(t, refused, pairs*65/100, "seed %d", seed)
}

// A change that narrows is allowed on pods that are held and refused on others; the
// rest must be refused somewhere, or no rule would notice them.
func TestEveryChangeMeetsItsRule(t *testing.T) {
	t.Parallel()
	harmless := []string{"gates in another order", "the last gate goes", "one gate goes", "an empty list of expressions", "empty spreading", "an empty selector"}
	allNarrowing, allOthers := changes(nil, &corev1.Pod{})
	for i, c := range slices.Concat(allNarrowing, allOthers) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(5, 6))
			allowed, refused := 0, 0
			for range 500 {
				old := generatePod(r)
				pod := old.DeepCopy()
				slices.Concat(changes(r, pod))[i].apply()
				switch {
				case len(validation.ValidatePodUpdate(&pod.Spec, &old.Spec)) > 0:
					refused++
				case !reflect.DeepEqual(pod, old):
					allowed++
				}
			}
			if i < len(allNarrowing) || slices.Contains(harmless, c.name) {
				require.NotZero(t, allowed, "never allowed")
			}
			if !slices.Contains(harmless, c.name) {
				require.NotZero(t, refused, "never refused")
			}
		})
	}
}

// What may be done in two steps may be done in one. The exception is the empty
// affinity of SD-14: it may come in with a preference, and the preference may go.
func TestAllowedUpdatesCompose(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	const pairs = 5_000
	composed := 0
	for range pairs {
		old, pod := generateUpdate(r)
		next := changePod(r, pod)
		if len(validation.ValidatePodUpdate(&pod.Spec, &old.Spec)) > 0 || len(validation.ValidatePodUpdate(&next.Spec, &pod.Spec)) > 0 {
			continue
		}
		composed++
		if (old.Spec.Affinity == nil) != (next.Spec.Affinity == nil) {
			old.Spec.Affinity, next.Spec.Affinity = nil, nil
		}
		require.Empty(t, validation.ValidatePodUpdate(&next.Spec, &old.Spec), "seed %d: %v, %v, %v", seed, old.Spec, pod.Spec, next.Spec)
	}
	require.Greater(t, composed, pairs/10, "seed %d", seed)
}
