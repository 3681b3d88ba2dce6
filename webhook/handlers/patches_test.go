package handlers

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// patchJSON returns a patch that does what devices say, in JSON.
func patchJSON(devices string) string {
	return `{"metadata":{"name":"gpu-broken","uid":"1"},"spec":{"devices":{` + devices + `}}}`
}

// patchReview is the review of a write of a patch: of its creation if old is empty, and of
// its deletion if now is.
func patchReview(t *testing.T, now, old string) admissionv1.AdmissionReview {
	t.Helper()
	operation := admissionv1.Update
	switch {
	case old == "":
		operation = admissionv1.Create
	case now == "":
		operation, now = admissionv1.Delete, "null"
	}
	review := policyReview(t, operation, "resourceslicepatches", now, old)
	review.Request.Name = "gpu-broken"
	return review
}

func patchesJudgedBy(policies ...v1alpha1.TaintPolicy) Handler {
	return governedBy(policies...).handler(request.validatePatch)
}

func TestWritesOfPatchesAreGoverned(t *testing.T) {
	const (
		gpu  = `"filter":{"driver":"gpu"}`
		pool = `"filter":{"driver":"gpu","pool":"p"}`
		rack = `,"attributes":{"example.com/rack":{"int":7}}`
	)
	taint := func(key, effect string) string { return `,"taints":[{"key":"` + key + `","effect":"` + effect + `"}]` }
	quarantine := patchJSON(gpu + taint("example.com/quarantine", "NoSchedule"))
	going := strings.Replace(quarantine, `"uid":"1"`, `"uid":"1","deletionTimestamp":"2026-11-20T12:00:00Z","finalizers":["a/b"]`, 1)
	bob, sre := []string{"bob"}, []string{"ann", "sre"}
	tests := map[string]struct {
		user             []string
		now, old, reason string
	}{
		"bob creates one":                              {bob, quarantine, "", "TaintNotGranted"},
		"sre creates one":                              {sre, quarantine, "", ""},
		"Tollgate creates one":                         {[]string{"system:serviceaccount:tollgate-system:tollgate"}, quarantine, "", ""},
		"bob creates one without taints":               {bob, patchJSON(gpu + rack), "", ""},
		"bob creates one that no policy governs":       {bob, patchJSON(gpu + taint("example.org/free", "NoExecute")), "", ""},
		"bob taints with one":                          {bob, quarantine, patchJSON(gpu), "TaintNotGranted"},
		"bob changes the attributes":                   {bob, patchJSON(gpu + taint("example.com/quarantine", "NoSchedule") + rack), quarantine, ""},
		"bob changes the priority":                     {bob, patchJSON(gpu + `,"priority":7` + taint("example.com/quarantine", "NoSchedule")), quarantine, ""},
		"bob changes the filter":                       {bob, patchJSON(pool + taint("example.com/quarantine", "NoSchedule")), quarantine, "TaintNotGranted"},
		"bob changes the effect to None":               {bob, patchJSON(gpu + taint("example.com/quarantine", "None")), quarantine, "*"},
		"bob takes the taint away":                     {bob, patchJSON(gpu), quarantine, "TaintNotGranted"},
		"bob changes the key":                          {bob, patchJSON(gpu + taint("example.org/free", "NoSchedule")), quarantine, "TaintNotGranted"},
		"bob deletes it":                               {bob, "", quarantine, "TaintNotGranted"},
		"sre deletes it":                               {sre, "", quarantine, ""},
		"bob deletes one without governed taints":      {bob, "", patchJSON(gpu + taint("example.org/free", "NoExecute")), ""},
		"the garbage collector is not a way around":    {[]string{collectors[0]}, "", quarantine, "TaintNotGranted"},
		"bob labels it":                                {bob, strings.Replace(quarantine, `"uid":"1"`, `"uid":"1","labels":{"a":"b"}`, 1), quarantine, ""},
		"bob takes its last finalizer":                 {bob, strings.Replace(going, `,"finalizers":["a/b"]`, "", 1), going, ""},
		"bob lifts a taint of one that is on its way":  {bob, strings.Replace(going, gpu+taint("example.com/quarantine", "NoSchedule"), gpu, 1), going, "TaintNotGranted"},
		"sre taints every device":                      {sre, patchJSON(taint("example.com/quarantine", "None")[1:]), "", "SelectorRequired"},
		"sre takes the filter away":                    {sre, patchJSON(taint("example.com/quarantine", "NoSchedule")[1:]), quarantine, "SelectorRequired"},
		"sre evicts at once":                           {sre, patchJSON(gpu + taint("example.com/quarantine", "NoExecute")), "", "PreviewRequired"},
		"sre evicts where it stood at None":            {sre, patchJSON(gpu + taint("example.com/quarantine", "NoExecute")), patchJSON(gpu + taint("example.com/quarantine", "None")), ""},
		"sre evicts where it stood for others at None": {sre, patchJSON(gpu + taint("example.com/quarantine", "NoExecute")), patchJSON(pool + taint("example.com/quarantine", "None")), "PreviewRequired"},
	}
	policies := taintPolicies()
	policies[0].Spec.Limits = &v1alpha1.TaintLimits{RequireSelector: true, RequirePreview: true}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			response := judged(t, patchesJudgedBy(policies...), asUser(patchReview(t, tt.now, tt.old), tt.user[0], tt.user[1:]...))
			if tt.reason == "*" {
				require.False(t, response.Allowed)
				require.Len(t, response.Result.Details.Causes, 2, "the one effect is removed and the other added")
				return
			}
			requireReason(t, tt.reason, response)
		})
	}
}

