package tracker_test

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// patch returns one of two patches, as it was created first or anew.
func (w *world) patch() tracker.PatchRef {
	return tracker.PatchRef{Name: "p" + strconv.Itoa(w.IntN(2)), UID: types.UID("u" + strconv.Itoa(w.IntN(2)))}
}

// checkPatches compares what the tracker says about patches with the model.
func (w *world) checkPatches(t *testing.T, what string) {
	t.Helper()
	patch := w.patch()
	var names []string
	all := map[tracker.PatchRef]struct{}{}
	for name, r := range w.model.rules {
		if r.Patch.Name == patch.Name {
			names = append(names, name)
		}
		if r.Patch != (tracker.PatchRef{}) {
			all[r.Patch] = struct{}{}
		}
	}
	slices.Sort(names)
	require.Equal(t, names, w.tracker.PatchRules(patch.Name), what)
	require.ElementsMatch(t, slices.Collect(maps.Keys(all)), w.tracker.Patches(), what)
	// The model works everything out for every pod, which takes its time.
	switch w.IntN(6) {
	case 0:
		w.checkPatchImpact(t, what, patch)
	case 1, 2:
		w.checkIfPatch(t, what, patch)
	}
}

func (w *world) checkPatchImpact(t *testing.T, what string, patch tracker.PatchRef) {
	t.Helper()
	effect := w.deviceTaint().Effect
	impact, ok := w.tracker.PatchImpact(patch, effect)
	require.Equal(t, w.model.devices, ok, what)
	if !ok {
		return
	}
	every := naive{slices: map[string]tracker.Slice{}, rules: map[string]tracker.Rule{}}
	alone := naive{claims: w.model.claims, rules: map[string]tracker.Rule{}, groups: w.model.groups, devices: true}
	for name, r := range w.model.rules {
		if r.Patch != patch {
			continue
		}
		every.rules[name] = r
		if r.Taint.Effect == effect {
			r.Taint.Effect = resourcev1.DeviceTaintEffectNoExecute
			alone.rules[name] = r
		}
	}
	var want, got []string
	for _, pod := range w.model.pods {
		if text := alone.situation(pod); text != "" {
			want = append(want, string(pod.UID)+" "+inOrder(text))
		}
	}
	for _, s := range impact.Pods {
		got = append(got, string(s.Pod.UID)+" "+inOrder(textOf(s)))
	}
	require.ElementsMatch(t, want, got, what)
	allocated, published := 0, 0
	for _, claim := range w.model.claims {
		for _, d := range claim.Devices {
			if len(every.taintsOf(d.ID)) > 0 {
				allocated++
			}
		}
	}
	for _, slice := range w.model.slices {
		for _, d := range slice.Devices {
			id := device.ID{Driver: slice.Driver, Pool: slice.Pool, Name: d.Name}
			if slice.Generation == w.model.newest(id) && len(every.taintsOf(id)) > 0 {
				published++
			}
		}
	}
	require.Equal(t, []int{allocated, published}, []int{impact.Allocated, impact.Published}, what)
}

// checkIfPatch compares what a patch would change with a model that has a rule for each
// device and taint of the patch, in the place of the rules that it has.
func (w *world) checkIfPatch(t *testing.T, what string, patch tracker.PatchRef) {
	t.Helper()
	p := tracker.PatchedTaints{Patch: patch}
	for range w.IntN(3) {
		p.Taints = append(p.Taints, w.deviceTaint())
	}
	for range w.IntN(3) {
		if r := w.rule(); r.Selects {
			p.Selectors = append(p.Selectors, r.Selector)
		}
	}
	foretold := w.tracker.IfPatch(p, start)
	if len(p.Selectors) == 0 {
		require.Equal(t, textOfChanges(foretold), textOfChanges(w.tracker.IfPatchDeleted(patch.Name)), what)
	}
	after := w.model
	after.rules = maps.Clone(w.model.rules)
	maps.DeleteFunc(after.rules, func(_ string, r tracker.Rule) bool { return r.Patch.Name == patch.Name })
	w.writeOut(&p, after.rules)

	want, got := map[tracker.Key]string{}, map[tracker.Key]string{}
	for key, text := range after.situations() {
		was := authors(w.model.situation(w.model.pods[string(key.UID)]), w.model.rules, patch)
		if is := authors(text, after.rules, patch); was != is {
			want[key] = was + " => " + is
		}
	}
	for _, change := range foretold {
		got[change.After.Pod.Key] = authors(textOf(change.Before), w.model.rules, patch) + " => " + authors(textOf(change.After), after.rules, patch)
	}
	require.Equal(t, want, got, what)
	require.Len(t, foretold, len(got), what)
}

