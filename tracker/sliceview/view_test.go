package sliceview_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	resourcelisters "k8s.io/client-go/listers/resource/v1"

	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

var _ resourcelisters.ResourceSliceLister = sliceview.New().Lister()

func TestMerging(t *testing.T) {
	t.Parallel()

	t.Run("TR-01 a driver's own taints come first, then those of the rules, by name of the rule", func(t *testing.T) {
		t.Parallel()
		v := sliceview.New()
		v.SetRule(rule("c", only("d", "p", "-")))
		v.SetRule(rule("a", every()))
		v.SetRule(rule("b", only("-", "-", "gpu-1")))
		v.SetSlice(slice("s", dev("gpu-0", taint("own-z"), taint("own-a")), dev("gpu-1"), dev("gpu-2")))
		s, found := v.Get("s")
		require.True(t, found)
		require.Equal(t, []string{"gpu-0 own-z own-a a c", "gpu-1 a b c", "gpu-2 a c"}, described(s))
	})

	t.Run("TR-02 K10 no selector selects nothing, an empty one all, and an empty name nothing", func(t *testing.T) {
		t.Parallel()
		v := sliceview.New()
		v.SetSlice(slice("s", dev("gpu-0")))
		v.SetSlice(slice("t", in("other", "q"), dev("gpu-1")))
		v.SetRule(rule("none", nil))
		v.SetRule(rule("driver", only("", "-", "-")))
		v.SetRule(rule("pool", only("-", "", "-")))
		v.SetRule(rule("device", only("-", "-", "")))
		require.Equal(t, map[string][]string{"s": {"gpu-0"}, "t": {"gpu-1"}}, contents(v.List()))
		v.SetRule(rule("all", every()))
		require.Equal(t, map[string][]string{"s": {"gpu-0 all"}, "t": {"gpu-1 all"}}, contents(v.List()))
	})

	t.Run("TR-01 criteria are exact and all of them count", func(t *testing.T) {
		t.Parallel()
		v := sliceview.New()
		v.SetSlice(slice("s", in("d", "p"), dev("x"), dev("y")))
		v.SetSlice(slice("t", in("d", "q"), dev("x")))
		v.SetSlice(slice("u", in("e", "p"), dev("x"), dev("X")))
		v.SetRule(rule("1", only("d", "-", "-")))
		v.SetRule(rule("2", only("-", "p", "-")))
		v.SetRule(rule("3", only("-", "-", "x")))
		v.SetRule(rule("4", only("d", "p", "x")))
		v.SetRule(rule("5", only("e", "-", "X")))
		v.SetRule(rule("6", only("-", "q", "x")))
		require.Equal(t, map[string][]string{
			"s": {"x 1 2 3 4", "y 1 2"}, "t": {"x 1 3 6"}, "u": {"x 2 3", "X 2 5"},
		}, contents(v.List()))
	})

	t.Run("TR-03 K03 no effect is left out, nothing is dropped as a duplicate, and there is no limit", func(t *testing.T) {
		t.Parallel()
		v := sliceview.New()
		own := make([]resourcev1.DeviceTaint, 16)
		for i := range own {
			own[i] = taint("k")
		}
		v.SetSlice(slice("s", dev("gpu", own...)))
		expected := own
		for _, effect := range []resourcev1.DeviceTaintEffect{"NoExecute", "NoSchedule", "None", "FromTheFuture", ""} {
			added := resourcev1.DeviceTaint{Key: "k", Value: "v", Effect: effect}
			v.SetRule(ruleWith("rule"+string(effect)+"a", every(), added))
			v.SetRule(ruleWith("rule"+string(effect)+"b", every(), added))
		}
		for _, effect := range []resourcev1.DeviceTaintEffect{"FromTheFuture", "NoExecute", "NoSchedule", "None", ""} {
			added := resourcev1.DeviceTaint{Key: "k", Value: "v", Effect: effect}
			expected = append(expected, added, added)
		}
		s, _ := v.Get("s")
		require.Equal(t, expected, s.Spec.Devices[0].Taints)
		require.Len(t, own, 16)
	})

	t.Run("TR-07 a slice that no rule selects is the very object of the informer", func(t *testing.T) {
		t.Parallel()
		v := sliceview.New()
		s := slice("s", dev("gpu-0", taint("own")))
		v.SetSlice(s)
		v.SetRule(rule("elsewhere", only("e", "-", "-")))
		v.SetRule(rule("another", only("d", "p", "gpu-7")))
		v.SetRule(rule("none", nil))
		got, err := v.Lister().Get("s")
		require.NoError(t, err)
		require.Same(t, s, got)
	})

	t.Run("TR-07 the informer's object is not written to, and all but the taints is shared", func(t *testing.T) {
		t.Parallel()
		v := sliceview.New()
		roomy := append(make([]resourcev1.DeviceTaint, 0, 8), taint("own"))
		s := slice("s", dev("gpu-0", roomy...), dev("gpu-1"), dev("gpu-2"))
		s.Spec.Devices[0].Taints = roomy
		before := s.DeepCopy()
		v.SetSlice(s)
		v.SetRule(rule("r", every()))
		v.SetRule(rule("q", only("d", "p", "gpu-2")))
		got, _ := v.Get("s")
		require.Equal(t, before, s)
		require.Empty(t, roomy[:2][1])
		s.Spec.Devices[0].Attributes["shared"] = resourcev1.DeviceAttribute{}
		require.Contains(t, got.Spec.Devices[0].Attributes, resourcev1.QualifiedName("shared"))
		require.Equal(t, []string{"gpu-0 own r", "gpu-1 r", "gpu-2 q r"}, described(got))
	})

	t.Run("TR-08 without rules every slice is passed through", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := &world{tb: t, slices: newSliceSource(), view: sliceview.New()}
			require.NoError(t, w.view.Attach(w.slices, nil))
			w.run(t.Context())
			r := w.subscribe()
			s := slice("s", dev("gpu-0", taint("own")))
			w.slices.set(t, s)
			require.False(t, w.view.HasSynced())
			close(w.slices.synced)
			require.Equal(t, []string{"initial s [gpu-0 own]"}, r.told())
			require.True(t, w.view.HasSynced())
			require.Same(t, s, r.held["s"])
			require.Same(t, s, w.view.List()[0])
		})
	})

	t.Run("K08 taints without a time are merged and compared", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t).synced()
			timeless := resourcev1.DeviceTaint{Key: "k", Effect: resourcev1.DeviceTaintEffectNoExecute}
			w.slices.set(t, slice("s", dev("gpu-0", timeless)))
			r := w.subscribe()
			require.Equal(t, []string{"initial s [gpu-0 k]"}, r.told())
			w.rules.set(t, ruleWith("r", every(), timeless))
			require.Equal(t, []string{"update s [gpu-0 k k]"}, r.told())
			w.rules.set(t, ruleWith("r", every(), timeless))
			require.Empty(t, r.told())
			timed := timeless
			timed.TimeAdded = new(metav1.NewTime(start))
			w.rules.set(t, ruleWith("r", every(), timed))
			require.Equal(t, []string{"update s [gpu-0 k k]"}, r.told())
			later := timeless
			later.TimeAdded = new(metav1.NewTime(start.Add(time.Second)))
			w.rules.set(t, ruleWith("r", every(), later))
			require.Equal(t, []string{"update s [gpu-0 k k]"}, r.told())
			w.rules.set(t, ruleWith("r", every(), timeless))
			require.Equal(t, []string{"update s [gpu-0 k k]"}, r.told())
		})
	})

	t.Run("K09 every generation is merged, and pools of two drivers are two", func(t *testing.T) {
		t.Parallel()
		v := sliceview.New()
		v.SetSlice(slice("old", generation(3), dev("gpu-0")))
		v.SetSlice(slice("new", generation(4), dev("gpu-0"), dev("gpu-1")))
		v.SetSlice(slice("other", in("e", "p"), dev("gpu-0")))
		v.SetRule(rule("r", only("d", "p", "gpu-0")))
		require.Equal(t, map[string][]string{"old": {"gpu-0 r"}, "new": {"gpu-0 r", "gpu-1"}, "other": {"gpu-0"}}, contents(v.List()))
		v.SetSlice(slice("new", generation(2), dev("gpu-1"), dev("gpu-0")))
		require.Equal(t, map[string][]string{"old": {"gpu-0 r"}, "new": {"gpu-1", "gpu-0 r"}, "other": {"gpu-0"}}, contents(v.List()))
	})
}

