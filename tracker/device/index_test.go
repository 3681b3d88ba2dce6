package device_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

func names(entries []device.Entry[int]) []string {
	found := []string{}
	for _, e := range entries {
		found = append(found, e.Name)
	}
	return found
}

func inPool(driver, pool string) device.ID { return device.ID{Driver: driver, Pool: pool} }

func TestIndex(t *testing.T) {
	t.Parallel()
	id := device.ID{Driver: "d", Pool: "p", Name: "n"}

	t.Run("an index without entries finds nothing and loses nothing", func(t *testing.T) {
		t.Parallel()
		var x device.Index[int]
		require.Empty(t, x.Match(id))
		require.False(t, x.HasNamed(inPool("d", "p")))
		require.True(t, x.ScopeOf(inPool("d", "p")).Empty())
		x.Delete(device.Selector{}, "a")
		require.Empty(t, x.Match(id))
	})

	t.Run("what is found comes by name, whatever selects it", func(t *testing.T) {
		t.Parallel()
		var x device.Index[int]
		x.Set(selectorOf(t, "d", "p", "n"), "c", 1)
		x.Set(selectorOf(t, "-", "-", "-"), "d", 2)
		x.Set(selectorOf(t, "-", "p", "-"), "b", 3)
		x.Set(selectorOf(t, "-", "-", "-"), "a", 4)
		x.Set(selectorOf(t, "-", "q", "-"), "e", 5)
		require.Equal(t, []device.Entry[int]{{Name: "a", Value: 4}, {Name: "b", Value: 3}, {Name: "c", Value: 1}, {Name: "d", Value: 2}}, x.Match(id))
		require.Equal(t, []string{"c"}, names(x.Named(id)))
		require.Equal(t, []string{"a", "b", "d"}, names(x.Scoped(x.ScopeOf(inPool("d", "p")))))
	})

	t.Run("a name holds one value under a selector", func(t *testing.T) {
		t.Parallel()
		var x device.Index[int]
		x.Set(device.Selector{}, "a", 1)
		x.Set(device.Selector{}, "a", 2)
		require.Equal(t, []device.Entry[int]{{Name: "a", Value: 2}}, x.Match(id))
		x.Delete(device.Selector{}, "a")
		require.Empty(t, x.Match(id))
	})

	t.Run("what was there leaves nothing behind", func(t *testing.T) {
		t.Parallel()
		var x device.Index[int]
		named, other := selectorOf(t, "-", "p", "n"), selectorOf(t, "d", "-", "n")
		x.Set(named, "a", 1)
		x.Set(named, "b", 1)
		x.Set(other, "c", 1)
		x.Delete(named, "a")
		x.Delete(other, "c")
		require.True(t, x.HasNamed(inPool("d", "p")))
		require.False(t, x.HasNamed(inPool("d", "q")))
		x.Delete(named, "b")
		require.False(t, x.HasNamed(inPool("d", "p")))
	})

	t.Run("what was found does not change afterwards", func(t *testing.T) {
		t.Parallel()
		var x device.Index[int]
		x.Set(device.Selector{}, "a", 1)
		x.Set(device.Selector{}, "c", 3)
		found := x.Match(id)
		x.Set(device.Selector{}, "b", 2)
		x.Set(device.Selector{}, "a", 9)
		x.Delete(device.Selector{}, "c")
		require.Equal(t, []device.Entry[int]{{Name: "a", Value: 1}, {Name: "c", Value: 3}}, found)
	})

	t.Run("pools have one scope unless something tells them apart", func(t *testing.T) {
		t.Parallel()
		var x device.Index[int]
		x.Set(selectorOf(t, "-", "-", "-"), "a", 1)
		x.Set(selectorOf(t, "-", "-", "n"), "n", 1)
		x.Set(selectorOf(t, "d", "p", "n"), "m", 1)
		require.Equal(t, x.ScopeOf(inPool("d", "p")), x.ScopeOf(inPool("e", "q")))
		x.Set(selectorOf(t, "d", "-", "-"), "b", 1)
		require.Equal(t, x.ScopeOf(inPool("d", "p")), x.ScopeOf(inPool("d", "q")))
		require.NotEqual(t, x.ScopeOf(inPool("d", "p")), x.ScopeOf(inPool("e", "p")))
		x.Set(selectorOf(t, "-", "p", "-"), "c", 1)
		require.NotEqual(t, x.ScopeOf(inPool("d", "p")), x.ScopeOf(inPool("d", "q")))
		require.Equal(t, x.ScopeOf(inPool("e", "p")), x.ScopeOf(inPool("f", "p")))
	})

	t.Run("K10 an entry that asks for an empty name is not in the scope of pools that have names", func(t *testing.T) {
		t.Parallel()
		var x device.Index[int]
		x.Set(selectorOf(t, "", "-", "-"), "a", 1)
		x.Set(selectorOf(t, "-", "", "-"), "b", 1)
		x.Set(selectorOf(t, "-", "-", "-"), "c", 1)
		require.Equal(t, []string{"c"}, names(x.Scoped(x.ScopeOf(inPool("d", "p")))))
		require.Equal(t, []string{"a", "b", "c"}, names(x.Scoped(x.ScopeOf(inPool("", "")))))
	})
}

// TestIndexAgrees makes random changes and asks every entry whether it selects.
func TestIndexAgrees(t *testing.T) {
	t.Parallel()
	type key struct {
		selector device.Selector
		name     string
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var x device.Index[int]
	all := map[key]int{}
	for i := range 3000 {
		one := func(of ...string) string { return of[r.IntN(len(of))] }
		k := key{selectorOf(t, one("-", "d", "e", ""), one("-", "p", "q", ""), one("-", "n", "m", "")), strconv.Itoa(r.IntN(6))}
		if r.IntN(2) == 0 {
			x.Set(k.selector, k.name, i)
			all[k] = i
		} else {
			x.Delete(k.selector, k.name)
			delete(all, k)
		}
		id := device.ID{Driver: one("d", "e", "f", ""), Pool: one("p", "q", ""), Name: one("n", "m", "o", "")}
		var whole, byName, both []int
		named := false
		for k, value := range all {
			name, names := k.selector.Name()
			named = named || names && k.selector.Matches(device.ID{Driver: id.Driver, Pool: id.Pool, Name: name})
			switch {
			case !k.selector.Matches(id):
				continue
			case names:
				byName = append(byName, value)
			default:
				whole = append(whole, value)
			}
			both = append(both, value)
		}
		require.ElementsMatch(t, both, values(x.Match(id)))
		require.ElementsMatch(t, byName, values(x.Named(id)))
		require.ElementsMatch(t, whole, values(x.Scoped(x.ScopeOf(id))))
		require.Equal(t, named, x.HasNamed(id))
		require.True(t, slices.IsSorted(names(x.Match(id))))
	}
}

func values(entries []device.Entry[int]) []int {
	found := []int{}
	for _, e := range entries {
		found = append(found, e.Value)
	}
	return found
}
