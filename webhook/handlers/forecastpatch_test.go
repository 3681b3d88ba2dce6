package handlers

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/preview"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// selecting is a selection of devices that does not change, by the class that a patch
// asks for; what is not in it is not known.
type selecting map[string][]device.ID

func (s selecting) Selected(_ context.Context, patch *v1alpha1.ResourceSlicePatch) ([]device.ID, bool) {
	class := ""
	if filter := patch.Spec.Devices.Filter; filter.DeviceClassName != nil {
		class = *filter.DeviceClassName
	}
	devices, known := s[class]
	return devices, known
}

func gpus(names ...string) []device.ID {
	list := make([]device.ID, 0, len(names))
	for _, name := range names {
		list = append(list, device.ID{Driver: "gpu", Pool: "p", Name: name})
	}
	return list
}

// tryPatch asks for a patch as somebody of sre.
func (b *blast) tryPatch(t *testing.T, now, old string, dryRun bool) (admission.Response, error) {
	t.Helper()
	review := asUser(patchReview(t, now, old), "ann", "sre")
	review.Request.Name, review.Request.DryRun = "", &dryRun
	req, err := readRequest(marshal(t, review))
	require.NoError(t, err)
	return answer(t.Context(), b.reviewer().handler(request.validatePatch), req)
}

func (b *blast) patch(t *testing.T, now, old string) admission.Response {
	t.Helper()
	response, err := b.tryPatch(t, now, old, false)
	require.NoError(t, err)
	return response
}

// written adds the rule that is written out for a patch.
func (b *blast) written(name, dev string, taint resourcev1.DeviceTaint) {
	selector, _ := device.SelectorOf(&resourcev1.DeviceTaintSelector{Driver: new("gpu"), Device: &dev})
	b.tracker.SetRule(tracker.Rule{
		Name: name, UID: types.UID(name), Created: b.clock.Now(), Selector: selector, Selects: true, Taint: taint,
		Patch: tracker.PatchRef{Name: "gpu-broken", UID: "1"},
	}, b.clock.Now())
}

