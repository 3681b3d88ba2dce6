package tolerations

import (
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

func TestCouldTolerate(t *testing.T) {
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
			var sel v1alpha1.TaintSelector
			require.NoError(t, yaml.UnmarshalStrict([]byte(tt.selector), &sel))
			require.Equal(t, tt.want, CouldTolerate(toleration(t, tt.tolerates), sel))
		})
	}
}
