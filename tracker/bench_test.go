package tracker_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// devicesPerSlice is how many devices a slice with taints can hold.
const devicesPerSlice = 64

// fleet returns a tracker that knows slices of 64 devices, a pool each, as many
// pods on one device of each, and rules that select one device each.
func fleet(slices, rules int) *tracker.Tracker {
	tr := devicesKnown()
	for i := range slices {
		tr.SetSlice(poolSlice(i, 1), start)
		id := device.ID{Driver: "d", Pool: "p" + strconv.Itoa(i), Name: "x0"}
		name := "u" + strconv.Itoa(i)
		tr.SetClaim(claimFor("c"+strconv.Itoa(i), 1, []string{name}, id))
		tr.SetPod(user(name, 1, tracker.PodClaim{Name: "c" + strconv.Itoa(i)}))
	}
	for i := range rules {
		tr.SetRule(rule("r"+strconv.Itoa(i), 1, &resourcev1.DeviceTaintSelector{
			Driver: new("d"), Pool: new("p" + strconv.Itoa(i%slices)), Device: new("x" + strconv.Itoa(i/slices%devicesPerSlice)),
		}, noExecute("k")), start)
	}
	return tr
}

func poolSlice(i, version int, taints ...resourcev1.DeviceTaint) tracker.Slice {
	devices := make([]tracker.Device, devicesPerSlice)
	for j := range devices {
		devices[j] = tracker.Device{Name: "x" + strconv.Itoa(j)}
	}
	devices[0].Taints = taints
	s := sliceOf("s"+strconv.Itoa(i), 1, version, devices...)
	s.Pool = "p" + strconv.Itoa(i)
	return s
}

// BenchmarkEvent measures one event that touches one device, whatever else there
// is (PT1).
func BenchmarkEvent(b *testing.B) {
	one := &resourcev1.DeviceTaintSelector{Driver: new("d"), Pool: new("p0"), Device: new("x0")}
	for _, size := range []struct{ slices, rules int }{{1, 1}, {1000, 1}, {1, 1000}, {1000, 1000}} {
		b.Run(fmt.Sprintf("rule/slices=%d/rules=%d", size.slices, size.rules), func(b *testing.B) {
			tr := fleet(size.slices, size.rules)
			for i := 0; b.Loop(); i++ {
				tr.SetRule(rule("new", i+1, one, noExecute(strconv.Itoa(i%2))), start)
			}
		})
		b.Run(fmt.Sprintf("slice/slices=%d/rules=%d", size.slices, size.rules), func(b *testing.B) {
			tr := fleet(size.slices, size.rules)
			even, odd := poolSlice(0, 2, noExecute("0")), poolSlice(0, 2, noExecute("1"))
			for i := 0; b.Loop(); i++ {
				if i%2 == 0 {
					tr.SetSlice(even, start)
				} else {
					tr.SetSlice(odd, start)
				}
			}
		})
		b.Run(fmt.Sprintf("lookup/slices=%d/rules=%d", size.slices, size.rules), func(b *testing.B) {
			tr := fleet(size.slices, size.rules)
			for b.Loop() {
				tr.Lookup(key("u0"))
			}
		})
	}
}

// BenchmarkRuleOverEverything measures a rule that selects every device, by the
// number of pods that use one (PE1): the event, and looking at each pod after it.
func BenchmarkRuleOverEverything(b *testing.B) {
	for _, pods := range []int{100, 1000, 10_000, 100_000} {
		b.Run(strconv.Itoa(pods), func(b *testing.B) {
			tr := fleet(pods, 0)
			for i := 0; b.Loop(); i++ {
				started := start.Add(time.Duration(i) * time.Second)
				for _, key := range tr.SetRule(rule("all", i+1, &resourcev1.DeviceTaintSelector{}, noExecute(strconv.Itoa(i%2))), started) {
					tr.Lookup(key)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(pods), "ns/pod")
		})
	}
}

// BenchmarkFirstListsK04 measures how long it takes to read a large cluster from
// nothing: 5,000 slices of 128 devices and as many as 10,000 rules, a tenth of which
// select a whole pool and the others a device. What an object costs must not grow
// with the number of the others.
func BenchmarkFirstListsK04(b *testing.B) {
	for _, size := range []struct{ slices, rules int }{{500, 1000}, {5000, 10_000}} {
		b.Run(fmt.Sprintf("slices=%d/rules=%d", size.slices, size.rules), func(b *testing.B) {
			slices, rules := make([]tracker.Slice, size.slices), make([]tracker.Rule, size.rules)
			for i := range slices {
				slices[i] = poolSlice(i, 1, noExecute("k"))
				slices[i].Devices = append(slices[i].Devices, slices[i].Devices...)
				for j := range slices[i].Devices {
					slices[i].Devices[j].Name = "x" + strconv.Itoa(j)
				}
			}
			for i := range rules {
				selector := &resourcev1.DeviceTaintSelector{Driver: new("d"), Pool: new("p" + strconv.Itoa(i%size.slices))}
				if i%10 > 0 {
					selector.Device = new("x" + strconv.Itoa(i%devicesPerSlice))
				}
				rules[i] = rule("r"+strconv.Itoa(i), 1, selector, noExecute("k"))
			}
			b.ResetTimer()
			for b.Loop() {
				tr := devicesKnown()
				for _, rule := range rules {
					tr.SetRule(rule, start)
				}
				for _, slice := range slices {
					tr.SetSlice(slice, start)
				}
				tr.TaintedDevices()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(size.slices*2*devicesPerSlice), "ns/device")
		})
	}
}

// BenchmarkBudget measures that a budget which guards 50 pods allows more or less, beside so
// many other pods that have to leave.
func BenchmarkBudget(b *testing.B) {
	for _, others := range []int{0, 50_000} {
		b.Run(fmt.Sprintf("others=%d", others), func(b *testing.B) {
			tr := tracker.New()
			tr.SetNode(node("n", 1, taint("gpu")), start)
			for i := range 50 + others {
				p := pod("p"+strconv.Itoa(i), "n", 1)
				if i >= 50 {
					p.Namespace = "ns-" + strconv.Itoa(i%100)
				}
				tr.SetPod(p)
			}
			of := budget("default", "b", "1", "1", nil)
			of.Selector = labels.Everything()
			for version := 2; b.Loop(); version++ {
				of.ResourceVersion, of.Allowed = strconv.Itoa(version), int32(version%2)
				tr.SetBudget(of)
			}
		})
	}
}
