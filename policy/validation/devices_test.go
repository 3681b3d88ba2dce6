package validation_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/policy/validation"
)

var deviceNow = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// deviceTaint reads a taint as kubectl writes those of nodes, "gpu=broken:NoExecute"; its
// time is given as seconds from now, if any.
func deviceTaint(spec string, offset ...float64) resourcev1.DeviceTaint {
	var out resourcev1.DeviceTaint
	if i := strings.LastIndexByte(spec, ':'); i >= 0 {
		out.Effect, spec = resourcev1.DeviceTaintEffect(spec[i+1:]), spec[:i]
	}
	out.Key, out.Value, _ = strings.Cut(spec, "=")
	if len(offset) > 0 {
		out.TimeAdded = deviceAt(offset[0])
	}
	return out
}

func deviceAt(offset float64) *metav1.Time {
	return new(metav1.NewTime(deviceNow.Add(time.Duration(offset * float64(time.Second)))))
}

func device(name string, taints ...resourcev1.DeviceTaint) validation.Device {
	return validation.Device{Name: name, Taints: taints}
}

func slice(all ...validation.Device) []validation.Device { return all }

// many returns n devices without taints.
func many(n int, more ...validation.Device) []validation.Device {
	list := make([]validation.Device, 0, n+len(more))
	for i := range n {
		list = append(list, device(fmt.Sprintf("many-%d", i)))
	}
	return append(list, more...)
}

// times returns n different taints.
func times(n int) []resourcev1.DeviceTaint {
	list := make([]resourcev1.DeviceTaint, 0, n)
	for i := range n {
		list = append(list, deviceTaint(fmt.Sprintf("example.com/k%d:NoSchedule", i)))
	}
	return list
}

func deviceKinds(errs field.ErrorList) []string {
	var out []string
	for _, err := range errs {
		out = append(out, err.Type.String()+" "+err.Field)
	}
	return out
}

// deviceDraw returns devices in which names, keys, values and times meet often.
func deviceDraw(r *rand.Rand) []validation.Device {
	list := make([]validation.Device, r.IntN(4))
	for i := range list {
		list[i].Name = []string{"a", "b", "c"}[r.IntN(3)]
		for range r.IntN(4) {
			t := resourcev1.DeviceTaint{
				Key: []string{"x", "y"}[r.IntN(2)], Value: []string{"", "v"}[r.IntN(2)],
				Effect: []resourcev1.DeviceTaintEffect{"None", "NoSchedule", "NoExecute"}[r.IntN(3)],
			}
			if r.IntN(3) > 0 {
				t.TimeAdded = deviceAt([]float64{-3600, -60.5, -6, -5, -4.5, -0.25, 0, 3, 5, 6, 60, 61, 86400}[r.IntN(13)])
			}
			list[i].Taints = append(list[i].Taints, t)
		}
	}
	return list
}

// deviceDrawWrite returns the devices of a slice before and after a write that keeps some
// taints and changes, adds, removes and reorders others.
func deviceDrawWrite(r *rand.Rand) (current, old []validation.Device) {
	old = deviceDraw(r)
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
				t.TimeAdded = deviceAt(0)
			case 3:
				t.Value = "changed"
			}
			kept.Taints = append(kept.Taints, t)
		}
		r.Shuffle(len(kept.Taints), func(i, j int) { kept.Taints[i], kept.Taints[j] = kept.Taints[j], kept.Taints[i] })
		current = append(current, kept)
	}
	current = append(current, deviceDraw(r)...)
	r.Shuffle(len(current), func(i, j int) { current[i], current[j] = current[j], current[i] })
	return current, old
}

// deviceEachWrite runs check for many writes, and names the seed if it fails.
func deviceEachWrite(t *testing.T, check func(t *testing.T, current, old []validation.Device)) {
	t.Helper()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	for range 5_000 {
		current, old := deviceDrawWrite(r)
		check(t, current, old)
	}
}

// deviceApply returns the devices with the times that StampSlice gives them.
func deviceApply(list []validation.Device, stamps []validation.DeviceTimeAdded) []validation.Device {
	out := make([]validation.Device, len(list))
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
