package tracker_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

func deviceTaint(key string, effect resourcev1.DeviceTaintEffect) resourcev1.DeviceTaint {
	return resourcev1.DeviceTaint{Key: key, Effect: effect, TimeAdded: new(metav1.NewTime(start))}
}

func noExecute(key string) resourcev1.DeviceTaint {
	return deviceTaint(key, resourcev1.DeviceTaintEffectNoExecute)
}

// gpu is the device of pool p of driver d with that name.
func gpu(name string) device.ID {
	return device.ID{Driver: "d", Pool: "p", Name: name}
}

// sliceOf returns a slice of pool p of driver d.
func sliceOf(name string, generation int64, version int, devices ...tracker.Device) tracker.Slice {
	return tracker.Slice{
		Name: name, UID: types.UID(name + "-uid"), ResourceVersion: strconv.Itoa(version),
		Driver: "d", Pool: "p", Generation: generation, Devices: devices,
	}
}

// rule returns a rule; a nil selector selects nothing.
func rule(name string, version int, selector *resourcev1.DeviceTaintSelector, taint resourcev1.DeviceTaint) tracker.Rule {
	return tracker.RuleOf(&resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid"), ResourceVersion: strconv.Itoa(version)},
		Spec:       resourcev1.DeviceTaintRuleSpec{DeviceSelector: selector, Taint: taint},
	})
}

// claimFor returns a claim on devices that is reserved for pods.
func claimFor(name string, version int, pods []string, devices ...device.ID) tracker.Claim {
	c := tracker.Claim{
		ClaimName: tracker.ClaimName{Namespace: "default", Name: name}, UID: types.UID(name + "-uid"),
		ResourceVersion: strconv.Itoa(version), Allocated: true,
	}
	for _, id := range devices {
		c.Devices = append(c.Devices, tracker.AllocatedDevice{ID: id})
	}
	for _, name := range pods {
		c.Consumers = append(c.Consumers, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: name, UID: key(name).UID})
	}
	return c
}

// user returns a pod on a node that uses claims.
func user(name string, version int, claims ...tracker.PodClaim) tracker.Pod {
	p := pod(name, "n", version)
	p.Claims = claims
	return p
}

// devicesKnown returns a tracker that has been given all devices.
func devicesKnown() *tracker.Tracker {
	tr := tracker.New()
	tr.SetDevicesKnown(true)
	return tr
}

// held returns the taints that hold for a pod through its devices.
func held(tr *tracker.Tracker, name string) []string {
	situation, _ := tr.Lookup(key(name))
	var all []string
	for _, d := range situation.Devices {
		for _, taint := range d.Taints {
			all = append(all, d.ID.Name+" "+taint.String()+" "+taint.Source.Name)
		}
	}
	return all
}

