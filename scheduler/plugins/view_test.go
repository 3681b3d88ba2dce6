package plugins

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

func newView(c *cluster, compile compileFunc) *view {
	return &view{slices: c, classes: classLister{c}, synced: c.HasSynced, patches: c.List, compile: compile}
}

func refresh(t *testing.T, v *view) bool {
	t.Helper()
	changed, err := v.Refresh()
	require.NoError(t, err)
	return changed
}

func TestListOfView(t *testing.T) {
	t.Parallel()

	t.Run("is the scheduler's own where there are no patches", func(t *testing.T) {
		t.Parallel()
		c := newCluster()
		published := slice("a", "one")
		c.do(func(c *cluster) { c.slices["a"] = published })
		listed, err := newView(c, func([]*v1alpha1.ResourceSlicePatch, findClass, patchSet) patchSet {
			panic("compiled without patches")
		}).ListWithDeviceTaintRules()
		require.NoError(t, err)
		require.Same(t, published, listed[0])
	})

	t.Run("shares slices that no patch changes", func(t *testing.T) {
		t.Parallel()
		c := newCluster()
		published := slice("b", "two")
		c.do(func(c *cluster) {
			c.slices["b"] = published
			c.patches["one"] = patch("one", 1, "x")
		})
		listed, err := newView(c, compile).ListWithDeviceTaintRules()
		require.NoError(t, err)
		require.Same(t, published, listed[0])
	})

	t.Run("is an error before the patches are known", func(t *testing.T) {
		t.Parallel()
		c := newCluster()
		c.do(func(c *cluster) {
			c.unsynced = true
			c.slices["a"] = slice("a", "one")
		})
		v := newView(c, compile)
		_, err := v.ListWithDeviceTaintRules()
		require.ErrorIs(t, err, errNotSynced)
		_, err = v.Refresh()
		require.ErrorIs(t, err, errNotSynced)

		c.do(func(c *cluster) {
			c.unsynced = false
			c.patches["one"] = patch("one", 1, "x")
		})
		require.Equal(t, map[string]string{"a": "x"}, seenBy(t, v), "the first list does not wait for a refresh")
	})

	t.Run("has a slice that came, changed or went at once", func(t *testing.T) {
		t.Parallel()
		c := newCluster()
		c.do(func(c *cluster) {
			c.slices["a"] = slice("a", "one")
			c.patches["one"] = patch("one", 1, "x")
		})
		v := newView(c, compile)
		require.Equal(t, map[string]string{"a": "x"}, seenBy(t, v))
		c.do(func(c *cluster) {
			c.slices["a"] = slice("a", "two")
			c.slices["b"] = slice("b", "one")
		})
		require.Equal(t, map[string]string{"a": "", "b": "x"}, seenBy(t, v))
		c.do(func(c *cluster) { delete(c.slices, "b") })
		require.Equal(t, map[string]string{"a": ""}, seenBy(t, v))
	})

	t.Run("goes on with the patches before while others are compiled", func(t *testing.T) {
		t.Parallel()
		c := newCluster()
		c.do(func(c *cluster) {
			c.slices["a"] = slice("a", "one")
			c.patches["one"] = patch("one", 1, "x")
		})
		compiling, proceed := make(chan struct{}), make(chan struct{})
		var calls atomic.Int32
		v := newView(c, func(patches []*v1alpha1.ResourceSlicePatch, class findClass, _ patchSet) patchSet {
			if calls.Add(1) == 2 {
				close(compiling)
				<-proceed
			}
			return valuesOf(patches, class)
		})
		require.Equal(t, map[string]string{"a": "x"}, seenBy(t, v))

		c.do(func(c *cluster) { c.patches["one"] = patch("one", 2, "y") })
		done := make(chan error, 1)
		go func() {
			_, err := v.Refresh()
			done <- err
		}()
		<-compiling
		c.do(func(c *cluster) { c.slices["b"] = slice("b", "one") })
		require.Equal(t, map[string]string{"a": "x", "b": "x"}, seenBy(t, v))
		close(proceed)
		require.NoError(t, <-done)
		require.Equal(t, map[string]string{"a": "y", "b": "y"}, seenBy(t, v))
	})
}

