package handlers

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// operations returns the patch of a response, a line for each operation.
func operations(response admission.Response) []string {
	lines := make([]string, 0, len(response.Patches))
	for _, p := range response.Patches {
		lines = append(lines, fmt.Sprintf("%s %s %v", p.Operation, p.Path, p.Value))
	}
	return lines
}

func TestAV17TheTimeOfARuleIsThatOfItsEffect(t *testing.T) {
	const noonText = "2026-11-20T12:00:00Z"
	rule := func(key, effect, time string) string {
		if time != "" {
			time = `,"timeAdded":"` + time + `"`
		}
		return `{"spec":{"deviceSelector":{"driver":"d"},"taint":{"key":"` + key + `","effect":"` + effect + `"` + time + `}},"status":{"conditions":[]}}`
	}
	const since = "2026-11-01T00:00:00Z"
	tests := map[string]struct{ old, new, want string }{
		"AV-06 a new rule without a time":           {new: rule("k", "NoExecute", ""), want: noonText},
		"a new rule with a time":                    {new: rule("k", "NoExecute", since), want: since},
		"AV-17 the effect changes":                  {old: rule("k", "None", since), new: rule("k", "NoExecute", since), want: noonText},
		"AV-17 the effect and the time change":      {old: rule("k", "None", since), new: rule("k", "NoExecute", "2026-11-02T00:00:00Z"), want: "2026-11-02T00:00:00Z"},
		"AV-17 the key changes":                     {old: rule("k", "NoExecute", since), new: rule("l", "NoExecute", since), want: since},
		"AV-18 a write with the API server's time":  {old: rule("k", "NoExecute", since), new: rule("k", "NoExecute", noonText), want: noonText},
		"a status that changes beside the old spec": {old: rule("k", "NoExecute", since), new: rule("k", "NoExecute", since), want: since},
	}
	for name, tt := range tests {
		for _, version := range []string{"v1", "v1beta2", "v1alpha3"} {
			t.Run(name+" in "+version, func(t *testing.T) {
				endpoint := Mutate(atNoon())
				stored := patched(t, tt.new, judgeNode(t, endpoint, deviceReview(t, "devicetaintrules", version, tt.new, tt.old)))
				var got resourcev1.DeviceTaintRule
				require.NoError(t, json.Unmarshal([]byte(stored), &got))
				require.Equal(t, tt.want, got.Spec.Taint.TimeAdded.UTC().Format(time.RFC3339))
				again := deviceReview(t, "devicetaintrules", version, stored, tt.old)
				require.Empty(t, judgeNode(t, endpoint, again).Patches, "a second round changes nothing")
			})
		}
	}
}

func TestTheMutatorLeavesInvalidRulesToTheAPIServer(t *testing.T) {
	for _, object := range []string{`{}`, `{"spec":null}`, `{"spec":{}}`, `{"spec":{"taint":null}}`, `{"spec":{"taint":{"effect":"NoExecute"}}}`} {
		require.Empty(t, operations(judgeNode(t, Mutate(atNoon()), deviceReview(t, "devicetaintrules", "v1", object, ""))))
	}
	object := `{"spec":{"taint":{"key":"no key","effect":"x"}}}`
	require.Equal(t, []string{"test /spec/taint/key no key", "add /spec/taint/timeAdded 2026-11-20T12:00:00Z"},
		operations(judgeNode(t, Mutate(atNoon()), deviceReview(t, "devicetaintrules", "v1", object, ""))))
}

func TestARuleIsJudged(t *testing.T) {
	const fine = `"taint":{"key":"admin.example.org/k","effect":"NoExecute"}`
	tests := map[string]struct {
		old, new string
		denied   []string
		warned   []string
	}{
		"a rule as it should be":             {new: `{"spec":{"deviceSelector":{"driver":"d"},` + fine + `}}`},
		"DE-20 the empty selector":           {new: `{"spec":{"deviceSelector":{},` + fine + `}}`, warned: []string{"EVERY device"}},
		"DE-20 no selector":                  {new: `{"spec":{"deviceSelector":null,` + fine + `}}`, warned: []string{"no device is selected"}},
		"AV-14 K10 an empty driver":          {new: `{"spec":{"deviceSelector":{"driver":""},` + fine + `}}`, denied: []string{"spec.deviceSelector.driver: Required value"}},
		"AV-14 a device that is no label":    {new: `{"spec":{"deviceSelector":{"pool":"p","device":"A"},` + fine + `}}`, denied: []string{"spec.deviceSelector.device"}},
		"AV-15 no taint":                     {new: `{"spec":{"deviceSelector":{"pool":"p"}}}`, denied: []string{"spec.taint.key: Required value", "spec.taint.effect: Required value"}},
		"AV-15 a new unknown effect":         {new: `{"spec":{"deviceSelector":{"pool":"p"},"taint":{"key":"a.b/k","effect":"x"}}}`, warned: []string{"does what None does"}},
		"AV-15 an unknown effect that stays": {old: `{"spec":{"deviceSelector":{"pool":"p"},"taint":{"key":"a.b/l","effect":"x"}}}`, new: `{"spec":{"deviceSelector":{"pool":"p"},"taint":{"key":"a.b/k","effect":"x"}}}`, warned: []string{"does what None does"}},
		"AV-15 a status beside the old spec": {old: `{"spec":{"taint":{"key":"no key","effect":"x"}}}`, new: `{"spec":{"taint":{"key":"no key","effect":"x"}},"status":{"conditions":[]}}`},
	}
	for name, tt := range tests {
		for _, version := range []string{"v1", "v1beta2", "v1alpha3"} {
			t.Run(name+" in "+version, func(t *testing.T) {
				response := judgeNode(t, Validate(atNoon()), deviceReview(t, "devicetaintrules", version, tt.new, tt.old))
				require.Equal(t, len(tt.denied) == 0, response.Allowed)
				for _, text := range tt.denied {
					require.Contains(t, response.Result.Message, text)
				}
				require.Len(t, response.Warnings, len(tt.warned), "%v", response.Warnings)
				for i, text := range tt.warned {
					require.Contains(t, response.Warnings[i], text)
				}
			})
		}
	}
}