func TestWhatAPatchIsRefusedFor(t *testing.T) {
	const evicting = `"taints":[{"key":"example.com/fine","effect":"None"},{"key":"example.com/quarantine","value":"x","effect":"NoExecute"}]`
	policies := taintPolicies()[:1]
	policies[0].Spec.Limits = &v1alpha1.TaintLimits{RequireSelector: true, RequirePreview: true, MaxTimeAddedSkew: &metav1.Duration{Duration: time.Minute}}
	require.Equal(t, strings.Join([]string{
		"TaintPolicy/sre-only: spec.devices.filter: asks for nothing: ResourceSlicePatch gpu-broken taints every device; " +
			"ask for a class, a driver, a pool or a device, or for what an expression says",
		"TaintPolicy/sre-only: spec.devices.taints[0] (example.com/fine:None): bob may not add this taint; allowed to group sre",
		"TaintPolicy/sre-only: spec.devices.taints[1] (example.com/quarantine=x:NoExecute): bob may not add this taint; allowed to group sre",
		"TaintPolicy/sre-only: spec.devices.taints[1].effect (example.com/quarantine=x:NoExecute): evicts pods, and ResourceSlicePatch gpu-broken did not " +
			"stand at effect None with this taint and filter before; write it with effect None, read its status, then change the effect alone",
	}, "; "), refusal(t, policies, patchJSON(evicting), ""))

	past := strings.Replace(evicting, `"effect":"None"`, `"effect":"None","timeAdded":"2026-11-20T11:00:00Z"`, 1)
	require.Contains(t, refusal(t, policies, patchJSON(past), ""),
		"spec.devices.taints[0] (example.com/fine:None since 2026-11-20T11:00:00Z): has a time that is 1h0m0s before the present; "+
			"leave timeAdded out to have it set, or give one within 1m0s of the present")

	require.Contains(t, refusal(t, policies, patchJSON(`"filter":{"driver":""},`+evicting), ""), "spec.devices.filter.driver: Required value",
		"what is not valid is said beside what is not allowed")
	require.Contains(t, refusal(t, policies, "", patchJSON(evicting)), "spec.devices.taints (example.com/quarantine=x:NoExecute): bob may not remove this taint")
}

// One that was stored while nobody judged did nothing as long as it was not valid.
func TestWhoRepairsAPatchIsAskedAboutItsTaints(t *testing.T) {
	const taints = `"filter":{"driver":"gpu"},"taints":[{"key":"example.com/quarantine","effect":"NoExecute"}]`
	broken := patchJSON(taints + `,"attributes":{"bare":{"int":1}}`)
	require.Contains(t, refusal(t, taintPolicies()[:1], patchJSON(taints), broken), "bob may not add this taint")
	labelled := strings.Replace(broken, `"uid":"1"`, `"uid":"1","labels":{"a":"b"}`, 1)
	require.NotEqual(t, broken, labelled)
	require.True(t, judged(t, patchesJudgedBy(taintPolicies()[:1]...), asUser(patchReview(t, labelled, broken), "bob")).Allowed)
}

// refusal returns what bob is told.
func refusal(t *testing.T, policies []v1alpha1.TaintPolicy, now, old string) string {
	t.Helper()
	response := judged(t, patchesJudgedBy(policies...), asUser(patchReview(t, now, old), "bob"))
	require.False(t, response.Allowed)
	return response.Result.Message
}