// writeOut adds a rule for each device that a patch selects and each of its taints.
func (w *world) writeOut(p *tracker.PatchedTaints, rules map[string]tracker.Rule) {
	for i := range 4 * modelDevices {
		id := device.ID{Driver: "d" + strconv.Itoa(i%2), Pool: "p" + strconv.Itoa(i/2%2), Name: "x" + strconv.Itoa(i/4)}
		if !slices.ContainsFunc(p.Selectors, func(s device.Selector) bool { return s.Matches(id) }) {
			continue
		}
		selector, _ := device.SelectorOf(&resourcev1.DeviceTaintSelector{Driver: &id.Driver, Pool: &id.Pool, Device: &id.Name})
		for j, taint := range p.Taints {
			name := "written-" + strconv.Itoa(i) + "-" + strconv.Itoa(j)
			rules[name] = tracker.Rule{Name: name, Patch: p.Patch, Selector: selector, Selects: true, Taint: taint}
		}
	}
}

// authors returns a situation with the patches in the place of the rules that are written
// out for them, and the taints of a device in an order that does not depend on sources.
func authors(text string, rules map[string]tracker.Rule, patch tracker.PatchRef) string {
	parts := strings.Split(text, "; ")
	for i, part := range parts {
		head, list, ok := strings.Cut(part, "[")
		if !ok {
			continue
		}
		taints := strings.Split(strings.ReplaceAll(strings.TrimSuffix(list, "]"), " from ", "|"), " ")
		for j, taint := range taints {
			of, source, _ := strings.Cut(taint, "|")
			if r, ok := rules[strings.TrimPrefix(source, "devicetaintrule/")]; ok && r.Patch.Name != "" {
				source = "resourceslicepatch/" + r.Patch.Name + "/" + string(r.Patch.UID)
			} else if source == "resourceslicepatch/"+patch.Name {
				source += "/" + string(patch.UID)
			}
			taints[j] = of + "|" + source
		}
		slices.Sort(taints)
		parts[i] = head + strings.Join(taints, " ")
	}
	return strings.Join(parts, "; ")
}

func TestIfPatchTimes(t *testing.T) {
	t.Parallel()
	patch := tracker.PatchRef{Name: "gpu-broken", UID: "patch-uid"}
	all := &resourcev1.DeviceTaintSelector{Driver: new("d")}
	since := start.Add(-time.Hour)
	stamped := noExecute("k")
	stamped.TimeAdded = new(metav1.NewTime(since))
	world := func() *tracker.Tracker {
		tr := devicesKnown()
		tr.SetSlice(sliceOf("s", 1, 1, tracker.Device{Name: "a"}), start)
		tr.SetClaim(claimFor("c", 1, []string{"u"}, gpu("a")))
		tr.SetPod(user("u", 1, tracker.PodClaim{Name: "c"}))
		return tr
	}
	whole, _ := device.SelectorOf(all)
	write := func(tr *tracker.Tracker, of tracker.PatchRef, disguised bool) {
		object := &resourcev1.DeviceTaintRule{
			ObjectMeta: metav1.ObjectMeta{Name: "gpu-broken-1", UID: "rule-uid", ResourceVersion: "1"},
			Spec:       resourcev1.DeviceTaintRuleSpec{DeviceSelector: all, Taint: stamped},
		}
		if disguised {
			object.Spec.Taint.Effect = resourcev1.DeviceTaintEffectNoSchedule
		}
		writtenFor(object, of, disguised)
		tr.SetRule(tracker.RuleOf(object), start)
	}
	same := tracker.PatchedTaints{Patch: patch, Selectors: []device.Selector{whole}, Taints: []resourcev1.DeviceTaint{noExecute("k")}}
	same.Taints[0].TimeAdded = nil

	t.Run("a patch that is written out as it is changes nothing", func(t *testing.T) {
		t.Parallel()
		for _, disguised := range []bool{false, true} {
			tr := world()
			write(tr, patch, disguised)
			require.Empty(t, tr.IfPatch(same, start))
		}
	})
	t.Run("another value keeps the time and comes from the patch", func(t *testing.T) {
		t.Parallel()
		tr := world()
		write(tr, patch, true)
		other := same
		other.Taints = []resourcev1.DeviceTaint{{Key: "k", Value: "v", Effect: resourcev1.DeviceTaintEffectNoExecute}}
		changes := tr.IfPatch(other, start)
		require.Len(t, changes, 1)
		taint := changes[0].After.Devices[0].Taints[0]
		require.Equal(t, since, taint.TimeAdded)
		require.Equal(t, tracker.Source{Kind: tracker.SourcePatch, Name: "gpu-broken", UID: "patch-uid"}, taint.Source)
		require.Equal(t, start, taint.Changed)
	})
	t.Run("a patch that takes the name of another counts from now on", func(t *testing.T) {
		t.Parallel()
		tr := world()
		write(tr, tracker.PatchRef{Name: "gpu-broken", UID: "former"}, false)
		for _, uid := range []types.UID{"patch-uid", ""} {
			anew := same
			anew.Patch.UID = uid
			changes := tr.IfPatch(anew, start)
			require.Len(t, changes, 1)
			require.Len(t, changes[0].After.Devices[0].Taints, 1)
			require.Equal(t, start, changes[0].After.Devices[0].Taints[0].TimeAdded)
		}
	})
	t.Run("a patch whose name is not known yet leaves other rules alone", func(t *testing.T) {
		t.Parallel()
		tr := world()
		tr.SetRule(rule("other", 1, all, stamped), start)
		unnamed := same
		unnamed.Patch = tracker.PatchRef{}
		changes := tr.IfPatch(unnamed, start)
		require.Len(t, changes, 1)
		require.Len(t, changes[0].After.Devices[0].Taints, 2)
	})
	t.Run("one that is deleted takes the taints of its rules with it", func(t *testing.T) {
		t.Parallel()
		tr := world()
		write(tr, patch, true)
		changes := tr.IfPatchDeleted("gpu-broken")
		require.Len(t, changes, 1)
		require.Empty(t, changes[0].After.Devices)
		require.Empty(t, tr.IfPatchDeleted("other"))
	})
}