func TestClaimsOfPods(t *testing.T) {
	t.Parallel()
	direct := tracker.PodClaim{Name: "c"}
	generated := tracker.PodClaim{Name: "c", Generated: true}
	ownedBy := func(owner *metav1.OwnerReference) func(*tracker.Claim) {
		return func(c *tracker.Claim) { c.Controller = owner }
	}
	group := resourcev1.ResourceClaimConsumerReference{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "g", UID: "g-uid"}
	reservedForGroup := func(c *tracker.Claim) { c.Consumers = []resourcev1.ResourceClaimConsumerReference{group} }
	inGroup := func(p *tracker.Pod) { p.PodGroup = "g" }
	for _, test := range []struct {
		name   string
		pod    tracker.Pod
		change func(*tracker.Pod)
		claim  func(*tracker.Claim)
		groups bool
		want   bool
	}{
		{name: "DE-06 a claim that the pod refers to and that is reserved for it", pod: user("a", 1, direct), want: true},
		{
			name: "DE-06 a claim that is not reserved for the pod", pod: user("a", 1, direct),
			claim: func(c *tracker.Claim) { c.Consumers = nil },
		},
		{
			name: "DE-06 a claim that is reserved for a pod of the same name that was there before", pod: user("a", 1, direct),
			claim: func(c *tracker.Claim) { c.Consumers[0].UID = "before" },
		},
		{
			name: "DE-06 G11 one of several reservations is enough", pod: user("a", 1, direct), want: true,
			claim: func(c *tracker.Claim) {
				c.Consumers = append([]resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "b", UID: "b-uid"}}, c.Consumers...)
			},
		},
		{name: "DE-07 a claim that is reserved for a pod that does not refer to it", pod: user("a", 1)},
		{
			name: "DE-06 a claim that is not allocated", pod: user("a", 1, direct),
			claim: func(c *tracker.Claim) { c.Allocated, c.Devices = false, nil },
		},
		{
			name: "DE-03 a pod without a node", pod: user("a", 1, direct),
			change: func(p *tracker.Pod) { p.NodeName = "" },
		},
		{
			name: "DE-05 a claim that was generated for the pod", pod: user("a", 1, generated), want: true,
			claim: ownedBy(&metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "a", UID: key("a").UID}),
		},
		{
			name: "DE-05 a claim that was generated for another pod", pod: user("a", 1, generated),
			claim: ownedBy(&metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "a", UID: "before"}),
		},
		{name: "DE-05 a claim of the name of a generated one, that nobody owns", pod: user("a", 1, generated)},
		{
			name: "DE-08 a claim that is reserved for the pod's group", pod: user("a", 1, direct), want: true, groups: true,
			change: inGroup, claim: reservedForGroup,
		},
		{
			name: "DE-09 the same where the API has no pod groups", pod: user("a", 1, direct),
			change: inGroup, claim: reservedForGroup,
		},
		{
			name: "DE-08 a claim that is reserved for another group", pod: user("a", 1, direct), groups: true,
			change: func(p *tracker.Pod) { p.PodGroup = "h" }, claim: reservedForGroup,
		},
		{
			name: "DE-08 a claim that is reserved for an object of that name of another API group", pod: user("a", 1, direct), groups: true,
			change: inGroup,
			claim: func(c *tracker.Claim) {
				other := group
				other.APIGroup = "example.com"
				c.Consumers = []resourcev1.ResourceClaimConsumerReference{other}
			},
		},
		{
			name: "DE-08 a claim that was generated for the pod's group, by whatever version of its API", pod: user("a", 1, generated), want: true, groups: true,
			change: inGroup,
			claim: func(c *tracker.Claim) {
				reservedForGroup(c)
				c.Controller = &metav1.OwnerReference{APIVersion: "scheduling.k8s.io/v1alpha9", Kind: "PodGroup", Name: "g", UID: "g-uid"}
			},
		},
		{
			name: "DE-08 a claim that was generated for a PodGroup of another API", pod: user("a", 1, generated), groups: true,
			change: inGroup,
			claim: func(c *tracker.Claim) {
				reservedForGroup(c)
				c.Controller = &metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "PodGroup", Name: "g", UID: "g-uid"}
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			tr := devicesKnown()
			tr.SetPodGroups(test.groups)
			tr.SetSlice(sliceOf("s", 1, 1, tracker.Device{Name: "x", Taints: []resourcev1.DeviceTaint{noExecute("k")}}), start)
			c := claimFor("c", 1, []string{"a"}, gpu("x"))
			if test.claim != nil {
				test.claim(&c)
			}
			if test.change != nil {
				test.change(&test.pod)
			}
			tr.SetClaim(c)
			tr.SetPod(test.pod)
			require.Equal(t, test.want, len(held(tr, "a")) == 1)
			require.Equal(t, test.want, slices.Contains(tr.PodsUsing(gpu("x")), key("a")))
			require.Equal(t, test.want, slices.Contains(tr.Exposed(), key("a")))
		})
	}
}

func TestPodOfClaims(t *testing.T) {
	t.Parallel()
	claims := func(spec []corev1.PodResourceClaim, status corev1.PodStatus) []tracker.PodClaim {
		return tracker.PodOf(&corev1.Pod{Spec: corev1.PodSpec{ResourceClaims: spec}, Status: status}).Claims
	}
	direct := corev1.PodResourceClaim{Name: "ref", ResourceClaimName: new("c")}
	template := corev1.PodResourceClaim{Name: "ref", ResourceClaimTemplateName: new("t")}
	status := func(name *string) corev1.PodStatus {
		return corev1.PodStatus{ResourceClaimStatuses: []corev1.PodResourceClaimStatus{
			{Name: "another", ResourceClaimName: new("b")}, {Name: "ref", ResourceClaimName: name},
		}}
	}
	t.Run("DE-04 a claim that is named", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []tracker.PodClaim{{Name: "c"}}, claims([]corev1.PodResourceClaim{direct}, corev1.PodStatus{}))
	})
	t.Run("DE-04 a claim from a template, by the status of the pod", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []tracker.PodClaim{{Name: "made", Generated: true}}, claims([]corev1.PodResourceClaim{template}, status(new("made"))))
	})
	t.Run("DE-04 a claim from a template that was not created yet", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, claims([]corev1.PodResourceClaim{template}, corev1.PodStatus{}))
	})
	t.Run("DE-04 a claim from a template that turned out not to be needed", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, claims([]corev1.PodResourceClaim{template}, status(nil)))
	})
	t.Run("DE-10 the claim behind extended resources", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []tracker.PodClaim{{Name: "extended", Generated: true}},
			claims(nil, corev1.PodStatus{ExtendedResourceClaimStatus: &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "extended"}}))
	})
}