func TestRefreshOfView(t *testing.T) {
	t.Parallel()
	const old, changed = "old", "new"
	tests := map[string]struct {
		change func(*cluster)
		want   bool
		sees   string
	}{
		"finds a spec that changed": {
			change: func(c *cluster) { c.patches["one"] = patch("one", 2, changed) },
			want:   true, sees: changed,
		},
		"finds a successor of the same name and generation": {
			change: func(c *cluster) {
				c.patches["one"] = patch("one", 1, changed)
				c.patches["one"].UID = types.UID("another")
			},
			want: true, sees: changed,
		},
		"finds that a patch went": {
			change: func(c *cluster) { delete(c.patches, "one") },
			want:   true, sees: "",
		},
		"finds a patch that came": {
			change: func(c *cluster) { c.patches["two"] = patch("two", 1, changed) },
			want:   true, sees: old,
		},
		"leaves out what was written into the status": {
			change: func(c *cluster) {
				c.patches["one"] = patch("one", 1, old)
				c.patches["one"].ResourceVersion = "2"
			},
			sees: old,
		},
		"finds nothing where nothing changed": {
			change: func(*cluster) {}, sees: old,
		},
		"leaves out classes that no patch filters by": {
			change: func(c *cluster) { c.classes["fast"] = class("fast", "1", changed) },
			sees:   old,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster()
			c.do(func(c *cluster) {
				c.slices["a"] = slice("a", "one")
				c.patches["one"] = patch("one", 1, old)
			})
			v := newView(c, compile)
			require.True(t, refresh(t, v), "the first finds the patches")
			require.Equal(t, map[string]string{"a": old}, seenBy(t, v))

			c.do(test.change)
			require.Equal(t, map[string]string{"a": old}, seenBy(t, v), "before the refresh")
			require.Equal(t, test.want, refresh(t, v))
			require.Equal(t, map[string]string{"a": test.sees}, seenBy(t, v))
			require.False(t, refresh(t, v), "nothing more")
		})
	}
}

func TestRefreshOfViewFollowsClasses(t *testing.T) {
	t.Parallel()
	c := newCluster()
	c.do(func(c *cluster) {
		c.slices["a"] = slice("a", "one")
		c.patches["one"] = ofClass(patch("one", 1, "own"), "fast")
	})
	v := newView(c, compile)
	require.True(t, refresh(t, v))
	require.Equal(t, map[string]string{"a": ""}, seenBy(t, v), "no such class")

	c.do(func(c *cluster) { c.classes["fast"] = class("fast", "1", "x") })
	require.True(t, refresh(t, v), "the class came")
	require.Equal(t, map[string]string{"a": "x"}, seenBy(t, v))

	c.do(func(c *cluster) { c.classes["fast"] = class("fast", "1", "x") })
	require.False(t, refresh(t, v), "the classes were listed anew")

	c.do(func(c *cluster) { c.classes["fast"] = class("fast", "2", "y") })
	require.True(t, refresh(t, v), "the class changed")
	require.Equal(t, map[string]string{"a": "y"}, seenBy(t, v))

	c.do(func(c *cluster) { delete(c.classes, "fast") })
	require.True(t, refresh(t, v), "the class went")
	require.Equal(t, map[string]string{"a": ""}, seenBy(t, v))
}

// counting counts how often slices are patched.
type counting struct {
	values
	applied *atomic.Int32
}

func (c counting) Apply(slice *resourcev1.ResourceSlice, earlier sliceview.Patched) sliceview.Patched {
	c.applied.Add(1)
	return c.values.Apply(slice, earlier)
}

