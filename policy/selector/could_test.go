package selector

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// selectorOf reads a selector as a user would write it.
func selectorOf(t *testing.T, line string) Selector {
	t.Helper()
	var sel v1alpha1.TaintSelector
	require.NoError(t, yaml.UnmarshalStrict([]byte(line), &sel))
	return Compile(&sel)
}

func TestCouldTolerateATaintOfANode(t *testing.T) {
	const dedicated = "{key: dedicated, values: [banana], effects: [NoSchedule, NoExecute]}"
	tests := map[string]struct {
		tolerates string
		selector  string
		want      bool
	}{
		"C17 Exists without key tolerates everything":                {`{operator: Exists}`, dedicated, true},
		"C17 Exists without key tolerates everything of its effect":  {`{operator: Exists, effect: NoExecute}`, dedicated, true},
		"a wildcard of another effect tolerates nothing guarded":     {`{operator: Exists, effect: PreferNoSchedule}`, dedicated, false},
		"C17 negative seconds tolerate all the same":                 {`{operator: Exists, effect: NoExecute, tolerationSeconds: -1}`, dedicated, true},
		"the key alone tolerates every value":                        {`{key: dedicated, operator: Exists}`, dedicated, true},
		"the same key and value":                                     {`{key: dedicated, operator: Equal, value: banana}`, dedicated, true},
		"AV-23 an empty operator is Equal":                           {`{key: dedicated, value: banana}`, dedicated, true},
		"another value":                                              {`{key: dedicated, value: apple}`, dedicated, false},
		"no value is a value":                                        {`{key: dedicated}`, dedicated, false},
		"another key":                                                {`{key: dedicate, operator: Exists}`, dedicated, false},
		"another case is another key":                                {`{key: Dedicated, operator: Exists}`, dedicated, false},
		"NE-29 no effect is every effect":                            {`{key: dedicated, value: banana}`, `{key: dedicated, effects: [NoExecute]}`, true},
		"no effects guard every effect":                              {`{key: dedicated, operator: Exists, effect: PreferNoSchedule}`, `{key: dedicated}`, true},
		"no key with Equal is every key with that value":             {`{operator: Equal, value: banana}`, dedicated, true},
		"no key with Equal and another value":                        {`{operator: Equal, value: apple}`, dedicated, false},
		"B12 an unknown operator may match":                          {`{key: dedicated, operator: Like, value: x}`, dedicated, true},
		"B12 an unknown operator still has its key":                  {`{key: other, operator: Like, value: x}`, dedicated, false},
		"B12 an unknown effect may be any":                           {`{key: dedicated, value: banana, effect: NoAdmit}`, dedicated, true},
		"VS-07 Lt above a listed number":                             {`{key: tier, operator: Lt, value: "6"}`, `{key: tier, values: ["5", "9"]}`, true},
		"VS-07 Lt at the least listed number":                        {`{key: tier, operator: Lt, value: "5"}`, `{key: tier, values: ["5", "9"]}`, false},
		"VS-07 Gt below a listed number":                             {`{key: tier, operator: Gt, value: "8"}`, `{key: tier, values: ["5", "9"]}`, true},
		"VS-07 Gt at the largest listed number":                      {`{key: tier, operator: Gt, value: "9"}`, `{key: tier, values: ["5", "9"]}`, false},
		"AV-26 words are not compared":                               {`{key: tier, operator: Gt, value: "0"}`, `{key: tier, values: [gold, "05"]}`, false},
		"Lt without values may match":                                {`{key: tier, operator: Lt, value: "0"}`, `{key: tier}`, true},
		"nothing is less than the least number":                      {`{key: tier, operator: Lt, value: "-9223372036854775808"}`, `{key: tier}`, false},
		"nothing is greater than the greatest number":                {`{key: tier, operator: Gt, value: "9223372036854775807"}`, `{key: tier}`, false},
		"a number that cannot be compared may be less":               {`{key: tier, operator: Lt, value: "1.5"}`, `{key: tier, values: ["1"]}`, true},
		"a number that cannot be compared may match":                 {`{key: tier, operator: Gt, value: "1.5"}`, `{key: tier, values: ["1"]}`, true},
		"a prefix guards the keys below it":                          {`{key: example.com/gpu, operator: Exists}`, `{key: example.com/*}`, true},
		"a prefix ends at the slash":                                 {`{key: example.company/gpu, operator: Exists}`, `{key: example.com/*}`, false},
		"a prefix is not a key":                                      {`{key: example.com, operator: Exists}`, `{key: example.com/*}`, false},
		"a prefix does not reach below other prefixes":               {`{key: a.example.com/gpu, operator: Exists}`, `{key: example.com/*}`, false},
		"the star guards every key":                                  {`{key: dedicated, operator: Exists}`, `{key: "*"}`, true},
		"the star guards keys of node roles":                         {`{key: node-role.kubernetes.io/control-plane, operator: Exists}`, `{key: "*"}`, true},
		"the star leaves out the node's own keys":                    {`{key: node.kubernetes.io/unschedulable, operator: Exists}`, `{key: "*"}`, false},
		"the star leaves out the cloud provider's keys":              {`{key: node.cloudprovider.kubernetes.io/shutdown, operator: Exists}`, `{key: "*"}`, false},
		"the star takes a wildcard":                                  {`{operator: Exists}`, `{key: "*"}`, true},
		"system keys are guarded by name":                            {`{key: node.kubernetes.io/unschedulable, operator: Exists}`, `{key: node.kubernetes.io/unschedulable}`, true},
		"system keys are guarded by prefix":                          {`{key: node.kubernetes.io/unschedulable, operator: Exists}`, `{key: node.kubernetes.io/*}`, true},
		"a selector of devices guards no node taint":                 {`{operator: Exists}`, `{target: Device, key: "*"}`, false},
		"an unknown pattern guards what its author may have meant":   {`{key: gpu-large, operator: Exists}`, `{key: gpu-*}`, true},
		"an unknown pattern guards nothing that begins differently":  {`{key: cpu-large, operator: Exists}`, `{key: gpu-*}`, false},
		"a selector without a key guards what a star does":           {`{key: dedicated, operator: Exists}`, `{key: ""}`, true},
		"an effect that nodes do not have is guarded for wildcards":  {`{key: dedicated, operator: Exists}`, `{key: dedicated, effects: [NoAdmit]}`, true},
		"an effect that nodes do not have is guarded for unknown":    {`{key: dedicated, operator: Exists, effect: NoAdmit}`, `{key: dedicated, effects: [NoAdmit]}`, true},
		"an effect that nodes do not have is not another known one ": {`{key: dedicated, operator: Exists, effect: NoExecute}`, `{key: dedicated, effects: [NoAdmit]}`, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var tol corev1.Toleration
			require.NoError(t, yaml.UnmarshalStrict([]byte(tt.tolerates), &tol))
			sel, read := selectorOf(t, tt.selector), OfPod(&tol)
			require.Equal(t, tt.want, sel.Could(&read))
		})
	}
}