func TestSlices(t *testing.T) {
	t.Parallel()
	tainted := tracker.Device{Name: "x", Taints: []resourcev1.DeviceTaint{noExecute("k")}}
	withUser := func() *tracker.Tracker {
		tr := devicesKnown()
		tr.SetClaim(claimFor("c", 1, []string{"a"}, gpu("x")))
		tr.SetPod(user("a", 1, tracker.PodClaim{Name: "c"}))
		return tr
	}

	t.Run("DE-16 only slices of the newest generation of their pool count", func(t *testing.T) {
		t.Parallel()
		tr := withUser()
		require.Equal(t, keysOf("a"), tr.SetSlice(sliceOf("s", 1, 1, tainted), start))
		require.Equal(t, []string{"x k:NoExecute s"}, held(tr, "a"))
		require.Equal(t, keysOf("a"), tr.SetSlice(sliceOf("t", 2, 1, tracker.Device{Name: "x"}), start))
		require.Empty(t, held(tr, "a"))
		require.Empty(t, tr.SetSlice(sliceOf("s", 1, 2, tracker.Device{Name: "x", Taints: []resourcev1.DeviceTaint{noExecute("other")}}), start))
		require.Empty(t, held(tr, "a"))
	})
	t.Run("DE-17 G12 a new generation counts from its first slice on, and its taints as they come", func(t *testing.T) {
		t.Parallel()
		tr := withUser()
		tr.SetSlice(sliceOf("s", 1, 1, tainted), start)
		require.Equal(t, keysOf("a"), tr.SetSlice(sliceOf("t", 2, 1, tracker.Device{Name: "y"}), start))
		require.Empty(t, held(tr, "a"))
		require.Equal(t, keysOf("a"), tr.SetSlice(sliceOf("u", 2, 1, tainted), start.Add(time.Hour)))
		situation, _ := tr.Lookup(key("a"))
		require.Equal(t, start, situation.Devices[0].Taints[0].TimeAdded, "the taint is as old as it says")
	})
	t.Run("DE-18 when the newest slices go, the ones before count again", func(t *testing.T) {
		t.Parallel()
		tr := withUser()
		tr.SetSlice(sliceOf("s", 1, 1, tainted), start)
		tr.SetSlice(sliceOf("t", 2, 1), start)
		require.Empty(t, held(tr, "a"))
		require.Equal(t, keysOf("a"), tr.DeleteSlice("t", "t-uid"))
		require.Equal(t, []string{"x k:NoExecute s"}, held(tr, "a"))
	})
	t.Run("DE-22 G13 a slice that goes takes its taints with it", func(t *testing.T) {
		t.Parallel()
		tr := withUser()
		tr.SetSlice(sliceOf("s", 1, 1, tainted), start)
		require.Empty(t, tr.DeleteSlice("s", "another"))
		require.Equal(t, keysOf("a"), tr.DeleteSlice("s", "s-uid"))
		require.Empty(t, held(tr, "a"))
	})
	t.Run("DE-32 what happens to other devices of the slice concerns nobody", func(t *testing.T) {
		t.Parallel()
		tr := withUser()
		tr.SetSlice(sliceOf("s", 1, 1, tainted), start)
		other := tracker.Device{Name: "y", Taints: []resourcev1.DeviceTaint{noExecute("k")}}
		require.Empty(t, tr.SetSlice(sliceOf("s", 1, 2, other, tainted), start))
	})
	t.Run("DE-32 a new value or time of a taint concerns its pods", func(t *testing.T) {
		t.Parallel()
		tr := withUser()
		tr.SetSlice(sliceOf("s", 1, 1, tainted), start)
		changed := noExecute("k")
		changed.Value = "v"
		require.Equal(t, keysOf("a"), tr.SetSlice(sliceOf("s", 1, 2, tracker.Device{Name: "x", Taints: []resourcev1.DeviceTaint{changed}}), start))
		changed.TimeAdded = new(metav1.NewTime(start.Add(time.Second)))
		require.Equal(t, keysOf("a"), tr.SetSlice(sliceOf("s", 1, 3, tracker.Device{Name: "x", Taints: []resourcev1.DeviceTaint{changed}}), start))
	})
	t.Run("DE-02 only NoExecute concerns pods", func(t *testing.T) {
		t.Parallel()
		tr := withUser()
		for i, effect := range []resourcev1.DeviceTaintEffect{resourcev1.DeviceTaintEffectNone, resourcev1.DeviceTaintEffectNoSchedule, "Unknown"} {
			d := tracker.Device{Name: "x", Taints: []resourcev1.DeviceTaint{deviceTaint("k", effect)}}
			require.Empty(t, tr.SetSlice(sliceOf("s", 1, i+1, d), start))
			require.Empty(t, held(tr, "a"))
			require.Len(t, tr.DeviceTaints(gpu("x")), 1)
		}
	})
	t.Run("I08 an older version of a slice changes nothing", func(t *testing.T) {
		t.Parallel()
		tr := withUser()
		tr.SetSlice(sliceOf("s", 1, 5, tainted), start)
		require.Empty(t, tr.SetSlice(sliceOf("s", 1, 4), start))
		require.Len(t, held(tr, "a"), 1)
	})
	t.Run("DE-30 K08 a taint without a time counts from when it was first seen, in whichever slice", func(t *testing.T) {
		t.Parallel()
		tr := withUser()
		timeless := tracker.Device{Name: "x", Taints: []resourcev1.DeviceTaint{{Key: "k", Effect: resourcev1.DeviceTaintEffectNoExecute}}}
		tr.SetSlice(sliceOf("s", 1, 1, timeless), start)
		tr.SetSlice(sliceOf("s", 1, 2, timeless), start.Add(time.Minute))
		tr.SetSlice(sliceOf("t", 2, 1, timeless), start.Add(time.Hour))
		situation, _ := tr.Lookup(key("a"))
		require.Equal(t, start, situation.Devices[0].Taints[0].TimeAdded)
		require.False(t, situation.Devices[0].Taints[0].Stamped)
	})
	t.Run("K03 duplicates of key and effect are all kept, from one slice and from rules, in order", func(t *testing.T) {
		t.Parallel()
		tr := withUser()
		first, second := noExecute("k"), noExecute("k")
		second.Value = "2"
		tr.SetRule(rule("b", 1, &resourcev1.DeviceTaintSelector{Driver: new("d")}, noExecute("k")), start)
		tr.SetRule(rule("a", 1, &resourcev1.DeviceTaintSelector{}, noExecute("k")), start)
		tr.SetSlice(sliceOf("s", 1, 1, tracker.Device{Name: "x", Taints: []resourcev1.DeviceTaint{first, second, first}}), start)
		require.Equal(t, []string{"x k:NoExecute s", "x k=2:NoExecute s", "x k:NoExecute s", "x k:NoExecute a", "x k:NoExecute b"}, held(tr, "a"))
	})
	t.Run("K09 pools of the same name of two drivers are two pools", func(t *testing.T) {
		t.Parallel()
		tr := withUser()
		other := sliceOf("o", 9, 1, tainted)
		other.Driver = "e"
		tr.SetSlice(other, start)
		tr.SetSlice(sliceOf("s", 1, 1, tainted), start)
		require.Equal(t, []string{"x k:NoExecute s"}, held(tr, "a"))
	})
	t.Run("K05 names are never joined, so none can be taken for another", func(t *testing.T) {
		t.Parallel()
		tr := devicesKnown()
		id := device.ID{Driver: "d", Pool: "p/q", Name: "x"}
		tr.SetClaim(claimFor("c", 1, []string{"a"}, id))
		tr.SetPod(user("a", 1, tracker.PodClaim{Name: "c"}))
		other := sliceOf("s", 1, 1, tracker.Device{Name: "q/x", Taints: []resourcev1.DeviceTaint{noExecute("k")}})
		require.Empty(t, tr.SetSlice(other, start))
		require.Empty(t, held(tr, "a"))
	})
	t.Run("DE-53 no taint of a device holds before all devices are known", func(t *testing.T) {
		t.Parallel()
		tr := tracker.New()
		tr.SetSlice(sliceOf("s", 1, 1, tainted), start)
		tr.SetClaim(claimFor("c", 1, []string{"a"}, gpu("x")))
		tr.SetPod(user("a", 1, tracker.PodClaim{Name: "c"}))
		require.Empty(t, held(tr, "a"))
		_, known := tr.Untolerated(nil, start)
		require.False(t, known)
		require.Equal(t, keysOf("a"), tr.SetDevicesKnown(true))
		require.Len(t, held(tr, "a"), 1)
		require.Equal(t, keysOf("a"), tr.SetDevicesKnown(false))
		require.Empty(t, held(tr, "a"))
	})
	t.Run("what is let go leaves nothing behind", func(t *testing.T) {
		t.Parallel()
		tr := withUser()
		tr.SetSlice(sliceOf("s", 1, 1, tainted), start)
		tr.SetRule(rule("r", 1, &resourcev1.DeviceTaintSelector{}, noExecute("k")), start)
		tr.DeletePod(key("a"))
		tr.DeleteClaim(tracker.ClaimName{Namespace: "default", Name: "c"}, "c-uid")
		tr.DeleteSlice("s", "s-uid")
		tr.DeleteRule("r", "r-uid")
		require.Equal(t, fmt.Sprintf("%+v", devicesKnown()), fmt.Sprintf("%+v", tr))
	})
}

