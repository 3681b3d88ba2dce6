package check

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

// pooled registers a taint that stays and one that is removed.
const pooled = `
apiVersion: tollgate.dev/v1alpha1
kind: TaintPolicy
metadata: {name: kept}
spec:
  taints: [{key: kept}]
  register: [{nodeSelector: {matchLabels: {pool: gold}}, taints: [{key: kept, value: "true", effect: NoSchedule}], reconcile: true}]
---
apiVersion: tollgate.dev/v1alpha1
kind: TaintPolicy
metadata: {name: started}
spec:
  taints: [{key: started}]
  register: [{nodeSelector: {matchLabels: {pool: gold}}, taints: [{key: started, effect: NoExecute}]}]
`

func pool(labels, spec string) string {
	return "{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: a}, spec: {template: {metadata: {labels: {" + labels + "}}, spec: {" + spec + "}}}}"
}

func TestANodePoolIsWarnedOfTaintsThatKarpenterDoesNotKnow(t *testing.T) {
	t.Parallel()
	const kept, started = `{key: kept, value: "true", effect: NoSchedule}`, "{key: started, effect: NoExecute}"
	for sentence, c := range map[string]struct {
		pool string
		want []string // policy, field and part of the message
	}{
		"one that names both": {pool("pool: gold", "taints: ["+kept+"], startupTaints: ["+started+"]"), nil},
		"one that names the taint that is removed as one that stays": {pool("pool: gold", "taints: ["+kept+", "+started+"]"), nil},
		"one of other nodes":               {pool("pool: iron", ""), nil},
		"a label that is not on all nodes": {pool("", "requirements: [{key: pool, operator: In, values: [gold, iron]}]"), nil},
		"one that names neither": {pool("pool: gold", ""), []string{
			"TaintPolicy/kept: spec.template.spec.taints: kept=true:NoSchedule: ", "TaintPolicy/started: spec.template.spec.taints: started:NoExecute: ",
		}},
		"nodes that a requirement gives the label": {pool("", "requirements: [{key: pool, operator: In, values: [gold]}], startupTaints: ["+started+"]"), []string{
			"TaintPolicy/kept: spec.template.spec.taints: kept=true:NoSchedule: ",
		}},
		"a taint that stays among those that are removed": {pool("pool: gold", "startupTaints: ["+started+", "+kept+"]"), []string{
			"TaintPolicy/kept: spec.template.spec.startupTaints[1]: kept=true:NoSchedule: the policy keeps the taint on the nodes",
		}},
		"another effect": {pool("pool: gold", "taints: [{key: kept, value: 'true', effect: NoExecute}], startupTaints: ["+started+"]"), []string{
			"TaintPolicy/kept: spec.template.spec.taints[0]: kept=true:NoExecute: the policy registers the taint with another value or effect",
		}},
		"another value": {pool("pool: gold", "taints: ["+kept+"], startupTaints: [{key: started, value: x, effect: NoExecute}]"), []string{
			"TaintPolicy/started: spec.template.spec.startupTaints[0]: started=x:NoExecute: the policy registers the taint with another value or effect",
		}},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			result, ok := checkerOf(t, pooled).JudgeNodePool(parsed(t, c.pool)[0])
			require.True(t, ok)
			require.Equal(t, "f:1", result.Position.String())
			if c.want == nil {
				require.Equal(t, Allowed, result.Verdict, "%+v", result)
				return
			}
			require.Equal(t, Warned, result.Verdict)
			require.Len(t, result.Findings, len(c.want), "%+v", result)
			for i, want := range c.want {
				require.Equal(t, policy.RegisteredTaintMissing, result.Findings[i].Reason)
				require.Contains(t, lineOf(&result.Findings[i]), want)
				require.NotEmpty(t, result.Findings[i].Remedy)
			}
		})
	}
}

func TestTheLabelOfKarpenterIsOnAllNodesOfANodePool(t *testing.T) {
	t.Parallel()
	checker := checkerOf(t, strings.ReplaceAll(pooled, "pool: gold", "karpenter.sh/nodepool: a"))
	result, ok := checker.JudgeNodePool(parsed(t, pool("", ""))[0])
	require.True(t, ok)
	require.Len(t, result.Findings, 2)
}

func TestANodePoolIsLeftOut(t *testing.T) {
	t.Parallel()
	off := func(config *configv1alpha1.TollgateConfiguration) {
		config.FeatureGates = map[string]bool{"TaintPolicies": false}
	}
	for sentence, c := range map[string]struct {
		checker *Checker
		object  string
	}{
		"where no policy registers a taint":      {checkerOf(t, "{apiVersion: tollgate.dev/v1alpha1, kind: TaintPolicy, metadata: {name: a}, spec: {taints: [{key: a}]}}"), pool("", "")},
		"where TaintPolicies are switched off":   {checkerOf(t, pooled, off), pool("pool: gold", "")},
		"of a version that is not known":         {checkerOf(t, pooled), strings.Replace(pool("pool: gold", ""), "sh/v1", "sh/v1alpha5", 1)},
		"of another group, which is no NodePool": {checkerOf(t, pooled), strings.Replace(pool("pool: gold", ""), "karpenter.sh", "example.com", 1)},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			_, ok := c.checker.JudgeNodePool(parsed(t, c.object)[0])
			require.False(t, ok)
		})
	}
	result, ok := checkerOf(t, pooled).JudgeNodePool(parsed(t, pool("pool: gold", "taints: x"))[0])
	require.True(t, ok)
	require.Equal(t, Undecided, result.Verdict)
	require.NotEmpty(t, result.Message)
}
