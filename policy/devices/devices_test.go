package devices_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/policy/devices"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// taint reads a taint as kubectl writes those of nodes, "gpu=broken:NoExecute"; its
// time is given as seconds from now, if any.
func taint(spec string, offset ...float64) resourcev1.DeviceTaint {
	var out resourcev1.DeviceTaint
	if i := strings.LastIndexByte(spec, ':'); i >= 0 {
		out.Effect, spec = resourcev1.DeviceTaintEffect(spec[i+1:]), spec[:i]
	}
	out.Key, out.Value, _ = strings.Cut(spec, "=")
	if len(offset) > 0 {
		out.TimeAdded = at(offset[0])
	}
	return out
}

func at(offset float64) *metav1.Time {
	return new(metav1.NewTime(now.Add(time.Duration(offset * float64(time.Second)))))
}

func device(name string, taints ...resourcev1.DeviceTaint) devices.Device {
	return devices.Device{Name: name, Taints: taints}
}

func slice(all ...devices.Device) []devices.Device { return all }

// many returns n devices without taints.
func many(n int, more ...devices.Device) []devices.Device {
	list := make([]devices.Device, 0, n+len(more))
	for i := range n {
		list = append(list, device(fmt.Sprintf("many-%d", i)))
	}
	return append(list, more...)
}

// times returns n different taints.
func times(n int) []resourcev1.DeviceTaint {
	list := make([]resourcev1.DeviceTaint, 0, n)
	for i := range n {
		list = append(list, taint(fmt.Sprintf("example.com/k%d:NoSchedule", i)))
	}
	return list
}

func kinds(errs field.ErrorList) []string {
	var out []string
	for _, err := range errs {
		out = append(out, err.Type.String()+" "+err.Field)
	}
	return out
}

// draw returns devices in which names, keys, values and times meet often.
func draw(r *rand.Rand) []devices.Device {
	list := make([]devices.Device, r.IntN(4))
	for i := range list {
		list[i].Name = []string{"a", "b", "c"}[r.IntN(3)]
		for range r.IntN(4) {
			t := resourcev1.DeviceTaint{
				Key: []string{"x", "y"}[r.IntN(2)], Value: []string{"", "v"}[r.IntN(2)],
				Effect: []resourcev1.DeviceTaintEffect{"None", "NoSchedule", "NoExecute"}[r.IntN(3)],
			}
			if r.IntN(3) > 0 {
				t.TimeAdded = at([]float64{-3600, -60.5, -6, -5, -4.5, -0.25, 0, 3, 5, 6, 60, 61, 86400}[r.IntN(13)])
			}
			list[i].Taints = append(list[i].Taints, t)
		}
	}
	return list
}

// drawWrite returns the devices of a slice before and after a write that keeps some
// taints and changes, adds, removes and reorders others.
func drawWrite(r *rand.Rand) (current, old []devices.Device) {
	old = draw(r)
	for i := range old {
		if r.IntN(5) == 0 {
			continue
		}
		kept := device(old[i].Name)
		for j := range old[i].Taints {
			t := *old[i].Taints[j].DeepCopy()
			switch r.IntN(7) {
			case 0:
				continue
			case 1:
				t.TimeAdded = nil
			case 2:
				t.TimeAdded = at(0)
			case 3:
				t.Value = "changed"
			}
			kept.Taints = append(kept.Taints, t)
		}
		r.Shuffle(len(kept.Taints), func(i, j int) { kept.Taints[i], kept.Taints[j] = kept.Taints[j], kept.Taints[i] })
		current = append(current, kept)
	}
	current = append(current, draw(r)...)
	r.Shuffle(len(current), func(i, j int) { current[i], current[j] = current[j], current[i] })
	return current, old
}

// eachWrite runs check for many writes, and names the seed if it fails.
func eachWrite(t *testing.T, check func(t *testing.T, current, old []devices.Device)) {
	t.Helper()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	for range 5_000 {
		current, old := drawWrite(r)
		check(t, current, old)
	}
}

// apply returns the devices with the times that StampSlice gives them.
func apply(list []devices.Device, stamps []devices.TimeAdded) []devices.Device {
	out := make([]devices.Device, len(list))
	for i := range list {
		out[i].Name = list[i].Name
		for j := range list[i].Taints {
			out[i].Taints = append(out[i].Taints, *list[i].Taints[j].DeepCopy())
		}
	}
	for _, stamp := range stamps {
		out[stamp.Device].Taints[stamp.Taint].TimeAdded = new(stamp.TimeAdded)
	}
	return out
}