func TestRules(t *testing.T) {
	t.Parallel()
	everything := &resourcev1.DeviceTaintSelector{}
	withUser := func() *tracker.Tracker {
		tr := devicesKnown()
		tr.SetClaim(claimFor("c", 1, []string{"a"}, gpu("x")))
		tr.SetPod(user("a", 1, tracker.PodClaim{Name: "c"}))
		return tr
	}
	for _, test := range []struct {
		name     string
		selector *resourcev1.DeviceTaintSelector
		want     bool
	}{
		{"DE-20 no selector selects nothing", nil, false},
		{"DE-20 the empty selector selects everything", everything, true},
		{"DE-20 by driver", &resourcev1.DeviceTaintSelector{Driver: new("d")}, true},
		{"DE-20 by another driver", &resourcev1.DeviceTaintSelector{Driver: new("e")}, false},
		{"DE-20 by pool", &resourcev1.DeviceTaintSelector{Pool: new("p")}, true},
		{"DE-20 by device", &resourcev1.DeviceTaintSelector{Device: new("x")}, true},
		{"DE-20 by all three", &resourcev1.DeviceTaintSelector{Driver: new("d"), Pool: new("p"), Device: new("x")}, true},
		{"DE-20 all that is asked for has to be so", &resourcev1.DeviceTaintSelector{Driver: new("d"), Pool: new("q"), Device: new("x")}, false},
		{"DE-14 names are compared byte by byte", &resourcev1.DeviceTaintSelector{Driver: new("D")}, false},
		{"K10 an empty name is no device's", &resourcev1.DeviceTaintSelector{Driver: new("")}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			tr := withUser()
			named := tr.SetRule(rule("r", 1, test.selector, noExecute("k")), start)
			require.Equal(t, test.want, len(named) == 1, "named")
			require.Equal(t, test.want, len(held(tr, "a")) == 1, "DE-19 no slice is needed")
		})
	}

	t.Run("DE-22 a rule that is deleted, or made harmless, takes its taint with it", func(t *testing.T) {
		t.Parallel()
		tr := withUser()
		tr.SetRule(rule("r", 1, everything, noExecute("k")), start)
		require.Equal(t, keysOf("a"), tr.SetRule(rule("r", 2, everything, deviceTaint("k", resourcev1.DeviceTaintEffectNone)), start))
		require.Empty(t, held(tr, "a"))
		require.Equal(t, keysOf("a"), tr.SetRule(rule("r", 3, everything, noExecute("k")), start))
		require.Empty(t, tr.DeleteRule("r", "another"))
		require.Equal(t, keysOf("a"), tr.DeleteRule("r", "r-uid"))
		require.Empty(t, held(tr, "a"))
	})
	t.Run("DE-37 a new key counts from the old time", func(t *testing.T) {
		t.Parallel()
		tr := withUser()
		tr.SetRule(rule("r", 1, everything, noExecute("k")), start)
		require.Equal(t, keysOf("a"), tr.SetRule(rule("r", 2, everything, noExecute("l")), start.Add(time.Hour)))
		situation, _ := tr.Lookup(key("a"))
		require.Equal(t, start, situation.Devices[0].Taints[0].TimeAdded)
	})
	t.Run("DE-37 a new key or time is no new taint, a new effect is", func(t *testing.T) {
		t.Parallel()
		tr := withUser()
		old := start.Add(time.Hour)
		tr.SetRule(rule("r", 1, everything, noExecute("k")), start)
		tr.SetRule(rule("r", 2, everything, noExecute("l")), old)
		taint, _ := tr.RuleTaint("r")
		require.Equal(t, start, taint.Seen)
		require.False(t, taint.Witnessed)
		later := noExecute("l")
		later.TimeAdded = new(metav1.NewTime(start.Add(time.Second)))
		tr.SetRule(rule("r", 3, everything, later), old)
		taint, _ = tr.RuleTaint("r")
		require.Equal(t, start, taint.Seen)
		require.Equal(t, start.Add(time.Second), taint.TimeAdded)
		tr.SetRule(rule("r", 4, everything, deviceTaint("l", resourcev1.DeviceTaintEffectNoSchedule)), old)
		taint, _ = tr.RuleTaint("r")
		require.Equal(t, old, taint.Seen)
		require.True(t, taint.Witnessed)
	})
	t.Run("a pod that both the old and the new selector select is named and foretold once", func(t *testing.T) {
		t.Parallel()
		tr := withUser()
		tr.SetRule(rule("r", 1, everything, noExecute("k")), start)
		narrower := rule("r", 2, &resourcev1.DeviceTaintSelector{Driver: new("d")}, noExecute("l"))
		require.Len(t, tr.IfRule(narrower, start), 1)
		require.Equal(t, keysOf("a"), tr.SetRule(narrower, start))
	})
	t.Run("DE-32 what does not change the taint or the selector concerns nobody", func(t *testing.T) {
		t.Parallel()
		tr := withUser()
		tr.SetRule(rule("r", 1, everything, noExecute("k")), start)
		require.Empty(t, tr.SetRule(rule("r", 2, everything, noExecute("k")), start))
	})
	t.Run("DE-75 G14 a rule that was created anew is another rule", func(t *testing.T) {
		t.Parallel()
		tr := withUser()
		tr.SetRule(rule("r", 1, everything, noExecute("k")), start)
		again := rule("r", 2, everything, noExecute("k"))
		again.UID = "another"
		require.Equal(t, keysOf("a"), tr.SetRule(again, start))
		situation, _ := tr.Lookup(key("a"))
		require.Equal(t, types.UID("another"), situation.Devices[0].Taints[0].Source.UID)
		require.Equal(t, types.UID("another"), tr.UIDOf(tracker.Source{Kind: tracker.SourceRule, Name: "r"}))
	})
	t.Run("DE-14 G11 all claims and pods that share a device are concerned, and no others", func(t *testing.T) {
		t.Parallel()
		tr := withUser()
		tr.SetClaim(claimFor("shared", 1, []string{"b", "c"}, gpu("x")))
		tr.SetClaim(claimFor("elsewhere", 1, []string{"d"}, gpu("y")))
		for _, name := range []string{"b", "c"} {
			tr.SetPod(user(name, 1, tracker.PodClaim{Name: "shared"}))
		}
		tr.SetPod(user("d", 1, tracker.PodClaim{Name: "elsewhere"}))
		named := tr.SetRule(rule("r", 1, &resourcev1.DeviceTaintSelector{Device: new("x")}, noExecute("k")), start)
		require.ElementsMatch(t, keysOf("a", "b", "c"), named)
		require.ElementsMatch(t, keysOf("a", "b", "c"), tr.Exposed())
	})
}

