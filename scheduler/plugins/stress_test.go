package plugins

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Slices, patches and pods come and change in any order, each as soon as the one before
// was written. Whatever the order was, every pod whose device is there in the end
// gets it, though nothing happens any more.
func TestNoPodIsLeftWaitingInAnyOrder(t *testing.T) {
	t.Parallel()
	const nodes, rounds = 8, 6
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))

	objects := []runtime.Object{deviceClass()}
	for i := range nodes {
		objects = append(objects, node(fmt.Sprint("node-", i)))
	}
	h := start(t, setup{objects: objects})
	for round := range rounds {
		// In each round every node's device becomes what one pod asks for: half of
		// them as published, half by a patch, with a detour.
		var steps []func()
		for i := range nodes {
			name, model := fmt.Sprint("node-", i), fmt.Sprintf("model-%d-%d", round, i)
			slice := sliceOf(name, model)
			if i%2 == 0 {
				slice = sliceOf(name, "plain")
			}
			steps = append(steps,
				func() { h.createWanting(model, model) },
				func() { h.write(slice) },
				func() { h.patch(name, "detour", int64(3*round+1)) },
			)
		}
		random.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
		for i := range nodes {
			name, model := fmt.Sprint("node-", i), fmt.Sprintf("model-%d-%d", round, i)
			steps = append(steps, func() {
				if i%2 == 0 {
					h.patch(name, model, int64(3*round+2))
				} else {
					h.unpatch(name)
				}
			})
		}
		for _, step := range steps {
			step()
			time.Sleep(time.Duration(random.IntN(3)) * time.Millisecond)
		}
		for i := range nodes {
			h.requireOn(fmt.Sprint("node-", i), fmt.Sprintf("model-%d-%d", round, i))
		}
		for i := range nodes {
			h.remove(fmt.Sprintf("model-%d-%d", round, i))
		}
	}
}

func (h *harness) patch(pool, model string, generation int64) {
	patch := modelPatch(pool, model, generation)
	if h.patched[pool] {
		h.patches.Modify(patch)
	} else {
		h.patches.Add(patch)
	}
	h.patched[pool] = true
}

func (h *harness) unpatch(pool string) {
	h.patches.Delete(modelPatch(pool, "", 0))
	delete(h.patched, pool)
}

// remove gives back the device of a pod.
func (h *harness) remove(name string) {
	h.t.Helper()
	require.NoError(h.t, h.client.CoreV1().Pods(namespace).Delete(h.t.Context(), name, metav1.DeleteOptions{}))
	require.NoError(h.t, h.client.ResourceV1().ResourceClaims(namespace).Delete(h.t.Context(), name, metav1.DeleteOptions{}))
}
