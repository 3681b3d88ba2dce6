package taint

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

// devicePatch returns what a patch does, written in YAML; nil for nothing.
func devicePatch(tb testing.TB, text string) *v1alpha1.DevicePatch {
	tb.Helper()
	if text == "" {
		return nil
	}
	p := &v1alpha1.DevicePatch{}
	require.NoError(tb, yaml.UnmarshalStrict([]byte(text), p))
	return p
}

func patchChange(tb testing.TB, now, old string) *PatchChange {
	tb.Helper()
	return &PatchChange{Name: "gpu-broken", New: devicePatch(tb, now), Old: devicePatch(tb, old)}
}

// patchInput is the request of a user to change a ResourceSlicePatch.
func patchInput(user *authenticationv1.UserInfo, change *PatchChange) Input {
	in := input(user, nil, nil)
	in.Writes, in.Patch = change.Writes(), change
	return in
}

func TestPatchWrites(t *testing.T) {
	const (
		taints = "taints: [{key: a, effect: NoExecute}, {key: b, value: x, effect: None}]"
		gpu    = "filter: {driver: gpu}\n" + taints
	)
	tests := map[string]struct {
		now, old string
		want     []string
	}{
		"a patch without taints is created":      {now: "attributes: {d/a: {int: 1}}"},
		"a patch without taints is changed":      {now: "attributes: {d/a: {int: 1}}", old: "filter: {driver: gpu}"},
		"a patch without taints is deleted":      {old: "filter: {driver: gpu}"},
		"one with taints is created":             {now: taints, want: []string{"Add a:NoExecute at spec.devices.taints[0]", "Add b=x:None at spec.devices.taints[1]"}},
		"one with taints is deleted":             {old: taints, want: []string{"Remove a:NoExecute at spec.devices.taints", "Remove b=x:None at spec.devices.taints"}},
		"its taints stay":                        {now: taints, old: taints},
		"their order is nothing":                 {now: "taints: [{key: b, value: x, effect: None}, {key: a, effect: NoExecute}]", old: taints},
		"its attributes and its priority change": {now: taints + "\npriority: 7\nattributes: {d/a: {int: 1}}\ncapacity: {d/c: {value: 1Gi}}", old: taints},
		"a value changes": {
			now: "taints: [{key: a, value: z, effect: NoExecute}, {key: b, value: x, effect: None}]", old: taints,
			want: []string{"Change a:NoExecute to a=z:NoExecute at spec.devices.taints[0]"},
		},
		"a time is given": {
			now: `taints: [{key: a, effect: NoExecute, timeAdded: "2026-11-20T12:00:00Z"}, {key: b, value: x, effect: None}]`, old: taints,
			want: []string{"Change a:NoExecute to a:NoExecute at spec.devices.taints[0]"},
		},
		"an effect changes": {
			now: "taints: [{key: a, effect: NoExecute}, {key: b, value: x, effect: NoExecute}]", old: taints,
			want: []string{"Add b=x:NoExecute at spec.devices.taints[1]", "Remove b=x:None at spec.devices.taints"},
		},
		"a taint comes and another one goes": {
			now: "taints: [{key: c, effect: None}, {key: a, effect: NoExecute}]", old: taints,
			want: []string{"Add c:None at spec.devices.taints[0]", "Remove b=x:None at spec.devices.taints"},
		},
		"the filter changes": {
			now: "filter: {pool: p}\n" + taints, old: taints,
			want: []string{"Change a:NoExecute to a:NoExecute at spec.devices.filter", "Change b=x:None to b=x:None at spec.devices.filter"},
		},
		"an expression of the filter changes": {
			now: "filter: {selectors: [{cel: {expression: 'true'}}]}\n" + taints, old: "filter: {selectors: [{cel: {expression: 'false'}}]}\n" + taints,
			want: []string{"Change a:NoExecute to a:NoExecute at spec.devices.filter", "Change b=x:None to b=x:None at spec.devices.filter"},
		},
		"a filter that asks for nothing is none":    {now: "filter: {}\n" + taints, old: taints},
		"and so is one with an empty list":          {now: "filter: {selectors: []}\n" + taints, old: "filter: {}\n" + taints},
		"a filter that stays, with another pointer": {now: gpu, old: gpu},
		"the filter changes, and a taint with it": {
			now: "filter: {driver: nic}\ntaints: [{key: a, effect: NoExecute}, {key: b, value: z, effect: None}, {key: c, effect: None}]", old: "filter: {driver: gpu}\ntaints: [{key: a, effect: NoExecute}, {key: b, value: x, effect: None}, {key: d, effect: None}]",
			want: []string{
				"Change gpu's b=x:None to nic's b=z:None at spec.devices.taints[1]", "Add nic's c:None at spec.devices.taints[2]",
				"Remove gpu's d:None at spec.devices.taints", "Change gpu's a:NoExecute to nic's a:NoExecute at spec.devices.filter",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, sentences(patchChange(t, tt.now, tt.old).Writes()))
		})
	}
}