func TestPreviewOfPatches(t *testing.T) {
	b := newBlast(t)
	b.user("a", "x0")
	b.user("b", "x1")
	b.preview.Selection = selecting{"both": gpus("x0", "x1", "x1", "x7"), "none": nil}
	const (
		one, all, class, none = `"filter":{"driver":"gpu","device":"x0"}`, `"filter":{"driver":"gpu"}`, `"filter":{"deviceClassName":"both"}`, `"filter":{"deviceClassName":"none"}`

		named = "ResourceSlicePatch gpu-broken evicts "
		pods1 = named + "1 pod in 1 namespace: 1 now"
		pods2 = named + "2 pods in 1 namespace: 2 now"
		would = "with the effect NoExecute ResourceSlicePatch gpu-broken would evict "
	)
	patch := func(filter, effects string) string {
		var taints []string
		for i, effect := range strings.Fields(effects) {
			taints = append(taints, `{"key":"example.org/`+string(rune('a'+i))+`","effect":"`+effect+`"}`)
		}
		return patchJSON(strings.TrimPrefix(filter+`,"taints":[`+strings.Join(taints, ",")+`]`, ","))
	}
	for name, tt := range map[string]struct{ now, old, want string }{
		"created":                        {patch(one, "NoExecute"), "", pods1},
		"created with nobody to evict":   {patch(`"filter":{"driver":"other"}`, "NoExecute"), "", ""},
		"created for every device":       {patch("", "NoExecute"), "", pods2},
		"created with two taints":        {patch(all, "NoSchedule NoExecute"), "", pods2},
		"created without a name":         {strings.Replace(patch(all, "NoExecute"), `"name":"gpu-broken"`, `"generateName":"gpu-"`, 1), "", "the ResourceSlicePatch evicts 2 pods in 1 namespace: 2 now"},
		"by a class":                     {patch(class, "NoExecute"), "", pods2},
		"by a class of no device":        {patch(none, "NoExecute"), "", ""},
		"by an expression":               {patch(`"filter":{"deviceClassName":"both","selectors":[{"cel":{"expression":"true"}}]}`, "NoExecute"), "", pods2},
		"a taint is added":               {patch(all, "NoSchedule NoExecute"), patch(all, "NoSchedule"), pods2},
		"deleted":                        {"", patch(all, "NoExecute"), ""},
		"with the effect None":           {patch(all, "None"), "", would + "2 pods in 1 namespace: 2 now"},
		"with None, by a class":          {patch(class, "None"), "", would + "2 pods in 1 namespace: 2 now"},
		"with None, without a name":      {strings.Replace(patch(all, "None"), `"name":"gpu-broken"`, `"generateName":"gpu-"`, 1), "", "with the effect NoExecute the ResourceSlicePatch would evict 2 pods in 1 namespace: 2 now"},
		"with None and nobody to evict":  {patch(`"filter":{"driver":"other"}`, "None"), "", ""},
		"with None that stays":           {patch(all, "None") + " ", strings.Replace(patch(all, "None"), `"driver":"gpu"`, `"driver":"gpu","selectors":[]`, 1), ""},
		"with None beside NoExecute":     {patch(one, "NoExecute None"), "", pods1},
		"None comes beside NoExecute":    {patch(one, "NoExecute None"), patch(one, "NoExecute"), ""},
		"from None to NoExecute":         {patch(all, "NoExecute"), patch(all, "None"), pods2},
		"from NoExecute to None":         {patch(all, "None"), patch(all, "NoExecute"), would + "2 pods in 1 namespace: 2 now"},
		"with the effect NoSchedule":     {patch(all, "NoSchedule"), "", ""},
		"attributes beside what evicts":  {strings.Replace(patch(all, "NoExecute"), `"filter"`, `"attributes":{"d/a":{"int":1}},"filter"`, 1), patch(all, "NoExecute"), ""},
		"without taints":                 {patch(all, ""), "", ""},
		"the filter of one without them": {patch(one, ""), patch(all, ""), ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, dryRun := range []bool{false, true} {
				response, err := b.tryPatch(t, tt.now, tt.old, dryRun)
				require.NoError(t, err)
				require.True(t, response.Allowed, "%v", response.Result)
				var previews []string
				for _, warning := range response.Warnings {
					if strings.Contains(warning, "evict") {
						previews = append(previews, warning)
					}
				}
				if tt.want == "" {
					require.Empty(t, previews)
				} else {
					require.Equal(t, []string{tt.want}, previews)
				}
			}
		})
	}
	t.Run("in mode Observe nobody goes", func(t *testing.T) {
		b.preview.Observe = true
		require.Contains(t, b.patch(t, patch(all, "NoExecute"), "").Warnings,
			"in eviction mode Observe nobody is evicted for a ResourceSlicePatch; in another, ResourceSlicePatch gpu-broken would evict 2 pods in 1 namespace: 2 now")
		require.Contains(t, b.rule(t, ruleJSON(`{"driver":"gpu"}`, "example.org/a", "NoExecute"), "").Warnings, "evicts 2 pods in 1 namespace: 2 now")
	})
	t.Run("the metric counts them apart", func(t *testing.T) {
		count, err := testutil.GatherAndCount(b.registry, "tollgate_preview_pods")
		require.NoError(t, err)
		require.Equal(t, 2, count, "of patches and of rules")
	})
}

