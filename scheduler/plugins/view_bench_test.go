package plugins

import (
	"fmt"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
)

// fixed are slices that a list copies, as that of the scheduler does.
type fixed []*resourcev1.ResourceSlice

func (f fixed) ListWithDeviceTaintRules() ([]*resourcev1.ResourceSlice, error) {
	return append([]*resourcev1.ResourceSlice(nil), f...), nil
}

// What the view adds to a list of 5,000 slices, which each pod with claims costs one of.
func BenchmarkList(b *testing.B) {
	slices := make(fixed, 5000)
	for i := range slices {
		slices[i] = slice(fmt.Sprint("slice-", i), "one")
	}
	b.Run("stock", func(b *testing.B) {
		for b.Loop() {
			_, _ = slices.ListWithDeviceTaintRules()
		}
	})
	for name, patches := range map[string]int{"without patches": 0, "with a patch": 1} {
		b.Run(name, func(b *testing.B) {
			c := newCluster()
			for range patches {
				c.patches["one"] = patch("one", 1, "x")
			}
			v := newView(c, compile)
			v.slices = slices
			for b.Loop() {
				if _, err := v.ListWithDeviceTaintRules(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