// sentences says what writes do, nil for none.
func sentences(writes []Write) []string {
	var all []string
	said := func(t Taint) string {
		if t.Driver != "" {
			return t.Driver + "'s " + t.String()
		}
		return t.String()
	}
	for i := range writes {
		w := &writes[i]
		text := string(w.Operation) + " " + said((&governed{Write: w, operation: w.Operation}).named())
		if w.Operation == v1alpha1.TaintChange {
			text = "Change " + said(w.Old) + " to " + said(w.New)
		}
		all = append(all, text+" at "+w.Path.String())
	}
	return all
}

// TestPatchWritesLeadFromOnePatchToTheOther makes up patches, and requires of their
// writes that they are what turns the taints of one, with the driver that it names, into
// those of the other.
func TestPatchWritesLeadFromOnePatchToTheOther(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	d := draw{rand.New(rand.NewPCG(seed, 0))}
	made := func() string {
		var taints []string
		for range d.IntN(5) {
			taints = append(taints, fmt.Sprintf("{key: %s, value: %q, effect: %s}", pick(d, "a", "b"), pick(d, "", "1", "2"), pick(d, "None", "NoSchedule", "NoExecute")))
		}
		return fmt.Sprintf("priority: %d\nfilter: {%s}\ntaints: [%s]", d.IntN(3), pick(d, "", "", "driver: gpu", "driver: nic", "pool: p"), strings.Join(taints, ","))
	}
	count := func(p *v1alpha1.DevicePatch) map[Taint]int {
		stand := map[Taint]int{}
		for _, t := range ofPatch(p) {
			t.Driver = ptr.Deref(filterOf(p).Driver, "")
			stand[t]++
		}
		return stand
	}
	for range 5000 {
		old, now := made(), made()
		if d.IntN(3) == 0 {
			now = old
		}
		c := patchChange(t, now, old)
		stand, writes := count(c.Old), c.Writes()
		changed := 0
		for i := range writes {
			w := &writes[i]
			if w.Operation != v1alpha1.TaintAdd {
				stand[w.Old]--
				require.GreaterOrEqual(t, stand[w.Old], 0, "%s\nto %s\n%v", old, now, sentences(writes))
				if stand[w.Old] == 0 {
					delete(stand, w.Old)
				}
			}
		}
		for i := range writes {
			if w := &writes[i]; w.Operation != v1alpha1.TaintRemove {
				stand[w.New]++
				changed++
			}
		}
		require.Equal(t, count(c.New), stand, "%s\nto %s\n%v", old, now, sentences(writes))
		if !c.sameFilter() {
			require.Equal(t, len(c.New.Taints), changed, "each taint of the new patch is written once")
		}
	}
}