func TestAPreviewSaysWhichFeatureGateIsOff(t *testing.T) {
	b := newBlast(t)
	b.user("a", "x0")
	b.preview.Off = map[tracker.SourceKind]string{tracker.SourcePatch: "ResourceSlicePatches", tracker.SourceRule: "DeviceTaintRules"}
	patch := func(filter, effect string) string {
		return patchJSON(`"filter":` + filter + `,"taints":[{"key":"example.org/a","effect":"` + effect + `"}]`)
	}
	const off = " is off: the taint has no effect until it is on"
	const patches, rules = "the feature gate ResourceSlicePatches" + off, "the feature gate DeviceTaintRules" + off
	const pods = " would evict 1 pod in 1 namespace: 1 now"
	for name, tt := range map[string]struct {
		warnings []string
		want     string
	}{
		"a patch that would evict":        {b.patch(t, patch(`{"driver":"gpu"}`, "NoExecute"), "").Warnings, patches + "; then ResourceSlicePatch gpu-broken" + pods},
		"a patch that would evict nobody": {b.patch(t, patch(`{"driver":"other"}`, "NoExecute"), "").Warnings, patches},
		"a patch by a class":              {b.patch(t, patch(`{"deviceClassName":"c"}`, "NoExecute"), "").Warnings, patches},
		"a patch with the effect None":    {b.patch(t, patch(`{"driver":"gpu"}`, "None"), "").Warnings, patches},
		"a rule that would evict":         {b.rule(t, ruleJSON(`{"driver":"gpu"}`, "example.org/a", "NoExecute"), "").Warnings, rules + "; then it" + pods},
		"a rule with the effect None":     {b.rule(t, ruleJSON(`{"driver":"gpu"}`, "example.org/a", "None"), "").Warnings, rules},
	} {
		t.Run(name, func(t *testing.T) { require.Contains(t, tt.warnings, tt.want) })
	}
}

func TestPreviewOfAPatchThatIsWrittenOut(t *testing.T) {
	const path = `"filter":{"driver":"gpu","device":"x0"}`
	evicting := func(value string) string {
		return patchJSON(path + `,"taints":[{"key":"example.org/a","value":"` + value + `","effect":"NoExecute"}]`)
	}
	since := func(patch, at string) string {
		return strings.TrimSuffix(patch, "}") + `,"status":{"taints":[{"key":"example.org/a","effect":"NoSchedule","timeAdded":"2026-01-01T00:00:00Z"},` +
			`{"key":"example.org/a","effect":"NoExecute","timeAdded":"` + at + `"}]}}`
	}
	newPatient := func(t *testing.T) *blast {
		t.Helper()
		b := newBlast(t)
		b.user("a", "x0")
		b.tracker.SetClaim(tracker.Claim{
			ClaimName: tracker.ClaimName{Namespace: "ns", Name: "a"}, UID: "a", Allocated: true,
			Devices: []tracker.AllocatedDevice{{ID: gpus("x0")[0], Tolerations: []resourcev1.DeviceToleration{
				{Key: "example.org/a", Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoExecute, TolerationSeconds: new(int64(300))},
			}}},
			Consumers: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", UID: "a"}},
		})
		return b
	}
	taint := func(value string, since time.Time) resourcev1.DeviceTaint {
		return resourcev1.DeviceTaint{Key: "example.org/a", Value: value, Effect: "NoExecute", TimeAdded: new(metav1.NewTime(since))}
	}
	const within = "ResourceSlicePatch gpu-broken evicts 1 pod in 1 namespace: 1 within "

	t.Run("one that is new counts from now", func(t *testing.T) {
		require.Equal(t, []string{within + "300s"}, newPatient(t).patch(t, evicting(""), "").Warnings)
	})
	t.Run("one that gives a time counts from then", func(t *testing.T) {
		dated := strings.Replace(evicting(""), `"effect"`, `"timeAdded":"2026-11-20T11:59:00Z","effect"`, 1)
		require.Equal(t, []string{within + "240s"}, newPatient(t).patch(t, dated, "").Warnings)
	})
	t.Run("another value counts since the status says", func(t *testing.T) {
		require.Equal(t, []string{within + "200s"}, newPatient(t).patch(t, evicting("x"), since(evicting(""), "2026-11-20T11:58:20Z")).Warnings)
	})
	t.Run("what a client says of the status counts for nothing", func(t *testing.T) {
		require.Equal(t, []string{within + "300s"}, newPatient(t).patch(t, since(evicting(""), "2026-11-20T11:58:20Z"), "").Warnings)
	})
	t.Run("who has to leave already is not told of again", func(t *testing.T) {
		b := newPatient(t)
		b.written("gpu-broken-1", "x0", taint("", noon.Add(-100*time.Second)))
		require.Empty(t, b.patch(t, evicting("x"), since(evicting(""), "2026-11-20T11:58:20Z")).Warnings)
	})
	t.Run("who has to leave sooner is", func(t *testing.T) {
		b := newPatient(t)
		b.written("gpu-broken-1", "x0", taint("", noon))
		earlier := strings.Replace(evicting(""), `"effect"`, `"timeAdded":"2026-11-20T11:59:00Z","effect"`, 1)
		require.Equal(t, []string{within + "240s; 1 that had to leave later before"}, b.patch(t, earlier, since(evicting(""), "2026-11-20T12:00:00Z")).Warnings)
	})
	t.Run("a filter that is widened hits those that come to it", func(t *testing.T) {
		b := newPatient(t)
		b.user("b", "x1")
		b.written("gpu-broken-1", "x0", taint("", noon))
		wider := strings.Replace(evicting(""), `,"device":"x0"`, "", 1)
		require.Equal(t, []string{"ResourceSlicePatch gpu-broken evicts 1 pod in 1 namespace: 1 now"},
			b.patch(t, wider, since(evicting(""), "2026-11-20T12:00:00Z")).Warnings)
	})
}

