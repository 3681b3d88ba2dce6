package sliceview_test

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// modelOperations is how many random operations are made, unless the variable
	// says otherwise.
	modelOperations   = 20_000
	operationsEnv     = "TOLLGATE_MODEL_OPERATIONS"
	seedEnv           = "TOLLGATE_MODEL_SEED"
	operationsAWorld  = 400
	operationsARound  = 8
	modelSlices       = 14
	modelRules        = 7
	modelDevices      = 7
	modelSubscribers  = 4
	concurrentWrites  = 400
	concurrentHurries = 20
)

// number returns what a variable says, or else what is usual.
func number(tb testing.TB, variable string, usual uint64) uint64 {
	tb.Helper()
	text := os.Getenv(variable) // make sets what it was not given to nothing
	if text == "" {
		return usual
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(tb, err)
	return n
}

// dice makes random objects out of few names, so that they meet.
type dice struct{ *rand.Rand }

func (d dice) one(names ...string) string { return names[d.IntN(len(names))] }

// slice makes a slice that is likely to be in the one pool that has many.
func (d dice) slice() *resourcev1.ResourceSlice {
	s := slice("s" + strconv.Itoa(d.IntN(modelSlices)))
	if d.IntN(3) == 0 {
		s.Spec.Driver, s.Spec.Pool.Name = d.one("d", "e", "f"), d.one("p", "q")
	}
	s.Spec.Pool.Generation = d.Int64N(3)
	if d.IntN(8) == 0 {
		s.UID = types.UID(strconv.Itoa(d.IntN(3)))
	}
	for _, name := range d.Perm(modelDevices)[:d.IntN(modelDevices)] {
		var own []resourcev1.DeviceTaint
		for range d.IntN(3) {
			own = append(own, d.taint())
		}
		dev("dev-"+strconv.Itoa(name), own...)(s)
	}
	return s
}

func (d dice) taint() resourcev1.DeviceTaint {
	t := resourcev1.DeviceTaint{
		Key: d.one("k", "l"), Value: d.one("", "v"),
		Effect: resourcev1.DeviceTaintEffect(d.one("NoExecute", "NoSchedule", "None", "Other")),
	}
	if d.IntN(4) > 0 {
		t.TimeAdded = new(metav1.NewTime(start.Add(time.Duration(d.IntN(2)) * time.Second)))
	}
	return t
}

func (d dice) rule() *resourcev1.DeviceTaintRule {
	name := "r" + strconv.Itoa(d.IntN(modelRules))
	if d.IntN(12) == 0 {
		return ruleWith(name, nil, d.taint())
	}
	// One name more than there is of each, and the name that nothing has.
	selector := only(d.one("-", "-", "d", "d", "e", ""), d.one("-", "-", "p", "p", "q", ""),
		d.one("-", "-", "dev-0", "dev-1", "dev-2", "dev-3", ""))
	return ruleWith(name, selector, d.taint())
}

func (d dice) writeSlice(w *world) {
	if d.IntN(4) == 0 {
		w.slices.remove(w.tb, "s"+strconv.Itoa(d.IntN(modelSlices)), d.IntN(2) == 0)
		return
	}
	w.slices.set(w.tb, d.slice())
}

func (d dice) writeRule(w *world) {
	if d.IntN(3) == 0 {
		w.rules.remove(w.tb, "r"+strconv.Itoa(d.IntN(modelRules)), d.IntN(2) == 0)
		return
	}
	w.rules.set(w.tb, d.rule())
}

// TestK02Model makes random changes and compares the view with what is computed
// from scratch, with what its handlers hold, and with Kubernetes' own tracker. All
// that may differ from the latter is the order of the taints of several rules.
func TestK02Model(t *testing.T) {
	t.Parallel()
	seed := number(t, seedEnv, rand.Uint64())
	operations := number(t, operationsEnv, modelOperations)
	t.Logf("%d operations, %s=%d", operations, seedEnv, seed)
	for made := uint64(0); made < operations; made += operationsAWorld {
		synctest.Test(t, func(t *testing.T) {
			modelWorld(t, dice{rand.New(rand.NewPCG(seed, made))})
		})
	}
}

func modelWorld(t *testing.T, d dice) {
	t.Helper()
	w := newWorld(t)
	theirs := newPeer(w)
	recorders := []*recorder{w.subscribe()}
	syncAt := d.IntN(operationsARound)
	for made := range operationsAWorld {
		if made == syncAt {
			w.synced()
		}
		switch d.IntN(20) {
		case 0:
			if len(recorders) < modelSubscribers {
				recorders = append(recorders, w.subscribe())
			}
		case 1:
			w.view.List()
		case 2:
			w.view.Get("s" + strconv.Itoa(d.IntN(modelSlices)))
		case 3:
			synctest.Wait()
		case 4, 5, 6, 7, 8, 9, 10, 11:
			d.writeRule(w)
		default:
			d.writeSlice(w)
		}
		if made >= syncAt && made%operationsARound == 0 {
			for _, r := range recorders {
				r.agrees(w)
			}
			w.right()
			theirs.agrees()
		}
	}
}

// TestK02Concurrently has slice events, rule events, readers and handlers on
// goroutines of their own, as real informers do.
func TestK02Concurrently(t *testing.T) {
	t.Parallel()
	seed := number(t, seedEnv, rand.Uint64())
	t.Logf("%s=%d", seedEnv, seed)
	for round := range uint64(concurrentHurries) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			recorders := []*recorder{w.subscribe(), w.subscribe()}
			var writers sync.WaitGroup
			for i, write := range []func(d dice){
				func(d dice) { d.writeSlice(w) },
				func(d dice) { d.writeRule(w) },
				func(dice) { w.view.List() },
				func(d dice) { w.view.Get("s" + strconv.Itoa(d.IntN(modelSlices))) },
			} {
				writers.Go(func() {
					d := dice{rand.New(rand.NewPCG(seed, round*4+uint64(i)))}
					for range concurrentWrites {
						write(d)
					}
				})
			}
			w.synced()
			recorders = append(recorders, w.subscribe())
			writers.Wait()
			for _, r := range recorders {
				r.agrees(w)
				require.True(t, r.synced())
			}
			w.right()
		})
	}
}

// The model would prove little if its slices and rules did not meet.
func TestModelMeets(t *testing.T) {
	t.Parallel()
	d := dice{rand.New(rand.NewPCG(1, 2))}
	w := &world{tb: t, slices: newSliceSource(), rules: newRuleSource()}
	tainted, most := 0, 0
	for range 500 {
		d.writeSlice(w)
		d.writeRule(w)
		for _, devices := range expected(w.slices, w.rules) {
			for _, taints := range devices {
				tainted++
				most = max(most, len(taints))
			}
		}
	}
	require.Greater(t, tainted, 1000)
	require.Greater(t, most, 3)
	sizes := map[string]int{}
	for _, obj := range w.slices.GetIndexer().List() {
		s := obj.(*resourcev1.ResourceSlice)
		sizes[s.Spec.Driver+s.Spec.Pool.Name]++
	}
	all := []int{}
	for _, size := range sizes {
		all = append(all, size)
	}
	require.Greater(t, slices.Max(all), 4)
}