func TestLister(t *testing.T) {
	t.Parallel()
	v := sliceview.New()
	v.SetSlice(slice("b", labelled("zone", "1"), dev("gpu-0")))
	v.SetSlice(slice("a", labelled("zone", "2"), dev("gpu-0")))
	v.SetSlice(slice("c", labelled("zone", "1"), dev("gpu-0")))
	v.SetRule(rule("r", every()))

	t.Run("slices come by name, and by their labels", func(t *testing.T) {
		t.Parallel()
		all, err := v.Lister().List(labels.Everything())
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b", "c"}, []string{all[0].Name, all[1].Name, all[2].Name})
		some, err := v.Lister().List(labels.SelectorFromSet(labels.Set{"zone": "1"}))
		require.NoError(t, err)
		require.Equal(t, map[string][]string{"b": {"gpu-0 r"}, "c": {"gpu-0 r"}}, contents(some))
	})

	t.Run("the list is the caller's", func(t *testing.T) {
		t.Parallel()
		all := v.List()
		clear(all)
		require.Len(t, contents(v.List()), 3)
	})

	t.Run("what is asked for twice is merged once", func(t *testing.T) {
		t.Parallel()
		once, _ := v.Get("a")
		require.Same(t, once, v.List()[0])
	})

	t.Run("a slice that is not there is not found", func(t *testing.T) {
		t.Parallel()
		_, err := v.Lister().Get("z")
		require.True(t, apierrors.IsNotFound(err))
	})
}
