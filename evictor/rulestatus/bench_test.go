package rulestatus

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// crowd returns a tracker with so many pods, each with a device of its own, of
// which a hundred are the rule's.
func crowd(pods int) *tracker.Tracker {
	const ofRule = 100
	now := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	state := tracker.New()
	for i := range pods {
		key := tracker.Key{Namespace: fmt.Sprintf("namespace-%d", i%50), Name: fmt.Sprintf("pod-%06d", i), UID: types.UID(fmt.Sprintf("pod-%06d", i))}
		pool := fmt.Sprintf("pool-%d", i%100)
		if i < ofRule {
			pool = "broken"
		}
		state.SetClaim(tracker.Claim{
			ClaimName: tracker.ClaimName{Namespace: key.Namespace, Name: key.Name}, UID: key.UID, Allocated: true,
			Devices:   []tracker.AllocatedDevice{{ID: device.ID{Driver: "gpu.example.com", Pool: pool, Name: key.Name}}},
			Consumers: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: key.Name, UID: key.UID}},
		})
		state.SetPod(podWithClaim(key))
	}
	state.SetRule(tracker.RuleOf(&resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: "broken", UID: "1", Generation: 1},
		Spec: resourcev1.DeviceTaintRuleSpec{
			DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: new("gpu.example.com"), Pool: new("broken")},
			Taint:          resourcev1.DeviceTaint{Key: "broken", Effect: noExecute, TimeAdded: new(metav1.NewTime(now))},
		},
	}), now)
	state.SetDevicesKnown(true)
	return state
}

// BenchmarkStatus is one look at a rule with a hundred pods, in clusters of growing
// size (PE8).
func BenchmarkStatus(b *testing.B) {
	now := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	for _, pods := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("%d pods", pods), func(b *testing.B) {
			state := crowd(pods)
			b.ReportAllocs()
			for b.Loop() {
				impact, _ := state.Impact("broken")
				v := conditions(moment{server: now, local: now}, &input{memory: &memory{}, rule: &impact.Rule, tally: tallyOf(&impact, leaves, nil)})
				if v.conditions[0].Message != "100 pods need to be evicted in 50 different namespaces." {
					b.Fatal(v.conditions[0].Message)
				}
			}
		})
	}
}

// TestCost is not parallel: it counts allocations.
func TestCost(t *testing.T) {
	t.Run("PE8 a look at a rule costs what the rule selects, however many pods there are", func(t *testing.T) {
		cost := func(pods int) (decisions int, allocations float64) {
			state := crowd(pods)
			return decisionsOf(state), testing.AllocsPerRun(10, func() { decisionsOf(state) })
		}
		decisions, allocations := cost(200)
		more, moreAllocations := cost(20_000)
		require.Equal(t, 100, decisions)
		require.Equal(t, decisions, more)
		require.InDelta(t, allocations, moreAllocations, allocations/5)
	})
}

// decisionsOf looks at the rule of a crowd, and returns how many pods it decided
// about.
func decisionsOf(state *tracker.Tracker) int {
	decisions := 0
	impact, _ := state.Impact("broken")
	conditions(moment{}, &input{memory: &memory{}, rule: &impact.Rule, tally: tallyOf(&impact, func(s tracker.Situation) bool {
		decisions++
		return leaves(s)
	}, nil)})
	return decisions
}
