package toleration

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// claimOf is a claim in namespace apple with one request of a class, and another one
// that tolerates nothing.
func claimOf(t *testing.T, class string, tolerates ...string) Input {
	t.Helper()
	requests := field.NewPath("spec", "devices", "requests")
	in := inputOf("apple")
	in.Path, in.OfDevices = nil, true
	in.Claim = []byte(`{"metadata": {"labels": {"a": "b"}}, "spec": {}}`)
	in.Asked = []Asked{
		{Path: requests.Index(0).Child("firstAvailable").Index(1).Child("tolerations"), Class: "nic"},
		{Path: requests.Index(1).Child("exactly", "tolerations"), Class: class, New: devicesOf(t, tolerates...)},
	}
	return in
}

func devicesOf(t *testing.T, lines ...string) []corev1.Toleration {
	t.Helper()
	list := make([]resourcev1.DeviceToleration, len(lines))
	for i, line := range lines {
		require.NoError(t, yaml.UnmarshalStrict([]byte(line), &list[i]))
	}
	return selector.FromDevices(list)
}

func TestJudgeDevices(t *testing.T) {
	const (
		guarded  = `taints: [{target: Device, key: example.com/broken, deviceClasses: [gpu]}]`
		tolerate = `{key: example.com/broken, operator: Exists, effect: NoExecute}`
	)
	tests := map[string]struct {
		spec      string
		class     string
		tolerates string
		allowed   bool
	}{
		"nobody is granted":                                           {`{` + guarded + `}`, "gpu", tolerate, false},
		"another class":                                               {`{` + guarded + `}`, "disk", tolerate, true},
		"a class that is not known":                                   {`{` + guarded + `}`, "", tolerate, false},
		"a namespace that is granted":                                 {`{` + guarded + `, grants: [{namespaces: [apple]}]}`, "gpu", tolerate, true},
		"a taint of nodes is guarded":                                 {`{taints: [{key: "*"}]}`, "gpu", tolerate, true},
		"C17 a wildcard":                                              {`{` + guarded + `}`, "gpu", `{operator: Exists}`, false},
		"AV-12 every key with a value":                                {`{taints: [{target: Device, key: example.com/broken, values: ["yes"]}]}`, "gpu", `{operator: Equal, value: "yes"}`, false},
		"B12 an operator not known may match every value":             {`{taints: [{target: Device, key: example.com/broken, values: ["yes"]}]}`, "gpu", `{key: example.com/broken, operator: Like, value: "no"}`, false},
		"B12 an operator of nodes may match every value":              {`{taints: [{target: Device, key: example.com/broken, values: ["yes"]}]}`, "gpu", `{key: example.com/broken, operator: Gt, value: "5"}`, false},
		"B12 an operator not known without a key may match every key": {`{` + guarded + `}`, "gpu", `{operator: Like}`, false},
		"B12 an effect not known may be every effect":                 {`{taints: [{target: Device, key: example.com/broken, effects: [NoExecute]}]}`, "gpu", `{key: example.com/broken, operator: Exists, effect: Later}`, false},
		"B12 an effect not known is not within any time":              {`{` + guarded + `, grants: [{namespaces: [apple], maxTolerationSeconds: 300}]}`, "gpu", `{key: example.com/broken, operator: Exists, effect: Later, tolerationSeconds: 5}`, false},
		"within the time":                                             {`{` + guarded + `, grants: [{namespaces: [apple], maxTolerationSeconds: 300}]}`, "gpu", `{key: example.com/broken, operator: Exists, effect: NoExecute, tolerationSeconds: 300}`, true},
		"longer":                                                      {`{` + guarded + `, grants: [{namespaces: [apple], maxTolerationSeconds: 300}]}`, "gpu", `{key: example.com/broken, operator: Exists, effect: NoExecute, tolerationSeconds: 301}`, false},
		"seconds without effect are for ever":                         {`{` + guarded + `, grants: [{namespaces: [apple], maxTolerationSeconds: 300}]}`, "gpu", `{key: example.com/broken, operator: Exists, tolerationSeconds: 5}`, false},
		"time does not matter to NoSchedule":                          {`{` + guarded + `, grants: [{namespaces: [apple], maxTolerationSeconds: 300}]}`, "gpu", `{key: example.com/broken, operator: Exists, effect: NoSchedule}`, true},
		"nothing of a device is the system's":                         {`{taints: [{target: Device, key: "*"}]}`, "gpu", `{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}`, false},
		"an expression sees the claim":                                {`{` + guarded + `, grants: [{expression: "claim.metadata.labels.a == 'b' && pod == null"}]}`, "gpu", tolerate, true},
		"an expression sees a toleration of devices":                  {`{` + guarded + `, grants: [{expression: "toleration.key == 'example.com/broken' && toleration.effect == 'NoExecute'"}]}`, "gpu", tolerate, true},
		"labels of the claim":                                         {`{` + guarded + `, grants: [{namespaces: [apple], objectSelector: {matchLabels: {a: c}}}]}`, "gpu", tolerate, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := policyOf(t, "p", tt.spec)
			require.Empty(t, ValidatePolicy(&p))
			in := claimOf(t, tt.class, tt.tolerates)
			got := judge(t, Compile([]v1alpha1.TolerationPolicy{p}), in)
			require.Equal(t, tt.allowed, got.Verdict == policy.Allowed, "%v", got.Findings)
			for _, f := range got.Findings {
				require.Equal(t, "spec.devices.requests[1].exactly.tolerations[0]", f.Field)
			}
		})
	}
}

func TestATolerationOfTheTemplateIsNotJudgedInItsClaim(t *testing.T) {
	set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "p", `{taints: [{target: Device, key: "*"}]}`)})
	in := claimOf(t, "gpu", `{key: a, operator: Exists}`, `{key: b, operator: Exists}`)
	in.Asked[1].Old = devicesOf(t, `{key: b, operator: Exists}`)
	requireRefused(t, []string{"p spec.devices.requests[1].exactly.tolerations[0]"}, judge(t, set, in))
}

func TestAFindingAboutADevice(t *testing.T) {
	set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "p", `{
		taints: [{target: Device, key: "gpu.example.com/*", effects: [NoExecute], deviceClasses: [gpu, nic]}],
		grants: [{namespaces: [banana]}, {rbac: true, maxTolerationSeconds: 60}]}`)})
	in := claimOf(t, "gpu", `{key: gpu.example.com/hot, operator: Exists}`)
	in.User.Username = "joe"
	got := judge(t, set, in)
	require.Len(t, got.Findings, 1)
	require.Equal(t, "TolerationPolicy/p: spec.devices.requests[1].exactly.tolerations[0] (key=gpu.example.com/hot operator=Exists): "+
		"could tolerate gpu.example.com/*:NoExecute of devices of class gpu, nic, which is not granted to user joe in namespace apple; "+
		"allowed in namespaces banana or to whom RBAC allows the verb tolerate on taints.tollgate.dev (NoExecute for at most 60s)",
		got.Findings[0].String())
	require.Equal(t, policy.TolerationNotGranted, got.Findings[0].Reason)
}