func TestClaims(t *testing.T) {
	t.Parallel()
	withRule := func() *tracker.Tracker {
		tr := devicesKnown()
		tr.SetRule(rule("r", 1, &resourcev1.DeviceTaintSelector{Device: new("x")}, noExecute("k")), start)
		tr.SetPod(user("a", 1, tracker.PodClaim{Name: "c"}))
		return tr
	}
	name := tracker.ClaimName{Namespace: "default", Name: "c"}

	t.Run("DE-35 G10 a claim that is taken back or deleted concerns its pods", func(t *testing.T) {
		t.Parallel()
		tr := withRule()
		require.Equal(t, keysOf("a"), tr.SetClaim(claimFor("c", 1, []string{"a"}, gpu("x"))))
		idle := claimFor("c", 2, nil)
		idle.Allocated = false
		require.Equal(t, keysOf("a"), tr.SetClaim(idle))
		require.Empty(t, held(tr, "a"))
		tr.SetClaim(claimFor("c", 3, []string{"a"}, gpu("x")))
		require.Empty(t, tr.DeleteClaim(name, "another"))
		require.Equal(t, keysOf("a"), tr.DeleteClaim(name, "c-uid"))
		require.Empty(t, held(tr, "a"))
	})
	t.Run("DE-33 G10 devices that were taken back and others given, seen as one change", func(t *testing.T) {
		t.Parallel()
		tr := withRule()
		tr.SetClaim(claimFor("c", 1, []string{"a"}, gpu("x")))
		require.Equal(t, keysOf("a"), tr.SetClaim(claimFor("c", 2, []string{"a"}, gpu("y"))))
		require.Empty(t, held(tr, "a"))
		require.Empty(t, tr.ClaimsOn(gpu("x")))
		require.Equal(t, []tracker.ClaimName{name}, tr.ClaimsOn(gpu("y")))
	})
	t.Run("DE-33 a device that was given anew with other tolerations, or to another owner", func(t *testing.T) {
		t.Parallel()
		tr := withRule()
		tolerant := func(version int, seconds *int64) tracker.Claim {
			c := claimFor("c", version, []string{"a"}, gpu("x"))
			c.Devices[0].Tolerations = []resourcev1.DeviceToleration{{Key: "k", TolerationSeconds: seconds}}
			return c
		}
		tr.SetClaim(tolerant(1, nil))
		require.Equal(t, keysOf("a"), tr.SetClaim(tolerant(2, new(int64(60)))))
		require.Equal(t, keysOf("a"), tr.SetClaim(tolerant(3, new(int64(30)))))
		require.Equal(t, keysOf("a"), tr.SetClaim(claimFor("c", 4, []string{"a"}, gpu("x"))))
		owned := claimFor("c", 5, []string{"a"}, gpu("x"))
		owned.Controller = &metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "a", UID: "before"}
		require.Equal(t, keysOf("a"), tr.SetClaim(owned))
		owned.Controller = &metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "a", UID: key("a").UID}
		owned.ResourceVersion = "6"
		require.Equal(t, keysOf("a"), tr.SetClaim(owned))
	})
	t.Run("a claim that the pod names twice gives it its devices once", func(t *testing.T) {
		t.Parallel()
		tr := withRule()
		tr.SetClaim(claimFor("c", 1, []string{"a"}, gpu("x")))
		tr.SetPod(user("a", 2, tracker.PodClaim{Name: "c"}, tracker.PodClaim{Name: "c"}))
		require.Len(t, held(tr, "a"), 1)
		impact, _ := tr.Impact("r")
		require.Len(t, impact.Pods[0].Devices, 1)
		tr.SetTerminating(key("a"))
		tr.DeletePod(key("a"))
		require.Empty(t, tr.PodsUsing(gpu("x")))
	})
	t.Run("DE-34 G10 a claim with another UID is another claim", func(t *testing.T) {
		t.Parallel()
		tr := withRule()
		tr.SetClaim(claimFor("c", 1, []string{"a"}, gpu("x")))
		again := claimFor("c", 2, []string{"b"}, gpu("x"))
		again.UID = "another"
		require.Equal(t, keysOf("a"), tr.SetClaim(again))
		require.Empty(t, held(tr, "a"))
	})
	t.Run("DE-34 a reservation that comes or goes concerns the pods", func(t *testing.T) {
		t.Parallel()
		tr := withRule()
		require.Equal(t, keysOf("a"), tr.SetClaim(claimFor("c", 1, nil, gpu("x"))))
		require.Empty(t, held(tr, "a"))
		require.Equal(t, keysOf("a"), tr.SetClaim(claimFor("c", 2, []string{"a"}, gpu("x"))))
		require.Len(t, held(tr, "a"), 1)
		require.Empty(t, tr.SetClaim(claimFor("c", 3, []string{"a"}, gpu("x"))))
	})
	t.Run("DE-03 the pod is looked at when it gets its node", func(t *testing.T) {
		t.Parallel()
		tr := withRule()
		tr.SetClaim(claimFor("c", 1, []string{"b"}, gpu("x")))
		unbound := user("b", 1, tracker.PodClaim{Name: "c"})
		unbound.NodeName = ""
		require.Empty(t, tr.SetPod(unbound))
		require.Equal(t, keysOf("b"), tr.SetPod(user("b", 2, tracker.PodClaim{Name: "c"})))
	})
	t.Run("DE-36 the pod is looked at when its claims become known", func(t *testing.T) {
		t.Parallel()
		tr := withRule()
		tr.SetClaim(claimFor("c", 1, []string{"b"}, gpu("x")))
		require.Empty(t, tr.SetPod(user("b", 1)))
		require.Equal(t, keysOf("b"), tr.SetPod(user("b", 2, tracker.PodClaim{Name: "c"})))
		require.Empty(t, tr.SetPod(user("b", 3, tracker.PodClaim{Name: "c"})), "nothing that counts changed")
	})
}