func TestCouldTolerateATaintOfADevice(t *testing.T) {
	const broken = `{target: Device, key: example.com/broken, values: ["yes"], effects: [NoExecute], deviceClasses: [gpu, nic]}`
	tests := map[string]struct {
		class     string
		tolerates string
		selector  string
		want      bool
		outlasts  bool
	}{
		"the same key, value and class":                       {"gpu", `{key: example.com/broken, value: "yes", effect: NoExecute}`, broken, true, true},
		"another class":                                       {"disk", `{key: example.com/broken, value: "yes", effect: NoExecute}`, broken, false, false},
		"a class that is not known may be any":                {"", `{key: example.com/broken, value: "yes", effect: NoExecute}`, broken, true, true},
		"no classes guard every class":                        {"disk", `{key: a, operator: Exists}`, `{target: Device, key: a}`, true, true},
		"another value":                                       {"gpu", `{key: example.com/broken, value: "no"}`, broken, false, false},
		"another effect":                                      {"gpu", `{key: example.com/broken, operator: Exists, effect: NoSchedule}`, broken, false, false},
		"C17 Exists without key tolerates everything":         {"gpu", `{operator: Exists}`, broken, true, true},
		"AV-12 no key with Equal is every key with the value": {"gpu", `{value: "yes"}`, broken, true, true},
		"AV-12 no key with Equal and another value":           {"gpu", `{operator: Equal, value: "no"}`, broken, false, false},
		"no effect is NoExecute too":                          {"gpu", `{key: example.com/broken, operator: Exists}`, broken, true, true},
		"no effect is NoSchedule too":                         {"gpu", `{key: a, operator: Exists}`, `{target: Device, key: a, effects: [NoSchedule]}`, true, false},
		"effect None":                                         {"gpu", `{key: a, operator: Exists, effect: None}`, `{target: Device, key: a, effects: [None]}`, true, false},
		"None is guarded where no effect is named":            {"gpu", `{key: a, operator: Exists, effect: None}`, `{target: Device, key: a}`, true, false},
		"B12 an unknown effect may be any":                    {"gpu", `{key: example.com/broken, operator: Exists, effect: NoAdmit}`, broken, true, true},
		"an effect of nodes is unknown to devices":            {"gpu", `{key: example.com/broken, operator: Exists, effect: PreferNoSchedule}`, broken, true, true},
		"B12 an unknown operator may match":                   {"gpu", `{key: example.com/broken, operator: Lt, value: "5"}`, broken, true, true},
		"B12 numbers of devices are not compared":             {"gpu", `{key: a, operator: Lt, value: "5"}`, `{target: Device, key: a, values: ["9"]}`, true, true},
		"the star guards every key of devices":                {"gpu", `{key: node.kubernetes.io/unreachable, operator: Exists}`, `{target: Device, key: "*"}`, true, true},
		"a prefix guards the keys below it":                   {"gpu", `{key: example.com/a, operator: Exists}`, `{target: Device, key: example.com/*}`, true, true},
		"a selector of node taints guards no device":          {"gpu", `{operator: Exists}`, `{key: "*"}`, false, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var tol resourcev1.DeviceToleration
			require.NoError(t, yaml.UnmarshalStrict([]byte(tt.tolerates), &tol))
			sel, read := selectorOf(t, tt.selector), OfDevice(FromDevice(&tol), tt.class)
			require.Equal(t, tt.want, sel.Could(&read))
			require.Equal(t, tt.outlasts, sel.CouldOutlast(&read))
		})
	}
}

