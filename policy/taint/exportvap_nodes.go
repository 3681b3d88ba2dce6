package taint

import (
	"cmp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/vap"
)

// ofNodes returns the policy about the taints of nodes. A node has one of each key and
// effect, by which NodeWrites finds what changed: that is its kind.
func (x *exportVAP) ofNodes() *vap.Policy {
	p := x.blank("nodes", vap.Note{Text: "expressions of the API server do not know the time: a taint that had none and gets the present one counts as changed"})
	p.Rules = []admissionregistrationv1.NamedRuleWithOperations{vap.Rule("", "v1", admissionregistrationv1.ClusterScope, writes, "nodes")}
	p.Conditions = append(p.Conditions,
		admissionregistrationv1.MatchCondition{
			Name:       "not-the-node-controllers",
			Expression: `request.operation != "UPDATE" || ` + vap.Not(vap.In("request.userInfo.username", systemControllers)),
		},
		admissionregistrationv1.MatchCondition{
			Name: "not-a-node-that-registers-itself",
			Expression: `request.operation != "CREATE" || request.userInfo.username != ` + vap.Quote(nodePrefix) + " + dyn(object).metadata.name || " +
				"!(" + vap.Quote(nodesGroup) + " in request.userInfo.?groups.orValue([]))",
		},
	)
	taints := func(object string) string {
		return "dyn(" + object + ").spec.?taints.orValue([]).transformList(i, t, " +
			x.taint(`"kind": dyn(t.key + ":" + t.effect)`, `"path": dyn("spec.taints[" + string(i) + "]")`) + ")"
	}
	p.Variables = append(x.given(),
		variable("now", taints("object")),
		variable("old", `request.operation == "CREATE" ? [] : `+taints("oldObject")),
		variable("current", byKind("now")),
		variable("stood", byKind("old")),
		variable("changes", "variables.now.transformList(i, t, "+x.changed()+`, {"now": dyn(t), "path": t.path, ?"old": variables.stood[?t.kind].optMap(o, dyn(o))})`+
			" + variables.old.transformList(i, t, "+vap.And("!(t.kind in variables.current)", notExempt)+`, {"old": dyn(t), "path": dyn("spec.taints")})`),
	)
	p.Variables = append(p.Variables, x.judging(v1alpha1.TaintTargetNode)...)
	p.Validations = []admissionregistrationv1.Validation{x.validation()}
	return p
}

func byKind(list string) string {
	return "variables." + list + ".transformMapEntry(i, t, {string(t.kind): t})"
}

// notExempt is whether a write of t is not one that its author may always make, as exempt
// has it.
var notExempt = vap.Not(vap.And(vap.SystemKey("t.key"), vap.In("request.userInfo.username", systemControllers)))

// changed returns whether a taint t of the node was not there before, and is somebody's
// choice as Chosen has it, or was there with another value or time.
func (x *exportVAP) changed() string {
	const of = "variables.stood[t.kind]"
	chosen := vap.Not(vap.And(`request.operation == "CREATE"`,
		vap.Or("t.kind == "+vap.Quote(corev1.TaintNodeNotReady+":"+string(corev1.TaintEffectNoSchedule)), x.among("given", "t"))))
	if slices.ContainsFunc(x.registers, func(r exportedRegistration) bool { return r.keep }) {
		chosen = vap.And(chosen, vap.Not(vap.And(`request.operation == "UPDATE"`, "!has(t.timeAdded)", x.among("kept", "t"), x.among("keptBefore", "t"))))
	}
	return vap.And(notExempt, "t.kind in variables.stood ? t.value != "+of+".value || t.?timeAdded != "+of+".?timeAdded : "+vap.Enclose(chosen))
}

// among returns whether a taint is in a variable of registered ones, whatever its time.
func (x *exportVAP) among(list, t string) string {
	if len(x.registers) == 0 {
		return "false"
	}
	return "variables." + list + ".exists(r, r.kind == " + t + ".kind && r.value == " + t + ".value)"
}

// exportedRegistration is a taint that a policy gives to nodes.
type exportedRegistration struct {
	v1alpha1.RegisteredTaint

	nodes string // which, of the labels l
	keep  bool
}

func (r *exportedRegistration) kind() string { return r.Key + ":" + string(r.Effect) }

// registrationsOf returns what policies give to nodes, in the order of Set.Register. What
// cannot be read is left out.
func registrationsOf(all []v1alpha1.TaintPolicy) []exportedRegistration {
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b v1alpha1.TaintPolicy) int { return cmp.Compare(a.Name, b.Name) })
	var found []exportedRegistration
	for i := range sorted {
		for j := range sorted[i].Spec.Register {
			in := &sorted[i].Spec.Register[j]
			if len(validateRegistration(in, nil)) > 0 {
				continue
			}
			for _, t := range in.Taints {
				found = append(found, exportedRegistration{RegisteredTaint: t, nodes: vap.Labels(&in.NodeSelector, "l"), keep: in.Reconcile})
			}
		}
	}
	return found
}

// given returns variables of what policies give to the node, if any do: of one kind the
// first, which is kept if one of those that give the same asks for it.
func (x *exportVAP) given() []admissionregistrationv1.Variable {
	if len(x.registers) == 0 {
		return nil
	}
	const now, before = "dyn(object).metadata.?labels.orValue({})", `request.operation == "CREATE" ? dyn({}) : dyn(oldObject).metadata.?labels.orValue({})`
	variables := []admissionregistrationv1.Variable{variable("given", x.givenTo(now, false))}
	if slices.ContainsFunc(x.registers, func(r exportedRegistration) bool { return r.keep }) {
		variables = append(variables, variable("kept", x.givenTo(now, true)), variable("keptBefore", x.givenTo(before, true)))
	}
	return variables
}

func (x *exportVAP) givenTo(labels string, kept bool) string {
	parts := make([]string, len(x.registers))
	for i := range x.registers {
		r := &x.registers[i]
		terms := []string{r.nodes}
		for j := range i {
			if x.registers[j].kind() == r.kind() {
				terms = append(terms, vap.Not(x.registers[j].nodes))
			}
		}
		if kept {
			terms = append(terms, x.keeps(i))
		}
		parts[i] = vap.Enclose(vap.And(terms...) + ` ? [{"kind": ` + vap.Quote(r.kind()) + `, "value": ` + vap.Quote(r.Value) + "}] : []")
	}
	return "[" + labels + "].map(l, " + strings.Join(parts, " + ") + ")[0]"
}

// keeps returns whether the taint of a registration is kept by it or by a later one that
// names the same taint.
func (x *exportVAP) keeps(i int) string {
	var terms []string
	for j := i; j < len(x.registers); j++ {
		r := &x.registers[j]
		switch {
		case r.RegisteredTaint != x.registers[i].RegisteredTaint || !r.keep:
		case j == i:
			return "true"
		default:
			terms = append(terms, r.nodes)
		}
	}
	return vap.Or(terms...)
}