func TestUntolerated(t *testing.T) {
	t.Parallel()
	tolerating := func(effect resourcev1.DeviceTaintEffect, seconds *int64) []resourcev1.DeviceToleration {
		return []resourcev1.DeviceToleration{{Key: "k", Operator: resourcev1.DeviceTolerationOpExists, Effect: effect, TolerationSeconds: seconds}}
	}
	for _, test := range []struct {
		name        string
		effect      resourcev1.DeviceTaintEffect
		tolerations []resourcev1.DeviceToleration
		after       time.Duration
		want        bool
	}{
		{"TR-15 an untolerated NoExecute taint is in the way", resourcev1.DeviceTaintEffectNoExecute, nil, 0, true},
		{"TR-15 an untolerated NoSchedule taint is in the way", resourcev1.DeviceTaintEffectNoSchedule, nil, 0, true},
		{"TR-14 None is not", resourcev1.DeviceTaintEffectNone, nil, 0, false},
		{"TR-14 an unknown effect is not", "Unknown", nil, 0, false},
		{"TR-14 a toleration of every effect counts", resourcev1.DeviceTaintEffectNoSchedule, tolerating("", nil), 0, false},
		{"TR-14 a toleration of NoExecute is none of NoSchedule", resourcev1.DeviceTaintEffectNoSchedule, tolerating(resourcev1.DeviceTaintEffectNoExecute, nil), 0, true},
		{"a toleration counts as long as it lasts", resourcev1.DeviceTaintEffectNoExecute, tolerating(resourcev1.DeviceTaintEffectNoExecute, new(int64(60))), 60 * time.Second, false},
		{"and no longer, or the pod would be evicted as soon as it is there", resourcev1.DeviceTaintEffectNoExecute, tolerating(resourcev1.DeviceTaintEffectNoExecute, new(int64(60))), 61 * time.Second, true},
		{"DE-25 zero seconds are none", resourcev1.DeviceTaintEffectNoExecute, tolerating(resourcev1.DeviceTaintEffectNoExecute, new(int64(0))), 0, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			tr := devicesKnown()
			tr.SetRule(rule("r", 1, &resourcev1.DeviceTaintSelector{}, deviceTaint("k", test.effect)), start)
			obstacles, known := tr.Untolerated([]tracker.AllocatedDevice{{ID: gpu("x"), Tolerations: test.tolerations}}, start.Add(test.after))
			require.True(t, known)
			require.Equal(t, test.want, len(obstacles) == 1)
		})
	}
}