func TestVS03ARuleWhoseSelectorIsNotUnderstoodIsRefused(t *testing.T) {
	rule := func(selector, key string) string {
		return `{"metadata":{"name":"r"},"spec":{"deviceSelector":{` + selector + `},"taint":{"key":"admin.example.org/` + key + `","effect":"None"}}}`
	}
	const class, expressions = `"deviceClassName":"c"`, `"selectors":[{"cel":{"expression":"true"}}]`
	const refusal = ": Forbidden: not supported by this version of Tollgate, for which the rule selects nothing; select by driver, pool or device"
	tests := map[string]struct {
		old, new string
		denied   []string
	}{
		"VS-03 a class":                              {new: rule(class, "k"), denied: []string{"spec.deviceSelector.deviceClassName" + refusal}},
		"VS-03 expressions beside a driver":          {new: rule(`"driver":"d",`+expressions, "k"), denied: []string{"spec.deviceSelector.selectors" + refusal}},
		"VS-03 both, and a driver that is none":      {new: rule(class+`,"driver":"",`+expressions, "k"), denied: []string{"spec.deviceSelector.deviceClassName" + refusal, "spec.deviceSelector.selectors" + refusal, "spec.deviceSelector.driver: Required"}},
		"VS-03 a class comes to a driver":            {old: rule(`"driver":"d"`, "k"), new: rule(`"driver":"d",`+class, "k"), denied: []string{"deviceClassName" + refusal}},
		"VS-03 another expression":                   {old: rule(expressions, "k"), new: rule(`"selectors":[{"cel":{"expression":"false"}}]`, "k"), denied: []string{"selectors" + refusal}},
		"VS-03 another taint under the old selector": {old: rule(class, "k"), new: rule(class, "l")},
		"VS-03 the class gives way to a driver":      {old: rule(class, "k"), new: rule(`"driver":"d"`, "k")},
		"VS-03 what stood there is not judged again": {old: rule(class+`,`+expressions, "k"), new: `{"metadata":{"labels":{"a":"b"}},` + rule(class+`,`+expressions, "k")[len(`{"metadata":{"name":"r"},`):]},
	}
	obeying := atNoon()
	obeying.DeviceTaints = obstacles{}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			review := deviceReview(t, "devicetaintrules", "v1alpha3", tt.new, tt.old)
			require.True(t, judgeNode(t, Mutate(atNoon()), review).Allowed, "the mutator never refuses")
			response := judgeNode(t, Validate(obeying), review)
			require.Equal(t, len(tt.denied) == 0, response.Allowed)
			require.Empty(t, response.Warnings)
			for _, text := range tt.denied {
				require.Contains(t, response.Result.Message, text)
			}
		})
	}
	for _, version := range []string{"v1", "v1beta2"} {
		review := deviceReview(t, "devicetaintrules", version, rule(`"later":"c","driver":"d"`, "k"), "")
		response := judgeNode(t, Validate(obeying), review)
		require.True(t, response.Allowed, "a field of a later version")
		require.Equal(t, []string{"spec.deviceSelector has fields that this version of Tollgate does not know (later): to Tollgate the rule selects nothing, and nobody is evicted for it"}, response.Warnings)
	}
	review := deviceReview(t, "devicetaintrules", "v1alpha3", rule(class, "k"), "")
	require.True(t, judgeNode(t, Validate(atNoon()), review).Allowed, "where Tollgate does not act on rules")
}

func TestARuleThatNoAPIServerWouldSendIsNotJudged(t *testing.T) {
	for _, object := range []string{`{"spec":1}`, `{"spec":{"taint":[]}}`, `{"spec":{"taint":{"key":"a","key":"b"}}}`, `{"spec":{"taint":{"timeAdded":"noon"}}}`} {
		for _, endpoint := range []*Endpoint{Mutate(atNoon()), Validate(atNoon())} {
			req, err := readRequest(marshal(t, deviceReview(t, "devicetaintrules", "v1", object, "")))
			require.NoError(t, err)
			_, err = answer(t.Context(), endpoint.Review, req)
			var bad *badReviewError
			require.ErrorAs(t, err, &bad, object)
		}
	}
}