// endless is a selection that takes as long as it may.
type endless struct{}

func (endless) Selected(ctx context.Context, _ *v1alpha1.ResourceSlicePatch) ([]device.ID, bool) {
	<-ctx.Done()
	return nil, false
}

func TestPreviewOfAPatchThatTakesTooLong(t *testing.T) {
	const patch = `"filter":{"deviceClassName":"slow"},"taints":[{"key":"example.com/a","effect":"NoExecute"}]`
	b := newBlast(t)
	b.preview.Selection = endless{}
	require.Equal(t, []string{errDevicesTimeout.warning}, b.patch(t, patchJSON(patch), "").Warnings)
	b = newBlast(t, limiting(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(10))}))
	b.preview.Selection = endless{}
	_, err := b.tryPatch(t, patchJSON(patch), "", false)
	require.EqualError(t, err, errDevicesTimeout.Error())
}

func TestPreviewOfAPatchOfWhichNotAllIsKnown(t *testing.T) {
	const (
		byClass = `"filter":{"deviceClassName":"later"},`
		byName  = `"filter":{"driver":"gpu"},`

		unfollowedDevices = "taints of devices are not followed, because the feature gate DeviceTaintEviction is off"
	)
	taint := func(key, effect string) string { return `"taints":[{"key":"` + key + `","effect":"` + effect + `"}]` }
	limits := limiting(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(10))})
	followed := func(*blast) {}
	unread := func(b *blast) { b.unread = true }
	yes := func() bool { return true }
	nodesAlone := func(b *blast) {
		b.show(&preview.View{Tracker: b.tracker, PodsKnown: yes, NodesKnown: yes, BudgetsKnown: yes})
	}
	for name, tt := range map[string]struct {
		filter         string
		known          func(*blast)
		warning, fault string
	}{
		"devices have not been read":       {byClass, followed, errDevicesUnread.warning, errDevicesUnread.Error()},
		"pods have not been read":          {byName, unread, errPodsUnread.warning, errPodsUnread.Error()},
		"taints of devices are not seen":   {byName, nodesAlone, "it is not known how many pods this evicts: " + unfollowedDevices, "a TaintPolicy limits how many pods the taint may affect, and that cannot be known: " + unfollowedDevices},
		"and cannot be asked for a class":  {byClass, nodesAlone, "it is not known how many pods this evicts: " + unfollowedDevices, "a TaintPolicy limits how many pods the taint may affect, and that cannot be known: " + unfollowedDevices},
		"nothing of the cluster is looked": {byName, func(b *blast) { b.preview = nil }, "", "a TaintPolicy limits how many pods the taint may affect, and that cannot be known: " + unfollowedDevices},
	} {
		with := func(t *testing.T, policies ...v1alpha1.TaintPolicy) *blast {
			t.Helper()
			b := newBlast(t, policies...)
			b.user("a", "x0")
			b.preview.Selection = selecting{}
			tt.known(b)
			return b
		}
		want := []string{tt.warning}
		if tt.warning == "" {
			want = nil
		}
		t.Run(name, func(t *testing.T) {
			b := with(t)
			for _, effect := range []string{"NoExecute", "None"} {
				response := b.patch(t, patchJSON(tt.filter+taint("example.com/a", effect)), "")
				require.True(t, response.Allowed)
				require.Equal(t, want, response.Warnings)
			}
			require.Empty(t, b.patch(t, patchJSON(tt.filter+taint("example.com/a", "NoSchedule")), "").Warnings)
		})
		t.Run(name+", and there is a limit", func(t *testing.T) {
			b := with(t, limits)
			_, err := b.tryPatch(t, patchJSON(tt.filter+taint("example.com/a", "NoExecute")), "", false)
			require.EqualError(t, err, tt.fault)
			_, err = b.tryPatch(t, patchJSON(tt.filter+taint("example.com/a", "NoExecute")), patchJSON(`"filter":{"pool":"p"},`+taint("example.com/a", "NoExecute")), true)
			require.EqualError(t, err, tt.fault, "it is widened")
			for _, allowed := range []string{taint("example.org/free", "NoExecute"), taint("example.com/a", "None"), taint("example.com/a", "NoSchedule"), `"priority":7`} {
				require.True(t, b.patch(t, patchJSON(tt.filter+allowed), "").Allowed, "the limit is not about it")
			}
			require.True(t, b.patch(t, "", patchJSON(tt.filter+taint("example.com/a", "NoExecute"))).Allowed, "nobody goes by its end")
		})
	}
}