func TestTaintedDevices(t *testing.T) {
	t.Parallel()
	tr := devicesKnown()
	tr.SetSlice(sliceOf("s", 1, 1,
		tracker.Device{Name: "x", Taints: []resourcev1.DeviceTaint{noExecute("a"), noExecute("b")}},
		tracker.Device{Name: "y"}, tracker.Device{Name: "z"},
	), start)
	tr.SetClaim(claimFor("c", 1, nil, gpu("x"), gpu("unpublished")))
	tr.SetRule(rule("r", 1, &resourcev1.DeviceTaintSelector{Device: new("unpublished")}, noExecute("k")), start)
	tr.SetRule(rule("q", 1, &resourcev1.DeviceTaintSelector{Pool: new("p")}, deviceTaint("k", resourcev1.DeviceTaintEffectNone)), start)
	require.Equal(t, map[tracker.DriverEffect]int{
		{Driver: "d", Effect: corev1.TaintEffectNoExecute}: 2,
		{Driver: "d", Effect: "None"}:                      4,
	}, tr.TaintedDevices())
	require.Equal(t, []device.ID{gpu("x"), gpu("y"), gpu("z")}, tr.Devices(device.Selector{}))

	t.Run("a rule of another driver changes nothing", func(t *testing.T) {
		t.Parallel()
		tr := devicesKnown()
		tr.SetSlice(sliceOf("s", 1, 1, tracker.Device{Name: "x", Taints: []resourcev1.DeviceTaint{noExecute("a")}}, tracker.Device{Name: "y"}), start)
		tr.SetRule(rule("r", 1, &resourcev1.DeviceTaintSelector{Driver: new("e")}, noExecute("k")), start)
		require.Equal(t, map[tracker.DriverEffect]int{{Driver: "d", Effect: corev1.TaintEffectNoExecute}: 1}, tr.TaintedDevices())
	})
	t.Run("devices that only a rule taints", func(t *testing.T) {
		t.Parallel()
		tr := devicesKnown()
		tr.SetSlice(sliceOf("s", 1, 1, tracker.Device{Name: "x"}, tracker.Device{Name: "y"}), start)
		tr.SetRule(rule("r", 1, &resourcev1.DeviceTaintSelector{Device: new("y")}, noExecute("k")), start)
		require.Equal(t, map[tracker.DriverEffect]int{{Driver: "d", Effect: corev1.TaintEffectNoExecute}: 1}, tr.TaintedDevices())
	})
}