// TestIfPatchCost counts allocations, which do not depend on the machine: what a patch
// costs must not grow with what it does not touch.
func TestIfPatchCost(t *testing.T) {
	cost := func(slices, rules int) (ifPatch, impact float64) {
		tr := fleet(slices, rules)
		patch := tracker.PatchRef{Name: "p", UID: "u"}
		object := &resourcev1.DeviceTaintRule{
			ObjectMeta: metav1.ObjectMeta{Name: "p-1", UID: "p-1", ResourceVersion: "1"},
			Spec: resourcev1.DeviceTaintRuleSpec{
				DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: new("d"), Pool: new("p0"), Device: new("x0")}, Taint: noExecute("q"),
			},
		}
		writtenFor(object, patch, false)
		written := tracker.RuleOf(object)
		tr.SetRule(written, start)
		p := tracker.PatchedTaints{Patch: patch, Selectors: []device.Selector{written.Selector}, Taints: []resourcev1.DeviceTaint{noExecute("r")}}
		require.Len(t, tr.IfPatch(p, start), 1)
		found, _ := tr.PatchImpact(patch, resourcev1.DeviceTaintEffectNoExecute)
		require.Len(t, found.Pods, 1)
		require.Equal(t, 1, found.Published)
		return testing.AllocsPerRun(20, func() { tr.IfPatch(p, start) }),
			testing.AllocsPerRun(20, func() { tr.PatchImpact(patch, resourcev1.DeviceTaintEffectNoExecute) })
	}
	few, fewImpact := cost(1, 1)
	many, manyImpact := cost(1000, 1000)
	require.InDelta(t, few, many, 5)
	require.InDelta(t, fewImpact, manyImpact, 5)
}

// A patch may be written out by name for a hundred thousand devices.
func TestIfPatchOfManyDevices(t *testing.T) {
	t.Parallel()
	const pools = 1000
	tr := fleet(pools, 1)
	p := tracker.PatchedTaints{Patch: tracker.PatchRef{Name: "p", UID: "u"}, Taints: []resourcev1.DeviceTaint{noExecute("q")}}
	for i := range 100_000 {
		selector, _ := device.SelectorOf(&resourcev1.DeviceTaintSelector{
			Driver: new("d"), Pool: new("p" + strconv.Itoa(i%pools)), Device: new("x" + strconv.Itoa(i/pools)),
		})
		p.Selectors = append(p.Selectors, selector)
	}
	began := time.Now()
	require.Len(t, tr.IfPatch(p, start), pools)
	t.Logf("%d selectors took %v", len(p.Selectors), time.Since(began))
}
