package rulestatus

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

// permutations calls visit with every order of the numbers below n.
func permutations(n int, visit func([]int)) {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	var place func(at int)
	place = func(at int) {
		if at == n {
			visit(order)
			return
		}
		for i := at; i < n; i++ {
			order[at], order[i] = order[i], order[at]
			place(at + 1)
			order[at], order[i] = order[i], order[at]
		}
	}
	place(0)
}

func TestOrderOfEvents(t *testing.T) {
	t.Parallel()
	a := tracker.Key{Namespace: "shop", Name: "a", UID: "uid-shop-a"}
	b := tracker.Key{Namespace: "bank", Name: "b", UID: "uid-bank-b"}
	for _, effect := range []resourcev1.DeviceTaintEffect{noExecute, none} {
		t.Run("I08 every order of the events of a scenario ends in the same status with "+string(effect), func(t *testing.T) {
			t.Parallel()
			tried := 0
			permutations(6, func(order []int) {
				tried++
				inWorld(t, func(w *world) {
					events := []func(){
						func() { w.setEffect("broken", effect) },
						func() { w.claim(a, "shop-a") },
						func() { w.tracker.SetPod(podWithClaim(a)) },
						func() { w.claim(b, "bank-b") },
						func() { w.tracker.SetPod(podWithClaim(b)) },
						func() {
							w.tracker.SetSlice(tracker.Slice{
								Name: "s", UID: "s", Driver: "gpu.example.com", Pool: "node", Generation: 1,
								Devices: []tracker.Device{{Name: "shop-a"}, {Name: "bank-b"}, {Name: "spare"}},
							}, time.Now())
						},
					}
					w.start()
					for _, event := range order {
						events[event]()
						w.pending("broken")
						w.pass(time.Second)
					}
					w.pass(previewPause + writePause)
					if effect == noExecute {
						w.says("broken", isTrue, ReasonPodsPendingEviction, "2 pods need to be evicted in 2 different namespaces.")
						return
					}
					w.previews("broken", isTrue, ReasonPodsWouldBeEvicted,
						"3 published devices selected. 2 allocated devices selected. 2 pods would be evicted in 2 different namespaces if the effect was NoExecute. Pods: bank/b, shop/a.")
				})
			})
			require.Equal(t, 720, tried)
		})
	}
}
