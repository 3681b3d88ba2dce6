package devices

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// maxNamed is the maximum number of notes of one kind; the others are counted.
const maxNamed = 5

// Notes returns, a line each, facts that the last yielded devices do not show: why there are
// none, incomplete pools, and ignored objects.
func (v *Inventory) Notes() []string {
	var notes []string
	if v.matched == 0 {
		notes = append(notes, v.nothing())
	}
	notes = append(notes, v.classNote()...)
	notes = append(notes, limited("pools", v.incomplete())...)
	notes = append(notes, limited("claims", v.lost())...)
	notes = append(notes, limited("patches", prefixed("not in force: ResourceSlicePatch ", v.invalid))...)
	return append(notes, limited("rules", prefixed("selects by more than names and is left out: DeviceTaintRule ", v.unsupported))...)
}

// nothing returns why there is no device: an unknown name in the filter, else that none matches.
func (v *Inventory) nothing() string {
	f := &v.filter
	driver, published := "", false
	if f.Driver != "" {
		driver = " of driver " + f.Driver
	}
	for _, p := range v.pools {
		published = published || p.publishes(f.Device)
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
	default:
		return "no devices found: none satisfies " + f.asked()
	}
}

// asked returns the filter as flags.
func (f *Filter) asked() string {
	var flags []string
	for _, flag := range []struct{ name, value string }{{"--driver ", f.Driver}, {"--pool ", f.Pool}, {"--device ", f.Device}, {"--class ", f.Class}} {
		if flag.value != "" {
			flags = append(flags, flag.name+flag.value)
		}
	}
	if f.Tainted {
		flags = append(flags, "--tainted")
	}
	if f.Patched {
		flags = append(flags, "--patched")
	}
	return strings.Join(flags, " ")
}

func (v *Inventory) classNote() []string {
	switch {
	case v.filter.Class == "":
		return nil
	case v.class == nil:
		return []string{"there is no DeviceClass " + v.filter.Class}
	case v.class.failed > 0:
		return []string{fmt.Sprintf("DeviceClass %s: an expression failed on %d devices, which are not shown; on %s: %s",
			v.filter.Class, v.class.failed, v.class.first, v.class.problem)}
	default:
		return nil
	}
}

// incomplete returns the pools that lack slices: no scheduler allocates from them.
func (v *Inventory) incomplete() []string {
	var notes []string
	for _, name := range slices.SortedFunc(maps.Keys(v.pools), comparePools) {
		if p := v.pools[name]; !p.complete() {
			notes = append(notes, fmt.Sprintf("pool %s/%s is incomplete, no scheduler allocates from it: generation %d has %d of %d ResourceSlices",
				name.driver, name.pool, p.generation, len(p.slices), p.expected()))
		}
	}
	return notes
}

// lost returns the claims with devices that are not published any more.
func (v *Inventory) lost() []string {
	var notes []string
	for _, id := range slices.SortedFunc(maps.Keys(v.claims), compareIDs) {
		if p := v.pools[poolName{driver: id.Driver, pool: id.Pool}]; p != nil && p.publishes(id.Name) {
			continue
		}
		for _, c := range v.claims[id] {
			notes = append(notes, fmt.Sprintf("ResourceClaim %s/%s has device %s, which the newest ResourceSlices of its pool did not publish when they were read", c.Namespace, c.Name, id))
		}
	}
	return notes
}

func compareIDs(a, b device.ID) int { return slices.Compare(nameParts(a), nameParts(b)) }

func nameParts(id device.ID) []string { return []string{id.Driver, id.Pool, id.Name} }

func prefixed(prefix string, names []string) []string {
	slices.Sort(names)
	notes := make([]string, 0, len(names))
	for _, name := range names {
		notes = append(notes, prefix+name)
	}
	return notes
}

// limited returns at most maxNamed notes, on one line each.
func limited(of string, notes []string) []string {
	const longest = 512
	var kept []string
	for i, note := range notes {
		if i == maxNamed {
			return append(kept, "the same of "+strconv.Itoa(len(notes)-maxNamed)+" more "+of)
		}
		kept = append(kept, policy.Short(note, longest))
	}
	return kept
}