func TestAPatchWhoseTaintsStayNeedsNoPolicies(t *testing.T) {
	j := by(governedBy(), currentPolicies{(*policyset.Set)(nil)}).handler(request.validatePatch)
	const taints = `"filter":{"driver":"gpu"},"taints":[{"key":"example.com/a","effect":"NoExecute"}]`
	for name, tt := range map[string]struct {
		now, old string
		fault    error
	}{
		"one without taints":         {patchJSON(`"filter":{"driver":"gpu"}`), "", nil},
		"one whose taints stay":      {patchJSON(taints + `,"priority":7`), patchJSON(taints), nil},
		"one without taints deleted": {"", patchJSON(`"filter":{"driver":"gpu"}`), nil},
		"one with taints":            {patchJSON(taints), "", errNoPolicies},
		"one with taints is deleted": {"", patchJSON(taints), errNoPolicies},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := readRequest(marshal(t, asUser(patchReview(t, tt.now, tt.old), "bob")))
			require.NoError(t, err)
			response, err := answer(t.Context(), j, req)
			require.ErrorIs(t, err, tt.fault)
			require.Equal(t, tt.fault == nil, response.Allowed)
		})
	}
}

func TestAPatchThatIsNotValidIsJudgedWhereItChanges(t *testing.T) {
	const bad = `"filter":{"driver":""}`
	for name, tt := range map[string]struct{ now, old, reason string }{
		"it is created":                {patchJSON(bad), "", "Invalid"},
		"it comes to be":               {patchJSON(bad), patchJSON(`"filter":{"driver":"gpu"}`), "Invalid"},
		"it changes":                   {patchJSON(bad + `,"priority":7`), patchJSON(bad), "Invalid"},
		"it stays":                     {patchJSON(bad), patchJSON(bad), ""},
		"it is deleted":                {"", patchJSON(bad), ""},
		"it changes, and is going":     {strings.Replace(patchJSON(bad+`,"priority":7`), `"uid":"1"`, `"deletionTimestamp":"2026-11-20T12:00:00Z"`, 1), patchJSON(bad), ""},
		"its taints are too many":      {patchJSON(`"taints":[` + strings.Repeat(`{"key":"example.com/a","effect":"None"},`, 16) + `{"key":"example.com/a","effect":"None"}]`), "", "Invalid"},
		"its effect is none that is":   {patchJSON(`"taints":[{"key":"example.com/a","effect":"Later"}]`), "", "Invalid"},
		"its key is none that can be":  {patchJSON(`"taints":[{"key":"a b","effect":"None"}]`), "", "Invalid"},
		"it has nothing that is known": {`{"metadata":{"name":"gpu-broken"}}`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			requireReason(t, tt.reason, judged(t, patchesJudgedBy(), asUser(patchReview(t, tt.now, tt.old), "bob")))
		})
	}
	t.Run("what no API server sends is no verdict", func(t *testing.T) {
		for _, broken := range [][2]string{{`{"spec":7}`, ""}, {`{"spec":7}`, patchJSON("")}, {patchJSON(""), `{"spec":7}`}, {"", `{"spec":7}`}} {
			req, err := readRequest(marshal(t, patchReview(t, broken[0], broken[1])))
			require.NoError(t, err)
			_, err = answer(t.Context(), patchesJudgedBy(), req)
			require.ErrorContains(t, err, "ResourceSlicePatch")
		}
	})
}

func TestTaintsOfAPatchThatAreProbablyNotMeantAreWarnedAbout(t *testing.T) {
	const gpu, odd = `"filter":{"driver":"gpu.example.com"},`, `"taints":[{"key":"gpu.example.com/a","effect":"None","timeAdded":"2026-11-20T13:00:00Z"}]`
	warnings := func(now, old string) []string {
		response := judged(t, patchesJudgedBy(), asUser(patchReview(t, now, old), "bob"))
		require.True(t, response.Allowed)
		return response.Warnings
	}
	require.Equal(t, []string{
		"spec.devices.taints[0].timeAdded: 2026-11-20T13:00:00Z is 59m59s ahead: the scheduler obeys the taint at once, but no pod is evicted for it before then",
		`spec.devices.taints[0].key: "gpu.example.com/a" is in the domain of driver "gpu.example.com", which says what the key means: use a domain of your own`,
	}, warnings(patchJSON(gpu+odd), ""))
	require.Empty(t, warnings(patchJSON(gpu+`"priority":7,`+odd), patchJSON(gpu+odd)))
	require.Empty(t, warnings("", patchJSON(gpu+odd)))
	require.Equal(t, []string{"spec.devices.filter asks for nothing: the patch is for every device of every driver"},
		warnings(patchJSON(`"taints":[{"key":"admin.example.org/a","effect":"NoSchedule"}]`), ""))
}