func TestAPatchBeyondALimitIsRefused(t *testing.T) {
	b := newBlast(t, limiting(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(1))}))
	for _, dev := range []string{"x0", "x1", "x2"} {
		b.user("u"+dev, dev)
	}
	b.preview.Selection = selecting{"two": gpus("x0", "x1")}
	patch := func(filter string) string {
		return patchJSON(`"filter":{` + filter + `},"taints":[{"key":"example.com/a","effect":"None"},{"key":"example.com/broken","effect":"NoExecute"}]`)
	}
	for _, dryRun := range []bool{true, false} {
		for _, filter := range []string{`"deviceClassName":"two"`, `"driver":"gpu"`} {
			response, err := b.tryPatch(t, patch(filter), "", dryRun)
			require.NoError(t, err)
			requireReason(t, "TooManyAffected", response)
			require.Equal(t, "spec.devices.taints[1]", response.Result.Details.Causes[0].Field)
			require.Len(t, response.Warnings, 1)
			require.True(t, strings.HasPrefix(response.Warnings[0], "ResourceSlicePatch gpu-broken evicts "))
		}
	}
	require.True(t, b.patch(t, patch(`"device":"x0"`), "").Allowed, "one pod may go, and what was refused is not in the way")
	response := b.patch(t, patch(`"device":"x1"`), "")
	requireReason(t, "TooManyAffected", response)
	require.Contains(t, response.Result.Message, "hits 1 pod, 2 together with the 1 that other writes of the last 10m hit; at most 1 are allowed")

	widened := b.patch(t, patch(`"driver":"gpu"`), patch(`"device":"x0"`))
	requireReason(t, "TooManyAffected", widened)
	require.Equal(t, "spec.devices.filter", widened.Result.Details.Causes[0].Field)
}

