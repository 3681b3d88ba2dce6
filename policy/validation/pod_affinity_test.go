package validation_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func in(key string, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

func nodeNamed(name string) corev1.NodeSelectorRequirement { return in("metadata.name", name) }

func term(expressions ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: expressions}
}

func fields(requirements ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchFields: requirements}
}

func both(expression, name corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{
		MatchExpressions: []corev1.NodeSelectorRequirement{expression},
		MatchFields:      []corev1.NodeSelectorRequirement{name},
	}
}

// requires returns a spec with nothing but required terms.
func requires(terms ...corev1.NodeSelectorTerm) corev1.PodSpec {
	return nodeAffinity(corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
	})
}

func prefers(weight int32, t corev1.NodeSelectorTerm) corev1.PodSpec {
	return nodeAffinity(corev1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: weight, Preference: t}},
	})
}

func nodeAffinity(affinity corev1.NodeAffinity) corev1.PodSpec {
	return corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &affinity}}
}

func withRequired(spec corev1.PodSpec, expressions ...corev1.NodeSelectorRequirement) corev1.PodSpec {
	spec.Affinity = spec.Affinity.DeepCopy()
	spec.Affinity.NodeAffinity = requires(term(expressions...)).Affinity.NodeAffinity
	return spec
}

func TestRequiredNodeAffinityCanOnlyBeNarrowedBehindAGate(t *testing.T) {
	t.Parallel()
	held := []string{"hold"}
	zone, disk, name := in("zone", "a", "b"), in("disk", "ssd"), nodeNamed("node-1")
	empty := corev1.NodeSelectorTerm{}
	terms := []found{{field.ErrorTypeInvalid, required}}
	first := []found{{field.ErrorTypeInvalid, required + "[0]"}}
	forbidden := []found{{field.ErrorTypeForbidden, "spec"}}
	opened := requires(term(zone, disk))
	opened.SchedulingGates = gates()

	runUpdates(t, map[string]updateCase{
		"SD-07 terms for a pod without affinity":                    {gates: held, pod: requires(term(zone))},
		"SD-07 terms for a pod with an empty affinity":              {gates: held, old: corev1.PodSpec{Affinity: &corev1.Affinity{}}, pod: requires(term(zone))},
		"SD-07 terms for a pod with an empty node affinity":         {gates: held, old: nodeAffinity(corev1.NodeAffinity{}), pod: requires(term(zone), term(disk))},
		"SD-07 terms for a pod that only prefers":                   {gates: held, old: prefers(1, term(disk)), pod: requires(term(zone))},
		"SD-07 an empty term for a pod without affinity":            {gates: held, pod: requires(empty)},
		"SD-08 a term more":                                         {gates: held, old: requires(term(zone)), pod: requires(term(zone), term(disk)), want: terms},
		"SD-08 a term less":                                         {gates: held, old: requires(term(zone), term(disk)), pod: requires(term(zone)), want: terms},
		"SD-08 nothing required any more":                           {gates: held, old: requires(term(zone)), pod: nodeAffinity(corev1.NodeAffinity{}), want: terms},
		"SD-08 no node affinity any more":                           {gates: held, old: requires(term(zone)), pod: corev1.PodSpec{Affinity: &corev1.Affinity{}}, want: terms},
		"SD-08 no affinity any more":                                {gates: held, old: requires(term(zone)), want: terms},
		"SD-09 an expression is appended":                           {gates: held, old: requires(term(zone)), pod: requires(term(zone, disk))},
		"SD-09 an expression is appended to the second term":        {gates: held, old: requires(term(zone), term(disk)), pod: requires(term(zone), term(disk, zone))},
		"SD-09 a field is appended":                                 {gates: held, old: requires(fields(name)), pod: requires(fields(name, nodeNamed("node-2")))},
		"SD-09 a field is added to expressions":                     {gates: held, old: requires(term(zone)), pod: requires(both(zone, name))},
		"SD-09 an expression is added to fields":                    {gates: held, old: requires(fields(name)), pod: requires(both(zone, name))},
		"SD-09 an expression comes first":                           {gates: held, old: requires(term(zone)), pod: requires(term(disk, zone)), want: first},
		"SD-09 an expression goes":                                  {gates: held, old: requires(term(zone, disk)), pod: requires(term(zone)), want: first},
		"SD-09 the expressions go, a field stays":                   {gates: held, old: requires(both(zone, name)), pod: requires(fields(name)), want: first},
		"SD-09 the field goes, an expression comes":                 {gates: held, old: requires(both(zone, name)), pod: requires(term(zone, disk)), want: first},
		"SD-09 a field changes":                                     {gates: held, old: requires(fields(name)), pod: requires(fields(nodeNamed("node-2"))), want: first},
		"SD-09 a value less, though that narrows":                   {gates: held, old: requires(term(zone)), pod: requires(term(in("zone", "a"))), want: first},
		"SD-09 values in another order":                             {gates: held, old: requires(term(zone)), pod: requires(term(in("zone", "b", "a"))), want: first},
		"SD-09 terms in another order":                              {gates: held, old: requires(term(zone), term(disk)), pod: requires(term(disk), term(zone)), want: []found{{field.ErrorTypeInvalid, required + "[0]"}, {field.ErrorTypeInvalid, required + "[1]"}}},
		"SD-10 an empty term stays empty":                           {gates: held, old: requires(empty, term(zone)), pod: requires(empty, term(zone, disk))},
		"SD-10 an empty term is filled":                             {gates: held, old: requires(empty), pod: requires(term(zone)), want: first},
		"SD-10 an empty term gets a field":                          {gates: held, old: requires(empty), pod: requires(fields(name)), want: first},
		"SD-10 an empty list is as good as none":                    {gates: held, old: requires(empty), pod: requires(term([]corev1.NodeSelectorRequirement{}...))},
		"SD-04 the last gate goes and an expression comes":          {gates: held, old: requires(term(zone)), pod: opened},
		"SD-05 an expression is appended on a pod that is not held": {old: requires(term(zone)), pod: requires(term(zone, disk)), want: forbidden},
		"SD-05 the affinity goes from a pod that is not held":       {old: requires(term(zone)), want: forbidden},
		"SD-05 terms come to a pod that is not held":                {pod: requires(term(zone)), want: forbidden},
	})
}