func TestAPatchOfEveryDeviceNeedsAFilter(t *testing.T) {
	const none, more = "taints: [{key: k, effect: None}]", "taints: [{key: k, effect: NoExecute}]"
	p := newPolicy("p", "*", ofDevices("gpu"), setBy("sre"), limited(v1alpha1.TaintLimits{RequireSelector: true}))
	tests := map[string]struct {
		now, old string
		want     policy.Verdict
	}{
		"no filter is every device":               {none, "", policy.Denied},
		"an empty one is, too":                    {"filter: {}\n" + none, "", policy.Denied},
		"one whose list of expressions is empty":  {"filter: {selectors: []}\n" + none, "", policy.Denied},
		"a driver is a filter":                    {"filter: {driver: gpu}\n" + none, "", policy.Allowed},
		"a pool is":                               {"filter: {pool: p}\n" + none, "", policy.Allowed},
		"a device is":                             {"filter: {device: d}\n" + none, "", policy.Allowed},
		"a class is":                              {"filter: {deviceClassName: c}\n" + none, "", policy.Allowed},
		"an expression is":                        {"filter: {selectors: [{cel: {expression: 'true'}}]}\n" + none, "", policy.Allowed},
		"a filter is taken away":                  {none, "filter: {driver: gpu}\n" + none, policy.Denied},
		"C28 one that stood may do less":          {none, more, policy.Allowed},
		"C28 one that stood may not do more":      {more, none, policy.Denied},
		"C28 one that stood gets another value":   {"taints: [{key: k, value: v, effect: None}]", none, policy.Denied},
		"C28 one that stood gets another key":     {"taints: [{key: l, effect: None}]", none, policy.Denied},
		"C28 one that stood gets another time":    {`taints: [{key: k, effect: None, timeAdded: "2026-11-20T12:00:00Z"}]`, none, policy.Allowed},
		"C28 one that stood gets a second taint":  {"taints: [{key: k, effect: None}, {key: l, effect: None}]", none, policy.Denied},
		"one of its taints goes":                  {none, "taints: [{key: k, effect: None}, {key: l, effect: None}]", policy.Allowed},
		"one that is deleted":                     {"", more, policy.Allowed},
		"one that has no taints":                  {"attributes: {d/a: {int: 1}}", "", policy.Allowed},
		"one that gives its attributes up":        {none, none + "\nattributes: {d/a: {int: 1}}", policy.Allowed},
		"of other drivers":                        {"filter: {driver: nic}\n" + none, "", policy.Allowed},
		"a taint that the policy does not govern": {"taints: [{key: k, effect: None}]", "filter: {driver: nic}\ntaints: [{key: k, effect: None}]", policy.Denied},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			decision := judge(t, patchInput(sre, patchChange(t, tt.now, tt.old)), p)
			require.Equal(t, tt.want, decision.Verdict, "%v", decision.Findings)
			if tt.want == policy.Denied {
				require.Equal(t, []string{"TaintPolicy/p: spec.devices.filter: asks for nothing: ResourceSlicePatch gpu-broken taints every device; " +
					"ask for a class, a driver, a pool or a device, or for what an expression says"}, lines(decision))
			}
		})
	}
}

// lines returns the findings of a decision as their user reads them.
func lines(decision policy.Decision) []string {
	all := make([]string, 0, len(decision.Findings))
	for _, f := range decision.Findings {
		all = append(all, f.String())
	}
	return all
}

func TestATaintOfAPatchMustHaveStoodAtNoneBeforeItEvicts(t *testing.T) {
	const (
		gpu  = "filter: {driver: gpu}\n"
		none = gpu + "taints: [{key: k, value: v, effect: None}]"
		more = gpu + "taints: [{key: k, value: v, effect: NoExecute}]"

		at, byFilter = "spec.devices.taints[0].effect (k=v:NoExecute)", "spec.devices.filter (k=v:NoExecute)"
	)
	p := newPolicy("p", "*", ofDevices(), setBy("sre"), limited(v1alpha1.TaintLimits{RequirePreview: true}))
	tests := map[string]struct {
		now, old string
		refused  []string
	}{
		"one that is created and evicts":      {more, "", []string{at}},
		"one that is created at None":         {none, "", nil},
		"one that is created and keeps away":  {gpu + "taints: [{key: k, value: v, effect: NoSchedule}]", "", nil},
		"one that stood at None":              {more, none, nil},
		"one that stood at NoSchedule":        {more, gpu + "taints: [{key: k, value: v, effect: NoSchedule}]", []string{at}},
		"one that stood with another value":   {more, gpu + "taints: [{key: k, value: w, effect: None}]", []string{at}},
		"one that stood with another key":     {more, gpu + "taints: [{key: l, value: v, effect: None}]", []string{at}},
		"one that stood for other devices":    {more, "filter: {driver: nic}\ntaints: [{key: k, value: v, effect: None}]", []string{at}},
		"one that stood beside another taint": {gpu + "taints: [{key: k, value: v, effect: NoExecute}, {key: l, effect: None}]", gpu + "taints: [{key: l, effect: None}, {key: k, value: v, effect: None}]", nil},
		"one that evicts for more devices":    {"taints: [{key: k, value: v, effect: NoExecute}]", more, []string{byFilter}},
		"one that evicts by another class":    {"filter: {driver: gpu, deviceClassName: c}\ntaints: [{key: k, value: v, effect: NoExecute}]", more, []string{byFilter}},
		"one that evicts with another time":   {gpu + `taints: [{key: k, value: v, effect: NoExecute, timeAdded: "2026-11-20T13:00:00Z"}]`, more, nil},
		"one that evicts no longer":           {none, more, nil},
		"one that is deleted while it evicts": {"", more, nil},
		"two that evict at once": {
			gpu + "taints: [{key: k, value: v, effect: NoExecute}, {key: l, effect: NoExecute}]", "",
			[]string{at, "spec.devices.taints[1].effect (l:NoExecute)"},
		},
		"one of two": {
			gpu + "taints: [{key: k, value: v, effect: NoExecute}, {key: l, effect: NoExecute}]", none,
			[]string{"spec.devices.taints[1].effect (l:NoExecute)"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			decision := judge(t, patchInput(sre, patchChange(t, tt.now, tt.old)), p)
			want := []string{}
			for _, where := range tt.refused {
				want = append(want, "TaintPolicy/p: "+where+": evicts pods, and ResourceSlicePatch gpu-broken did not stand at effect None "+
					"with this taint and filter before; write it with effect None, read its status, then change the effect alone")
			}
			require.Equal(t, want, lines(decision))
		})
	}
	t.Run("one whose name is still to be made", func(t *testing.T) {
		change := patchChange(t, more, "")
		change.Name = ""
		require.Contains(t, lines(judge(t, patchInput(sre, change), p))[0], "the ResourceSlicePatch did not stand")
	})
}