func TestATolerationIsWithinATimeOnlyWhereItEnds(t *testing.T) {
	tests := map[string]struct {
		tolerates string
		want      bool
	}{
		"less":                                  {`{key: a, effect: NoExecute, tolerationSeconds: 59}`, true},
		"as much":                               {`{key: a, effect: NoExecute, tolerationSeconds: 60}`, true},
		"more":                                  {`{key: a, effect: NoExecute, tolerationSeconds: 61}`, false},
		"C17 negative seconds are none":         {`{key: a, effect: NoExecute, tolerationSeconds: -9223372036854775808}`, true},
		"for ever":                              {`{key: a, effect: NoExecute}`, false},
		"NE-29 seconds count with NoExecute":    {`{key: a, effect: NoSchedule, tolerationSeconds: 1}`, false},
		"NE-29 seconds without effect are none": {`{key: a, tolerationSeconds: 1}`, false},
		"B12 seconds with an unknown effect":    {`{key: a, effect: NoAdmit, tolerationSeconds: 1}`, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var pod corev1.Toleration
			require.NoError(t, yaml.UnmarshalStrict([]byte(tt.tolerates), &pod))
			var device resourcev1.DeviceToleration
			require.NoError(t, yaml.UnmarshalStrict([]byte(tt.tolerates), &device))
			ofPod, ofDevice := OfPod(&pod), OfDevice(FromDevice(&device), "gpu")
			require.Equal(t, tt.want, ofPod.Within(60))
			require.Equal(t, tt.want, ofDevice.Within(60))
		})
	}
}

func TestAV26ATolerationThatIsNoNumberToleratesNothing(t *testing.T) {
	for _, operator := range []corev1.TolerationOperator{corev1.TolerationOpLt, corev1.TolerationOpGt} {
		for _, value := range []string{"", "x", "05", "1.5"} {
			read := OfPod(&corev1.Toleration{Key: "tier", Operator: operator, Value: value})
			for _, taint := range []string{"-1", "1"} {
				require.False(t, read.Tolerates(&corev1.Taint{Key: "tier", Value: taint, Effect: noSchedule}), "%s %q of %s", operator, value, taint)
			}
		}
	}
}
