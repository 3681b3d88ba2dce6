package devices

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// Notes returns, a line each, facts that the last yielded devices do not show: why there are
// none, incomplete pools, and ignored objects.
func (v *Inventory) Notes() []string {
	var notes []string
	if v.matched == 0 {
		notes = append(notes, v.nothing())
	}
	const longest = 256
	switch {
	case v.filter.Class == "":
	case v.class == nil:
		notes = append(notes, "there is no DeviceClass "+v.filter.Class)
	case v.class.failed > 0:
		problem, _, _ := strings.Cut(v.class.problem.Error(), "\n")
		notes = append(notes, fmt.Sprintf("DeviceClass %s: an expression failed on %d devices, which are not shown; on %s: %s",
			v.filter.Class, v.class.failed, v.class.first, policy.Short(problem, longest)))
	}
	notes = append(notes, limited("pools", v.incomplete())...)
	notes = append(notes, limited("claims", v.lost())...)
	for _, ignored := range []struct {
		of, prefix string
		names      []string
	}{
		{"patches", "not in force: ResourceSlicePatch ", v.invalid},
		{"rules", "selects by more than names and is left out: DeviceTaintRule ", v.unsupported},
	} {
		var lines []string
		for _, name := range slices.Sorted(slices.Values(ignored.names)) {
			lines = append(lines, ignored.prefix+name)
		}
		notes = append(notes, limited(ignored.of, lines)...)
	}
	return notes
}

// limited returns at most maxNamed notes, on one line each, and the number of the others.
func limited(of string, notes []string) []string {
	const maxNamed, longest = 5, 512
	var kept []string
	for _, note := range notes[:min(len(notes), maxNamed)] {
		kept = append(kept, policy.Short(note, longest))
	}
	if len(notes) > maxNamed {
		kept = append(kept, "the same of "+strconv.Itoa(len(notes)-maxNamed)+" more "+of)
	}
	return kept
}

// nothing returns why there is no device: an unknown name in the filter, else that none matches.
func (v *Inventory) nothing() string {
	f := &v.filter
	driver := ""
	if f.Driver != "" {
		driver = " of driver " + f.Driver
	}
	published := false
	for _, pool := range v.pools {
		published = published || publishes(pool, f.Device)
	}
	switch {
	case len(v.pools) == 0 && f.Pool != "":
		return "no devices found: no ResourceSlice" + driver + " has pool " + f.Pool
	case len(v.pools) == 0:
		return "no devices found: there is no ResourceSlice" + driver
	case f.Device != "" && !published:
		return "no devices found: none is called " + f.Device
	case *f == Filter{}:
		return "no devices found"
	}
	var flags []string
	for _, flag := range []struct {
		text string
		set  bool
	}{
		{"--driver " + f.Driver, f.Driver != ""},
		{"--pool " + f.Pool, f.Pool != ""},
		{"--device " + f.Device, f.Device != ""},
		{"--class " + f.Class, f.Class != ""},
		{"--tainted", f.Tainted},
		{"--patched", f.Patched},
	} {
		if flag.set {
			flags = append(flags, flag.text)
		}
	}
	return "no devices found: none satisfies " + strings.Join(flags, " ")
}

// publishes reports whether a slice of a pool has a device.
func publishes(pool map[string]*resourcev1.ResourceSlice, name string) bool {
	for _, slice := range pool {
		if hasDevice(slice, name) {
			return true
		}
	}
	return false
}

// incomplete returns the pools that lack slices of their generation: no scheduler allocates from
// them (DE-17). The first slice by name says how many there are.
func (v *Inventory) incomplete() []string {
	var notes []string
	for _, name := range slices.SortedFunc(maps.Keys(v.pools), comparePools) {
		pool := v.pools[name]
		of := pool[slices.Min(slices.Collect(maps.Keys(pool)))].Spec.Pool
		if int64(len(pool)) != of.ResourceSliceCount {
			notes = append(notes, fmt.Sprintf("pool %s/%s is incomplete, no scheduler allocates from it: generation %d has %d of %d ResourceSlices",
				name.driver, name.pool, of.Generation, len(pool), of.ResourceSliceCount))
		}
	}
	return notes
}

// lost returns the claims with devices that are not published any more.
func (v *Inventory) lost() []string {
	parts := func(id device.ID) []string { return []string{id.Driver, id.Pool, id.Name} }
	var notes []string
	for _, id := range slices.SortedFunc(maps.Keys(v.claims), func(a, b device.ID) int { return slices.Compare(parts(a), parts(b)) }) {
		if publishes(v.pools[poolName{driver: id.Driver, pool: id.Pool}], id.Name) {
			continue
		}
		for _, c := range v.claims[id] {
			notes = append(notes, fmt.Sprintf("ResourceClaim %s/%s has device %s, which the newest ResourceSlices of its pool did not publish when they were read", c.Namespace, c.Name, id))
		}
	}
	return notes
}