func TestTaintsOfPatchesAreSetByWhoMay(t *testing.T) {
	const (
		gpu        = "filter: {driver: gpu}\n"
		quarantine = gpu + "taints: [{key: example.com/quarantine, effect: NoExecute}]"
	)
	p := newPolicy("p", "example.com/*", ofDevices("gpu"), setBy("sre"))
	writes := map[string]struct{ now, old, where, verb, taint string }{
		"adds it":                              {quarantine, "", "spec.devices.taints[0]", "add", ""},
		"adds it to a patch":                   {quarantine, gpu + "attributes: {d/a: {int: 1}}", "spec.devices.taints[0]", "add", ""},
		"adds it without a driver":             {"filter: {pool: n1}\ntaints: [{key: example.com/quarantine, effect: NoExecute}]", "", "spec.devices.taints[0]", "add", ""},
		"adds it by a class":                   {"filter: {deviceClassName: c}\ntaints: [{key: example.com/quarantine, effect: NoExecute}]", "", "spec.devices.taints[0]", "add", ""},
		"brings it to the driver by a filter":  {quarantine, "filter: {driver: nic}\ntaints: [{key: example.com/quarantine, effect: NoExecute}]", "spec.devices.filter", "add", ""},
		"changes its value":                    {gpu + "taints: [{key: example.com/quarantine, value: x, effect: NoExecute}]", quarantine, "spec.devices.taints[0]", "change", "example.com/quarantine=x:NoExecute"},
		"changes the filter":                   {"filter: {driver: gpu, device: d}\ntaints: [{key: example.com/quarantine, effect: NoExecute}]", quarantine, "spec.devices.filter", "change", ""},
		"removes it":                           {gpu + "attributes: {d/a: {int: 1}}", quarantine, "spec.devices.taints", "remove", ""},
		"deletes the patch":                    {"", quarantine, "spec.devices.taints", "remove", ""},
		"changes it away by another driver":    {"filter: {driver: nic}\ntaints: [{key: example.com/quarantine, effect: NoExecute}]", quarantine, "spec.devices.filter", "remove", ""},
		"replaces it by another key":           {gpu + "taints: [{key: other.org/x, effect: NoExecute}]", quarantine, "spec.devices.taints", "remove", ""},
		"replaces the whole filter by a class": {"filter: {deviceClassName: c}\ntaints: [{key: example.com/quarantine, effect: NoExecute}]", quarantine, "spec.devices.filter", "change", ""},
	}
	for name, tt := range writes {
		t.Run("bob "+name, func(t *testing.T) {
			change := patchChange(t, tt.now, tt.old)
			require.Equal(t, []string{
				"TaintPolicy/p: " + tt.where + " (" + cmp.Or(tt.taint, "example.com/quarantine:NoExecute") + "): bob may not " + tt.verb + " this taint; allowed to group sre",
			}, lines(judge(t, patchInput(outside, change), p)))
			require.Equal(t, policy.Allowed, judge(t, patchInput(sre, change), p).Verdict, "sre may")
		})
	}
	for name, tt := range map[string]struct{ now, old string }{
		"sets another key":              {gpu + "taints: [{key: other.org/x, effect: NoExecute}]", ""},
		"taints devices of others":      {"filter: {driver: nic}\ntaints: [{key: example.com/quarantine, effect: NoExecute}]", ""},
		"changes priority":              {quarantine + "\npriority: 9", quarantine},
		"changes attributes":            {quarantine + "\nattributes: {d/a: {int: 1}}", quarantine},
		"moves devices of others about": {"filter: {driver: nic, pool: p}\ntaints: [{key: example.com/quarantine, effect: NoExecute}]", "filter: {driver: nic}\ntaints: [{key: example.com/quarantine, effect: NoExecute}]"},
		"patches without taints":        {gpu + "attributes: {d/a: {int: 1}}", ""},
	} {
		t.Run("bob "+name, func(t *testing.T) {
			require.Equal(t, policy.Allowed, judge(t, patchInput(outside, patchChange(t, tt.now, tt.old)), p).Verdict)
		})
	}
	t.Run("to change a filter away takes the right to remove", func(t *testing.T) {
		changer := newPolicy("p", "example.com/*", ofDevices("gpu"), setBy("sre", v1alpha1.TaintChange))
		require.Equal(t, policy.Denied, judge(t, patchInput(sre, patchChange(t, writes["changes it away by another driver"].now, quarantine)), changer).Verdict)
		require.Equal(t, policy.Allowed, judge(t, patchInput(sre, patchChange(t, writes["changes the filter"].now, quarantine)), changer).Verdict)
	})
	t.Run("who may change what stands may not set what evicts", func(t *testing.T) {
		changer := newPolicy("p", "example.com/*", ofDevices("gpu"), setBy("sre", v1alpha1.TaintChange, v1alpha1.TaintRemove))
		none := gpu + "taints: [{key: example.com/quarantine, effect: None}]"
		require.Equal(t, policy.Denied, judge(t, patchInput(sre, patchChange(t, quarantine, none)), changer).Verdict)
	})
}