func TestAPatchGoesBeyondALimitAsApproved(t *testing.T) {
	one := func(change func(*v1alpha1.EvictionApproval)) v1alpha1.EvictionApproval {
		return approval("a", 2, func(a *v1alpha1.EvictionApproval) {
			a.Spec.Node, a.Spec.ResourceSlicePatch = "", "gpu-broken"
			if change != nil {
				change(a)
			}
		})
	}
	const evicting = `"filter":{"driver":"gpu"},"taints":[{"key":"example.com/broken","effect":"NoExecute"}]`
	for name, tt := range map[string]struct {
		approval v1alpha1.EvictionApproval
		allowed  bool
	}{
		"one for the patch":     {one(nil), true},
		"one for another patch": {one(func(a *v1alpha1.EvictionApproval) { a.Spec.ResourceSlicePatch = "gpu" }), false},
		"one for a rule of that name": {one(func(a *v1alpha1.EvictionApproval) {
			a.Spec.ResourceSlicePatch, a.Spec.DeviceTaintRule = "", "gpu-broken"
		}), false},
		"one for a node of that name":  {one(func(a *v1alpha1.EvictionApproval) { a.Spec.ResourceSlicePatch, a.Spec.Node = "", "gpu-broken" }), false},
		"one for another key":          {one(func(a *v1alpha1.EvictionApproval) { a.Spec.Taint.Key = "example.com/x" }), false},
		"one for fewer pods":           {one(func(a *v1alpha1.EvictionApproval) { a.Spec.MaxPods = 1 }), false},
		"one that was used":            {one(func(a *v1alpha1.EvictionApproval) { a.Status.UsedAt = new(metav1.NewTime(noon)) }), false},
		"one that has expired already": {one(func(a *v1alpha1.EvictionApproval) { a.CreationTimestamp = metav1.NewTime(noon.Add(-2 * time.Hour)) }), false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBlast(t, limiting(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(1))}))
			b.user("a", "x0")
			b.user("b", "x1")
			b.approvals.list = []v1alpha1.EvictionApproval{tt.approval}
			response := b.patch(t, patchJSON(evicting), "")
			const seen = "ResourceSlicePatch gpu-broken evicts 2 pods in 1 namespace: 2 now"
			if tt.allowed {
				requireReason(t, "", response)
				require.Equal(t, []string{seen, "beyond the limit of TaintPolicy/limits, as approved by EvictionApproval/a"}, response.Warnings)
				return
			}
			requireReason(t, "TooManyAffected", response)
			require.Equal(t, []string{seen}, response.Warnings)
			require.Equal(t, "TaintPolicy/limits: spec.devices.taints[0] (example.com/broken:NoExecute): hits 2 pods; at most 1 are allowed; "+
				"to approve it, create an EvictionApproval with spec {resourceSlicePatch: gpu-broken, taint: {key: example.com/broken, effect: NoExecute}, maxPods: 2}, "+
				"then write this again", response.Result.Message)
		})
	}
	t.Run("it is used up when a rule of the patch stands", func(t *testing.T) {
		b := newBlast(t, limiting(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(1))}))
		for _, dev := range []string{"x0", "x1", "x2"} {
			b.user("u"+dev, dev)
		}
		b.approvals.list = []v1alpha1.EvictionApproval{one(func(a *v1alpha1.EvictionApproval) { a.Spec.MaxPods = 3 })}
		b.clock.SetTime(noon.Add(time.Minute))
		b.written("gpu-broken-1", "x0", resourcev1.DeviceTaint{Key: "example.com/broken", Effect: "NoExecute", TimeAdded: new(metav1.NewTime(b.clock.Now()))})
		narrow := strings.Replace(evicting, `"driver":"gpu"`, `"device":"x0"`, 1)
		requireReason(t, "TooManyAffected", b.patch(t, patchJSON(evicting), patchJSON(narrow)))
	})
}