func TestPreferredNodeAffinityIsFreeBehindAGate(t *testing.T) {
	t.Parallel()
	held := []string{"hold"}
	zone, disk := term(in("zone", "a")), term(in("disk", "ssd"))
	runUpdates(t, map[string]updateCase{
		"SD-11 a preference comes":                             {gates: held, pod: prefers(1, zone)},
		"SD-11 a preference changes":                           {gates: held, old: prefers(1, zone), pod: prefers(2, disk)},
		"SD-11 the preferences go":                             {gates: held, old: prefers(1, zone), pod: nodeAffinity(corev1.NodeAffinity{})},
		"SD-11 the node affinity goes with them":               {gates: held, old: prefers(1, zone), pod: corev1.PodSpec{Affinity: &corev1.Affinity{}}},
		"SD-11 the affinity goes with them":                    {gates: held, old: prefers(1, zone)},
		"SD-05 a preference changes on a pod that is not held": {old: prefers(1, zone), pod: prefers(1, disk), want: []found{{field.ErrorTypeForbidden, "spec"}}},
		"SD-13 a preference without weight":                    {gates: held, pod: prefers(0, zone), want: []found{{field.ErrorTypeInvalid, preferred + "[0].weight"}}},
		"SD-13 a preference with too much weight":              {gates: held, pod: prefers(101, zone), want: []found{{field.ErrorTypeInvalid, preferred + "[0].weight"}}},
		"SD-13 a preferred value that no label has is free":    {gates: held, pod: prefers(100, term(in("zone", "-")))},
		"SD-13 a preference with a bad key": {
			gates: held, pod: prefers(100, term(in("bad key", "a"))),
			want: []found{{field.ErrorTypeInvalid, preferred + "[0].preference.matchExpressions[0].key"}},
		},
	})
}

func TestAnEmptyAffinityIsAChangeOfItsOwn(t *testing.T) {
	t.Parallel()
	held := []string{"hold"}
	none, empty, emptyNode := corev1.PodSpec{}, corev1.PodSpec{Affinity: &corev1.Affinity{}}, nodeAffinity(corev1.NodeAffinity{})
	forbidden := []found{{field.ErrorTypeForbidden, "spec"}}
	runUpdates(t, map[string]updateCase{
		"SD-14 an empty affinity for none":                   {gates: held, old: none, pod: empty, want: forbidden},
		"SD-14 none for an empty affinity":                   {gates: held, old: empty, pod: none, want: forbidden},
		"SD-14 an empty node affinity for none":              {gates: held, old: none, pod: emptyNode},
		"SD-14 none for an empty node affinity":              {gates: held, old: emptyNode, pod: none},
		"SD-14 an empty node affinity for an empty affinity": {gates: held, old: empty, pod: emptyNode},
	})
}

