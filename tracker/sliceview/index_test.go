package sliceview

import (
	"context"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

// TestIndexAgrees makes random changes and asks every slice whether a selector may
// select one of its devices. Nothing may be found twice, or be left behind.
func TestIndexAgrees(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	x := New().slices
	all := map[string]*resourcev1.ResourceSlice{}
	for range 4000 {
		s := &resourcev1.ResourceSlice{}
		s.Name = "s" + strconv.Itoa(r.IntN(12))
		s.Spec.Driver, s.Spec.Pool.Name = one("d", "d", "d", "d", "e"), one("p", "p", "p", "p", "q")
		for range r.IntN(6) {
			s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: one("a", "b", "c", "d")})
		}
		if r.IntN(4) == 0 {
			require.Equal(t, all[s.Name] != nil, x.remove(s.Name))
			delete(all, s.Name)
		} else {
			require.Equal(t, all[s.Name] == nil, x.set(s))
			all[s.Name] = s
		}

		wanted := device.ID{Driver: one("", "d", "e", "f"), Pool: one("", "p", "q"), Name: one("", "a", "b", "z")}
		require.ElementsMatch(t, holding(all, wanted), found(&x, wanted), wanted)
	}
	for name := range all {
		require.True(t, x.remove(name))
	}
	require.Empty(t, x.byName)
	require.Empty(t, x.drivers)
}

// TestSmallPools holds that a pool is indexed when it grows, and not before.
func TestSmallPools(t *testing.T) {
	t.Parallel()
	x := New().slices
	p := func() *pool { return x.drivers["d"]["p"] }
	for i := range searched + 2 {
		s := &resourcev1.ResourceSlice{}
		s.Name, s.Spec.Driver, s.Spec.Pool.Name = strconv.Itoa(i), "d", "p"
		s.Spec.Devices = []resourcev1.Device{{Name: "shared"}, {Name: "own-" + s.Name}}
		x.set(s)
		if i < searched {
			require.Nil(t, p().devices)
		}
	}
	require.Len(t, p().devices, searched+3)
	for i := range searched + 1 {
		x.remove(strconv.Itoa(i))
	}
	require.Len(t, p().devices, 2)
	require.Empty(t, p().others)
}

// holding returns the slices with a device of those names, of which empty ones are
// not asked for.
func holding(all map[string]*resourcev1.ResourceSlice, wanted device.ID) []string {
	names := []string{}
	for name, s := range all {
		if wanted.Driver != "" && wanted.Driver != s.Spec.Driver || wanted.Pool != "" && wanted.Pool != s.Spec.Pool.Name {
			continue
		}
		holds := wanted.Name == ""
		for _, d := range s.Spec.Devices {
			holds = holds || d.Name == wanted.Name
		}
		if holds {
			names = append(names, name)
		}
	}
	return names
}

func found(x *index, wanted device.ID) []string {
	asked := &resourcev1.DeviceTaintSelector{}
	if wanted.Driver != "" {
		asked.Driver = &wanted.Driver
	}
	if wanted.Pool != "" {
		asked.Pool = &wanted.Pool
	}
	if wanted.Name != "" {
		asked.Device = &wanted.Name
	}
	selector, _ := device.SelectorOf(asked)
	names := []string{}
	for e := range x.selected(selector) {
		names = append(names, e.raw.Name)
	}
	return names
}

// A handler that is removed must not leave its goroutine behind for as long as the
// view runs.
func TestRemovedHandlersEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := New()
		running := 0
		v.open = true
		v.start = func(s *subscriber) {
			running++
			go func() {
				v.deliver(context.WithoutCancel(t.Context()), s)
				running--
			}()
		}
		registration, err := v.AddEventHandler(toolscache.ResourceEventHandlerFuncs{})
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, 1, running)
		require.NoError(t, v.RemoveEventHandler(registration))
		synctest.Wait()
		require.Zero(t, running)
	})
}
