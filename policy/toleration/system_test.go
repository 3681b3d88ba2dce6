package toleration

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

// everything guards the taints of the system and all others, and grants nothing.
func everything(t *testing.T) *Set {
	t.Helper()
	return Compile([]v1alpha1.TolerationPolicy{policyOf(t, "everything", `{taints: [{key: "*"}, {key: node.kubernetes.io/*}]}`)})
}

func TestC16WhatKubernetesAddsIsNobodysChoice(t *testing.T) {
	const (
		nobody     = iota // never exempt
		controller        // exempt from the DaemonSet controller
		network           // exempt from the DaemonSet controller for the host network
		always
	)
	tests := map[string]struct {
		tolerates string
		exempt    int
	}{
		"TP-15 not-ready for the default time":         {`{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}`, always},
		"TP-15 unreachable for the default time":       {`{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 300}`, always},
		"TP-15 not-ready for another time":             {`{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 301}`, nobody},
		"TP-15 unreachable for a shorter time":         {`{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 30}`, nobody},
		"TP-15 not-ready for every effect":             {`{key: node.kubernetes.io/not-ready, operator: Exists, tolerationSeconds: 300}`, nobody},
		"TP-15 not-ready by value":                     {`{key: node.kubernetes.io/not-ready, effect: NoExecute, tolerationSeconds: 300}`, nobody},
		"TP-15 not-ready with a value":                 {`{key: node.kubernetes.io/not-ready, operator: Exists, value: x, effect: NoExecute, tolerationSeconds: 300}`, nobody},
		"TP-15 another key for the default time":       {`{key: node.kubernetes.io/out-of-service, operator: Exists, effect: NoExecute, tolerationSeconds: 300}`, nobody},
		"TP-15 every key for the default time":         {`{operator: Exists, effect: NoExecute, tolerationSeconds: 300}`, nobody},
		"a DaemonSet schedules under memory pressure":  {`{key: node.kubernetes.io/memory-pressure, operator: Exists, effect: NoSchedule}`, controller},
		"a DaemonSet chooses every effect":             {`{key: node.kubernetes.io/memory-pressure, operator: Exists}`, nobody},
		"a DaemonSet chooses seconds":                  {`{key: node.kubernetes.io/memory-pressure, operator: Exists, effect: NoSchedule, tolerationSeconds: 1}`, nobody},
		"a DaemonSet outlasts a node not ready":        {`{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute}`, controller},
		"a DaemonSet outlasts a node out of reach":     {`{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute}`, controller},
		"a DaemonSet schedules under disk pressure":    {`{key: node.kubernetes.io/disk-pressure, operator: Exists, effect: NoSchedule}`, controller},
		"a DaemonSet schedules under pid pressure":     {`{key: node.kubernetes.io/pid-pressure, operator: Exists, effect: NoSchedule}`, controller},
		"a DaemonSet schedules on a cordoned node":     {`{key: node.kubernetes.io/unschedulable, operator: Exists, effect: NoSchedule}`, controller},
		"a DaemonSet of the host network needs none":   {`{key: node.kubernetes.io/network-unavailable, operator: Exists, effect: NoSchedule}`, network},
		"a DaemonSet chooses other effects":            {`{key: node.kubernetes.io/unschedulable, operator: Exists, effect: PreferNoSchedule}`, nobody},
		"a DaemonSet chooses out-of-service":           {`{key: node.kubernetes.io/out-of-service, operator: Exists, effect: NoExecute}`, nobody},
		"a DaemonSet chooses a wildcard":               {`{operator: Exists}`, nobody},
		"a DaemonSet chooses what its template brings": {`{key: dedicated, operator: Exists, effect: NoSchedule}`, nobody},
		"B12 nothing of an unknown effect is exempt":   {`{key: node.kubernetes.io/unschedulable, operator: Exists, effect: NoAdmit}`, nobody},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			set := everything(t)
			in := inputOf("apple", toleration(t, tt.tolerates))
			for _, from := range []struct {
				controller, network bool
				exempt              int
			}{{false, false, always}, {false, true, always}, {true, false, controller}, {true, true, network}} {
				in.FromDaemonSetController, in.HostNetwork = from.controller, from.network
				exempt := tt.exempt == always || tt.exempt == from.exempt || (from.controller && tt.exempt == controller)
				require.Equal(t, exempt, judge(t, set, in).Verdict == policy.Allowed, "%+v", from)
			}
		})
	}
}

func TestTP15TheDefaultTimesAreThoseOfTheAPIServer(t *testing.T) {
	in := inputOf("apple", tolerationsOf(t, `
		{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 60}
		{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 0}
		{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}
	`)...)
	in.DefaultSeconds = &DefaultSeconds{NotReady: 60, Unreachable: 0}
	requireRefused(t, []string{"everything spec.tolerations[2]"}, judge(t, everything(t), in))
}

func TestTP16WhatTheCallerKnowsToBeAddedIsNotJudged(t *testing.T) {
	in := inputOf("apple", tolerationsOf(t, `
		{key: example.com/gpu, operator: Exists, effect: NoSchedule}
		{key: example.com/gpu, operator: Exists}
		{key: example.com/fpga, operator: Exists, effect: NoSchedule}
	`)...)
	in.Added = []corev1.Toleration{toleration(t, `{key: example.com/gpu, operator: Exists, effect: NoSchedule}`)}
	requireRefused(t, []string{"everything spec.tolerations[1]", "everything spec.tolerations[2]"}, judge(t, everything(t), in))
}