func TestTheTimeOfATaintOfAPatchIsNearToThePresent(t *testing.T) {
	const gpu = "filter: {driver: gpu}\n"
	taint := func(effect string, since time.Time) string {
		return gpu + "taints: [{key: k, effect: " + effect + ", timeAdded: \"" + metav1.NewTime(since).UTC().Format(time.RFC3339) + "\"}]"
	}
	far := noon.Add(-time.Hour)
	p := newPolicy("p", "*", ofDevices("gpu"), setBy("sre"), limited(v1alpha1.TaintLimits{MaxTimeAddedSkew: duration(time.Minute)}))
	for name, tt := range map[string]struct {
		now, old string
		refused  bool
	}{
		"none is given":                         {now: gpu + "taints: [{key: k, effect: NoExecute}]"},
		"one that is near":                      {now: taint("NoExecute", noon.Add(-time.Minute))},
		"one that is past":                      {now: taint("NoExecute", far), refused: true},
		"one that is to come":                   {now: taint("NoExecute", noon.Add(time.Hour)), refused: true},
		"one that stood":                        {now: taint("NoExecute", far), old: taint("NoExecute", far)},
		"one that stood, for other devices":     {now: strings.Replace(taint("NoExecute", far), "gpu", "gpu, pool: p", 1), old: taint("NoExecute", far)},
		"one that stood for another driver":     {now: taint("NoExecute", far), old: strings.Replace(taint("NoExecute", far), "gpu", "nic", 1), refused: true},
		"that of another effect is another one": {now: taint("NoExecute", far), old: taint("None", far), refused: true},
		"one that goes":                         {now: gpu + "attributes: {d/a: {int: 1}}", old: taint("NoExecute", far)},
	} {
		t.Run(name, func(t *testing.T) {
			decision := judge(t, patchInput(sre, patchChange(t, tt.now, tt.old)), p)
			want := []policy.Reason{}
			if tt.refused {
				want = append(want, policy.TimeAddedSkewed)
			}
			require.Equal(t, want, reasons(decision), "%v", lines(decision))
		})
	}
}

func TestPatchesAreJudgedByRBACAndExpressionsLikeRules(t *testing.T) {
	change := patchChange(t, "taints: [{key: example.com/a, value: v, effect: NoExecute}]", "")
	p := newPolicy("p", "*", ofDevices(), setWhere(`operation == 'Add' && taint.key == 'example.com/a' && taint.value == 'v' && taint.effect == 'NoExecute'`))
	require.Equal(t, policy.Allowed, judge(t, patchInput(outside, change), p).Verdict)
	change.New.Taints = slices.Concat(change.New.Taints, []v1alpha1.PatchedTaint{{Key: "b", Effect: resourcev1.DeviceTaintEffectNone}})
	require.Equal(t, policy.Denied, judge(t, patchInput(outside, change), p).Verdict)
}