func TestNewTermsAreJudgedAsOnCreate(t *testing.T) {
	t.Parallel()
	held := []string{"hold"}
	stored := requires(term(in("zone", "-old-")))
	requirement := func(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values}
	}
	expression := func(child string) string { return required + "[0].matchExpressions[0]." + child }
	name := func(child string) string { return required + "[0].matchFields[0]." + child }
	runUpdates(t, map[string]updateCase{
		"SD-13 a value that no label has": {
			gates: held, old: requires(term(in("disk", "a"))), pod: requires(term(in("disk", "a"), in("zone", "a", "-new-"))),
			want: []found{{field.ErrorTypeInvalid, required + "[0].matchExpressions[1].values[1]"}},
		},
		"SD-13 a stored value that no label has stays": {gates: held, old: stored, pod: requires(term(in("zone", "-old-"), in("disk", "ssd")))},
		"SD-13 a stored one lets others in":            {gates: held, old: stored, pod: requires(term(in("zone", "-old-"), in("disk", "-new-")))},
		"SD-13 a stored one excuses no bad key": {
			gates: held, old: stored, pod: requires(term(in("zone", "-old-"), in("bad key", "a"))),
			want: []found{{field.ErrorTypeInvalid, required + "[0].matchExpressions[1].key"}},
		},
		"SD-13 required without terms":  {gates: held, pod: requires(), want: []found{{field.ErrorTypeRequired, required}}},
		"SD-13 In without values":       {gates: held, pod: requires(term(in("zone"))), want: []found{{field.ErrorTypeRequired, expression("values")}}},
		"SD-13 NotIn without values":    {gates: held, pod: requires(term(requirement("zone", corev1.NodeSelectorOpNotIn))), want: []found{{field.ErrorTypeRequired, expression("values")}}},
		"SD-13 Exists with a value":     {gates: held, pod: requires(term(requirement("zone", corev1.NodeSelectorOpExists, "a"))), want: []found{{field.ErrorTypeForbidden, expression("values")}}},
		"SD-13 DoesNotExist":            {gates: held, pod: requires(term(requirement("zone", corev1.NodeSelectorOpDoesNotExist)))},
		"SD-13 Lt without a value":      {gates: held, pod: requires(term(requirement("cpus", corev1.NodeSelectorOpLt))), want: []found{{field.ErrorTypeRequired, expression("values")}}},
		"SD-13 Gt with two values":      {gates: held, pod: requires(term(requirement("cpus", corev1.NodeSelectorOpGt, "1", "2"))), want: []found{{field.ErrorTypeRequired, expression("values")}}},
		"SD-13 Gt with one value":       {gates: held, pod: requires(term(requirement("cpus", corev1.NodeSelectorOpGt, "1")))},
		"SD-13 an unknown operator":     {gates: held, pod: requires(term(requirement("zone", "Near", "a"))), want: []found{{field.ErrorTypeInvalid, expression("operator")}}},
		"SD-13 a field that nodes lack": {gates: held, pod: requires(fields(in("spec.podCIDR", "a"))), want: []found{{field.ErrorTypeInvalid, name("key")}}},
		"SD-13 a field with two values": {gates: held, pod: requires(fields(in("metadata.name", "a", "b"))), want: []found{{field.ErrorTypeRequired, name("values")}}},
		"SD-13 a field that exists":     {gates: held, pod: requires(fields(requirement("metadata.name", corev1.NodeSelectorOpExists))), want: []found{{field.ErrorTypeInvalid, name("operator")}}},
		"SD-13 a field with two faults": {
			gates: held, pod: requires(fields(requirement("spec.podCIDR", corev1.NodeSelectorOpExists))),
			want: []found{{field.ErrorTypeInvalid, name("operator")}, {field.ErrorTypeInvalid, name("key")}},
		},
		"SD-13 a name that no node has":  {gates: held, pod: requires(fields(nodeNamed("Node_1"))), want: []found{{field.ErrorTypeInvalid, name("values[0]")}}},
		"SD-13 a name that no label has": {gates: held, pod: requires(fields(nodeNamed("a.very-long." + strings.Repeat("a", 64))))},
	})
}
