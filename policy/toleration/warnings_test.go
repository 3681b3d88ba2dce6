package toleration

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWarningsTellWhichGrantsHoldAtTheFirstWriteOnly(t *testing.T) {
	t.Parallel()
	const rest = " at the object as it is when a toleration is added; it may be changed afterwards and keeps the toleration"
	for name, tt := range map[string]struct {
		spec string
		want []string
	}{
		"no grants":                          {`{taints: [{key: a}]}`, nil},
		"namespaces and subjects":            {`{taints: [{key: a}], grants: [{namespaces: [a], subjects: [{kind: User, name: jane}]}, {rbac: true}]}`, nil},
		"an expression about the toleration": {`{taints: [{key: a}], grants: [{expression: "toleration.effect == 'NoExecute' && request.userInfo.username == 'jane'"}]}`, nil},
		"an expression about the pod":        {`{taints: [{key: a}], grants: [{rbac: true}, {expression: "has(pod.spec.hostNetwork)"}]}`, []string{"spec.grants[1]: expression looks" + rest}},
		"an expression about the object":     {`{taints: [{key: a}], grants: [{expression: "object.kind == 'Pod'"}]}`, []string{"spec.grants[0]: expression looks" + rest}},
		"a selector of objects":              {`{taints: [{key: a}], grants: [{namespaces: [a], objectSelector: {matchLabels: {a: b}}}]}`, []string{"spec.grants[0]: objectSelector looks" + rest}},
		"both, and another": {
			`{taints: [{key: a}], grants: [{expression: "claim != null", objectSelector: {matchLabels: {a: b}}}, {expression: "oldObject == null"}]}`,
			[]string{"spec.grants[0]: objectSelector and expression look" + rest, "spec.grants[1]: expression looks" + rest},
		},
		"an expression that does not compile": {`{taints: [{key: a}], grants: [{expression: "pod."}]}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := policyOf(t, "p", tt.spec)
			require.Equal(t, tt.want, Warnings(&p))
		})
	}
}
