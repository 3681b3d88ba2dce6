package merged

import (
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

// TestPT1WhatIsAskedForIsFoundAndNotSearched counts what allocations do not tell: to
// go through all pools of a driver allocates nothing. How often a map is looked at
// cannot be counted either, so the least time of many rounds is compared, where a
// search takes thousands of times as long and noise would have to hit every round.
func TestPT1WhatIsAskedForIsFoundAndNotSearched(t *testing.T) {
	const many, patience = 20_000, 50
	tests := map[string]func(number int) (driver, pool string){
		"PT1 among the pools of a driver":  func(number int) (string, string) { return "d", strconv.Itoa(number) },
		"PT1 among drivers":                func(number int) (string, string) { return strconv.Itoa(number), "p" },
		"PT1 among the slices of one pool": func(int) (string, string) { return "d", "p" },
	}
	for name, place := range tests {
		t.Run(name, func(t *testing.T) {
			one, all := filled(1, place), filled(many, place)
			driver, pool := place(0)
			selector, _ := device.SelectorOf(&resourcev1.DeviceTaintSelector{Driver: &driver, Pool: &pool, Device: new("gpu-0")})
			find := func(x *index) func() {
				return func() {
					for e := range x.selected(selector) {
						require.Equal(t, "s0", e.raw.Name)
					}
				}
			}
			require.Less(t, leastTime(find(all)), patience*leastTime(find(one)), "to find a slice")

			write := func(x *index) func() {
				versions := []*resourcev1.ResourceSlice{x.byName["s0"].raw.DeepCopy(), x.byName["s0"].raw.DeepCopy()}
				turn := 0
				return func() {
					turn++
					x.set(versions[turn%2])
				}
			}
			require.Less(t, leastTime(write(all)), patience*leastTime(write(one)), "to take in a slice")

			again := func(x *index) func() {
				slice := x.byName["s0"].raw
				return func() {
					x.remove("s0")
					x.set(slice)
				}
			}
			require.Less(t, leastTime(again(all)), patience*leastTime(again(one)), "to take a slice out")
		})
	}
}

// filled returns an index of so many slices, each with a device of its own.
func filled(slices int, place func(number int) (driver, pool string)) *index {
	x := New().slices
	for i := range slices {
		s := &resourcev1.ResourceSlice{}
		s.Name = "s" + strconv.Itoa(i)
		s.Spec.Driver, s.Spec.Pool.Name = place(i)
		s.Spec.Devices = []resourcev1.Device{{Name: "gpu-" + strconv.Itoa(i)}}
		x.set(s)
	}
	return &x
}

// leastTime returns the least that a hundred calls take in any of many rounds.
func leastTime(call func()) time.Duration {
	least := time.Duration(math.MaxInt64)
	for range 30 {
		start := time.Now()
		for range 100 {
			call()
		}
		least = min(least, time.Since(start))
	}
	return least
}
