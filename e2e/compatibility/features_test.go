package compatibility

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

// feature is a row of the table, for one version of Kubernetes: what is tried, and what the
// cell says when that passes.
type feature struct {
	name, cell string
	try        func(t *testing.T)
}

const (
	yes = "yes"
	no  = "no"
)

// serves is what an API server serves of what taints devices.
type serves struct {
	// sliceTaints is whether taints in ResourceSlices are kept.
	sliceTaints bool
	// rules is the version of DeviceTaintRules, empty for none.
	rules string
	// ruleStatus is whether they have a status.
	ruleStatus bool
}

// byDefault is what each version serves without further arguments, by its minor version.
var byDefault = map[int]serves{
	34: {},
	35: {},
	36: {sliceTaints: true},
	37: {sliceTaints: true, rules: "v1", ruleStatus: true},
}

// switched is what each serves with its feature gates the other way round: on where they
// are off by default, and off where they are on.
var switched = map[int]struct {
	name  string
	gates string
	// served is the --runtime-config of the API server.
	served string
	serves serves
}{
	34: {"on", "DRADeviceTaints=true", "resource.k8s.io/v1alpha3=true", serves{true, "v1alpha3", false}},
	35: {"on", "DRADeviceTaints=true,DRADeviceTaintRules=true", "resource.k8s.io/v1alpha3=true", serves{true, "v1alpha3", true}},
	36: {"on", "DRADeviceTaintRules=true", "resource.k8s.io/v1beta2/devicetaintrules=true", serves{true, "v1beta2", true}},
	37: {"off", "DRADeviceTaintRules=false", "resource.k8s.io/v1/devicetaintrules=false", serves{true, "", false}},
}

func TestTheControlPlaneIsOfTheVersionThatWasAskedFor(t *testing.T) {
	version, err := admin(t).Discovery().ServerVersion()
	require.NoError(t, err)
	require.Equal(t, programs.Kubernetes, version.GitVersion)
}

// TestE12WhatWorks tries everything on the control plane as it is by default, and what has to
// do with the taints of devices once more with the feature gates the other way round. At the
// end the table must say so.
func TestE12WhatWorks(t *testing.T) {
	as := byDefault[minor]
	table := column(t)
	for _, f := range append(general(), devices(as)...) {
		table.try(t, f)
	}
	requireState(t, "podgroups", "unserved")

	other := switched[minor]
	gates := "--feature-gates=" + other.gates
	restart := func(t *testing.T, args map[string][]string) {
		t.Helper()
		for _, component := range []string{controlplane.APIServer, controlplane.ControllerManager, controlplane.Scheduler} {
			require.NoError(t, shared.RestartWith(afterwards(t), component, args[component]...))
		}
	}
	restart(t, map[string][]string{
		controlplane.APIServer:         {gates, "--runtime-config=" + other.served},
		controlplane.ControllerManager: {gates},
		controlplane.Scheduler:         {gates},
	})
	defer restart(t, nil)
	table.add("the feature gates below are", other.name)
	if other.serves.rules != "" {
		requireState(t, "devicetaintrules", "watched")
	}
	for _, f := range devices(other.serves) {
		f.name = "… " + f.name
		table.try(t, f)
	}
	table.require(t)
}

// general is what does not depend on what is served of devices.
func general() []feature {
	features := []feature{
		{"tolerations are judged", yes, tolerationsAreJudged},
		{"nodes are born with taints, their pods are steered", yes, dedicatedNodes},
		{"scheduling gates are held", yes, gatesAreHeld},
		{"taints of nodes evict on time", yes, nodesEvictOnTime},
		{"evictions ask PodDisruptionBudgets", yes, budgetsAreAsked},
		{"taints are previewed, limited and approved", yes, limitsHold},
		{"commands", yes, commandsRead},
		{"policies are exported as ValidatingAdmissionPolicies", yes, policiesAreExported},
	}
	taints := feature{"taints are exported as MutatingAdmissionPolicies", yes, taintsAreExported}
	if minor < 36 {
		taints.cell, taints.try = no, taintsAreNotTaken
	}
	return append(features, taints)
}

// devices is what depends on it.
func devices(as serves) []feature {
	slices := feature{"taints in ResourceSlices evict", yes, slicesEvict}
	if !as.sliceTaints {
		slices.cell, slices.try = no, slicesLoseTheirTaints
	}
	rules := feature{"DeviceTaintRules evict", as.rules, rulesEvict(as.rules)}
	status := feature{"the status of DeviceTaintRules", yes, rulesSayHowFarTheyAre(as.rules)}
	patches := feature{"taints of ResourceSlicePatches evict", yes, patchesEvict}
	if !as.ruleStatus {
		status.cell, status.try = no, rulesHaveNoStatus(as.rules)
	}
	if as.rules == "" {
		rules.cell, rules.try = no, rulesAreNotServed
		status.try = nil // a part of the one before
		patches.cell, patches.try = no, patchesSayThatTheyCannot
	}
	return []feature{slices, rules, status, patches}
}