func TestViewPatchesASliceOnce(t *testing.T) {
	t.Parallel()
	var applied atomic.Int32
	c := newCluster()
	c.do(func(c *cluster) {
		for i := range 100 {
			name := strconv.Itoa(i)
			c.slices[name] = slice(name, "one")
		}
		c.patches["one"] = patch("one", 1, "x")
	})
	v := newView(c, func(patches []*v1alpha1.ResourceSlicePatch, class findClass, _ patchSet) patchSet {
		return counting{values: valuesOf(patches, class), applied: &applied}
	})
	refresh(t, v)
	require.EqualValues(t, 100, applied.Load(), "in the refresh, not in the list")
	seenBy(t, v)
	seenBy(t, v)
	require.EqualValues(t, 100, applied.Load())

	// More than are remembered, so that dropping results is in it too.
	for i := range 500 {
		c.do(func(c *cluster) { c.slices["0"] = slice("0", "one") })
		seenBy(t, v)
		require.EqualValues(t, 101+i, applied.Load(), "only the slice that changed")
	}
}

// What a list gives is what the patches of the last refresh make of the slices of now,
// whatever came before and whoever lists meanwhile.
func TestModelOfView(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	c := newCluster()
	v := newView(c, compile)

	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = v.ListWithDeviceTaintRules()
				}
			}
		})
	}
	refresh(t, v)
	set := values{}
	for step := range 5000 {
		name := string(rune('a' + random.IntN(6)))
		switch random.IntN(8) {
		case 0, 1:
			c.do(func(c *cluster) { c.slices[name] = slice(name, "driver-"+string(rune('a'+random.IntN(3)))) })
		case 2:
			c.do(func(c *cluster) { delete(c.slices, name) })
		case 3:
			driver := "driver-" + string(rune('a'+random.IntN(3)))
			made := patch(driver, int64(step), strconv.Itoa(step))
			if random.IntN(2) == 0 {
				made = ofClass(made, "class-"+string(rune('a'+random.IntN(2))))
			}
			c.do(func(c *cluster) { c.patches[driver] = made })
		case 4:
			c.do(func(c *cluster) { delete(c.patches, "driver-"+string(rune('a'+random.IntN(3)))) })
		case 5:
			name := "class-" + string(rune('a'+random.IntN(2)))
			c.do(func(c *cluster) {
				if random.IntN(3) == 0 {
					delete(c.classes, name)
				} else {
					c.classes[name] = class(name, strconv.Itoa(step), fmt.Sprint("class ", step))
				}
			})
		default:
			refresh(t, v)
			set = valuesOf(c.List(), func(name string) *resourcev1.DeviceClass { return c.classes[name] })
		}
		var want []*resourcev1.ResourceSlice
		for _, slice := range slices.Collect(maps.Values(c.slices)) {
			want = append(want, set.Apply(slice, sliceview.Patched{}).Slice)
		}
		require.Equal(t, attributes(want), seenBy(t, v), "step %d", step)
	}
	close(stop)
	readers.Wait()
}

// remembering remembers what it was applied to.
type remembering struct{ values }

func (r remembering) Apply(slice *resourcev1.ResourceSlice, earlier sliceview.Patched) sliceview.Patched {
	before, _ := earlier.Memory.([]string)
	result := r.values.Apply(slice, earlier)
	result.Memory = append(slices.Clone(before), slice.Spec.Driver)
	if slice.Spec.Driver == "asks" {
		result.Slice = slice.DeepCopy()
		result.Slice.Labels = map[string]string{"before": fmt.Sprint(before)}
	}
	return result
}

func TestViewHandsOnWhatASetRemembers(t *testing.T) {
	t.Parallel()
	c := newCluster()
	c.do(func(c *cluster) {
		c.slices["a"] = slice("a", "one")
		c.patches["one"] = patch("one", 1, "x")
	})
	v := newView(c, func(patches []*v1alpha1.ResourceSlicePatch, class findClass, _ patchSet) patchSet {
		return remembering{valuesOf(patches, class)}
	})
	refresh(t, v)
	c.do(func(c *cluster) { c.slices["a"] = slice("a", "two") })
	seenBy(t, v)
	c.do(func(c *cluster) { c.patches["one"] = patch("one", 2, "x") })
	refresh(t, v)
	c.do(func(c *cluster) { c.slices["a"] = slice("a", "asks") })
	listed, err := v.ListWithDeviceTaintRules()
	require.NoError(t, err)
	require.Equal(t, "[one two two]", listed[0].Labels["before"], "from list to list, and from set to set")
}
