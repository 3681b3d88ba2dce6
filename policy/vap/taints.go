package vap

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/taint"
)

// taints exports a TaintPolicy. Its expressions read these variables: "changes" has maps with
// the taint before, the taint after, or both, and the path; "asked" has the changes of taints
// that the policy governs, each as a map g with the operation, the taint and the path.
type taints struct {
	exporter

	p *v1alpha1.TaintPolicy
	// registered are the taints that all policies give to nodes, in the order of
	// taint.Set.Register.
	registered []registered
	reconciles bool // one of them is kept on nodes
	// granted is true of a g that a setter is for; rbac says that a setter is by RBAC.
	granted string
	rbac    bool
}

// registered is a taint that a policy gives to nodes.
type registered struct {
	v1alpha1.RegisteredTaint

	nodes string // is true of the labels l of these nodes
	keep  bool
}

func (r *registered) kind() string { return r.Key + ":" + string(r.Effect) }

// Taints exports a TaintPolicy: one ValidatingAdmissionPolicy about the taints of nodes, one
// about DeviceTaintRules, each where the policy governs such taints. All are the policies of
// the cluster, because setters do not apply to a taint that any of them registers. Notes say
// what is missing.
func Taints(p *v1alpha1.TaintPolicy, all []v1alpha1.TaintPolicy, settings Settings) (Exported, error) {
	ref := policy.Ref("TaintPolicy", p.Name)
	if errs := taint.ValidatePolicy(p); len(errs) > 0 {
		return Exported{}, fmt.Errorf("read %s: %w", ref, errs.ToAggregate())
	}
	x := &taints{
		exporter: exporter{
			settings: settings, ref: ref, title: ref, prefix: "tollgate-taints-" + objectName(p.Name) + "-", actions: policy.Actions(p.Spec.ValidationActions),
			fields:   []textField{{"key", ""}, {"value", ""}, {"effect", ""}},
			optional: `?"timeAdded": t.?timeAdded.optMap(at, dyn(timestamp(at)))`,
			bindings: []textField{{"object", "dyn(object)"}, {"oldObject", "dyn(oldObject)"}, {"taint", "g.taint"}, {"operation", "g.operation"}},
		},
		p: p,
	}
	x.addFieldNotes()
	x.readRegistered(all)
	x.readSetters()
	x.authorizer = x.readConditions(p.Spec.MatchConditions) || x.authorizer
	if hasTarget(p.Spec.Taints, v1alpha1.TaintTargetNode) {
		x.addNodes()
	}
	if hasTarget(p.Spec.Taints, v1alpha1.TaintTargetDevice) {
		x.addRules()
	}
	return x.exported, x.err
}

// addFieldNotes adds the notes on the fields that are left out.
func (x *taints) addFieldNotes() {
	spec := &x.p.Spec
	limits := v1alpha1.TaintLimits{}
	if spec.Limits != nil {
		limits = *spec.Limits
	}
	x.rbac = slices.ContainsFunc(spec.Setters, func(s v1alpha1.TaintSetter) bool { return s.RBAC })
	readsTime := slices.ContainsFunc(spec.Setters, func(s v1alpha1.TaintSetter) bool { return strings.Contains(s.Expression, "timeAdded") })
	const counts = "the API server does not count pods"
	for _, n := range []struct {
		Note

		applies bool
	}{
		{Note{
			"spec.register", "that nodes come with these taints, keep them, and do not leave the selector is not judged; `kubectl tollgate export map` gives nodes their taints", true,
		}, len(spec.Register) > 0},
		{Note{"spec.ttl", "taints end by Tollgate, not by admission", false}, spec.TTL != nil},
		{Note{"spec.limits.maxAffectedPods", counts, true}, limits.MaxAffectedPods != nil},
		{Note{"spec.limits.maxAffectedPercent", counts, true}, limits.MaxAffectedPercent != nil},
		{Note{"spec.limits.maxTimeAddedSkew", "expressions of the API server do not know the time", true}, limits.MaxTimeAddedSkew != nil},
		{Note{"spec.setters", "Tollgate gives taints of nodes their time before it judges, and the API server judges those as they were sent", false}, readsTime},
		{AboutKeys, x.rbac},
		{Note{
			"spec.taints", "taints of devices are judged in DeviceTaintRules, not in ResourceSlices and ResourceSlicePatches", true,
		}, hasTarget(spec.Taints, v1alpha1.TaintTargetDevice)},
	} {
		if n.applies {
			x.notes = append(x.notes, n.Note)
		}
	}
}

// readRegistered reads the registrations of all policies. Those with a fault are left out.
func (x *taints) readRegistered(all []v1alpha1.TaintPolicy) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b v1alpha1.TaintPolicy) int { return cmp.Compare(a.Name, b.Name) })
	for i := range all {
		for j := range all[i].Spec.Register {
			in := &all[i].Spec.Register[j]
			if len(taint.ValidateRegistration(in, nil)) > 0 {
				continue
			}
			for _, t := range in.Taints {
				x.registered = append(x.registered, registered{RegisteredTaint: t, nodes: labelled(&in.NodeSelector, "l"), keep: in.Reconcile})
				x.reconciles = x.reconciles || in.Reconcile
			}
		}
	}
}

func (x *taints) readSetters() {
	setters := make([]string, len(x.p.Spec.Setters))
	for i := range setters {
		s, number := &x.p.Spec.Setters[i], strconv.Itoa(i)
		terms := []string{"variables.setter" + number}
		if len(s.Operations) > 0 {
			terms = append(terms, in("g.operation", s.Operations))
		}
		if s.RBAC {
			x.authorizer = true
			terms = append(terms, "g.taint.key in variables.allowed")
		}
		if s.Expression != "" {
			field := "spec.setters[" + number + "].expression"
			expression, read := x.embed(field, cel.OfTaint, s.Expression, "false")
			if read.Reads("authorizer") {
				x.authorizer = true
				x.notes = append(x.notes, AboutQuestions(field))
			}
			terms = append(terms, expression)
		}
		setters[i] = and(terms...)
	}
	x.granted = or(setters...)
}

// judged returns the variables from "changes" to "refused", and the conditions. A taint that
// comes to be governed counts as added, and one that is no longer governed as removed.
func (x *taints) judged(target v1alpha1.TaintTarget, changes string) []variable {
	governs := func(name string) string {
		return "has(c." + name + ") && " + enclose(anySelector(x.p.Spec.Taints, target, func(s *v1alpha1.TaintSelector) string { return selects(s, "c."+name) }))
	}
	variables := []variable{
		{Name: "changes", Expression: changes},
		{Name: "seen", Expression: `variables.changes.map(c, {"before": dyn(` + governs("old") + `), "after": dyn(` + governs("now") + `), "change": dyn(c)})`},
		{Name: "asked", Expression: `variables.seen.filter(s, s.before || s.after).map(s, {"operation": dyn(s.before && s.after ? "Change" : s.before ? "Remove" : "Add"), ` +
			`"taint": dyn(s.after ? s.change.now : s.change.old), "path": dyn(s.change.path)})`},
	}
	for i := range x.p.Spec.Setters {
		variables = append(variables, variable{Name: "setter" + strconv.Itoa(i), Expression: subjects(x.p.Spec.Setters[i].Subjects)})
	}
	if x.rbac {
		variables = append(variables, allowed("variables.asked.map(g, string(g.taint.key))", policy.VerbTaint, "authorizer")...)
	}
	return append(variables,
		variable{Name: "refused", Expression: "variables.asked.filter(g, " + not(x.granted) + ")"},
		variable{Name: "conditions", Expression: x.conditions})
}

// refusal returns the validation that refuses what no setter is for. The message names the
// taint, unless the verdict depends on the authorizer, which messages cannot ask.
func (x *taints) refusal() validation {
	remedy := taint.Remedy(x.p)
	plain, message, expression := x.ref+": a taint may not be written; "+remedy, "", ""
	if x.p.Spec.Message != "" {
		plain += ": " + x.p.Spec.Message
		message = " + " + quote(": "+x.p.Spec.Message)
	}
	if !x.authorizer {
		expression = `size(variables.refused) == 0 ? "" : ` + bindText("g", "variables.refused[0]",
			quote(x.ref+": ")+` + g.path + " (" + g.taint.key + (g.taint.value == "" ? "" : "=" + g.taint.value) + ":" + g.taint.effect + "): "`+
				` + request.userInfo.username + " may not " + g.operation.lowerAscii() + " this taint"`+
				` + (size(variables.refused) > 1 ? " and " + string(size(variables.refused) - 1) + " more" : "") + `+quote("; "+remedy)+message)
	}
	return refuses("size(variables.refused) == 0 || !variables.conditions", plain, expression)
}

// notTollgate leaves out the writes of Tollgate itself.
func (x *taints) notTollgate() matchCondition {
	return matchCondition{Name: "not-tollgate", Expression: "request.userInfo.username != " + quote(x.settings.Self)}
}

// notExempt is false of a write of t by a controller of Kubernetes that may always set the
// key.
var notExempt = not(and(system("t.key"), in("request.userInfo.username", taint.SystemControllers())))

// addNodes adds the policy about the taints of nodes. A node has one taint of each key and
// effect, which is the kind of the taint, and by which changes are found.
func (x *taints) addNodes() {
	listOf := func(object string) string {
		return "dyn(" + object + ").spec.?taints.orValue([]).transformList(i, t, " +
			x.object(`"kind": dyn(t.key + ":" + t.effect)`, `"path": dyn("spec.taints[" + string(i) + "]")`) + ")"
	}
	byKind := func(list string) string { return "variables." + list + ".transformMapEntry(i, t, {string(t.kind): t})" }
	amongst := func(list string) string { // is true of a t that is in a list of registered taints, at any time
		return "variables." + list + ".exists(r, r.kind == t.kind && r.value == t.value)"
	}

	// A taint that nodes are created with, or are given by a policy, is not the choice of the
	// requester.
	var variables []variable
	given := "false"
	if len(x.registered) > 0 {
		variables = append(variables, variable{Name: "given", Expression: x.givenTo(labelsNow, false)})
		given = amongst("given")
	}
	chosen := not(and(`request.operation == "CREATE"`, or("t.kind == "+quote(corev1.TaintNodeNotReady+":"+string(corev1.TaintEffectNoSchedule)), given)))
	if x.reconciles {
		variables = append(variables, variable{Name: "kept", Expression: x.givenTo(labelsNow, true)}, variable{Name: "keptBefore", Expression: x.givenTo(labelsBefore, true)})
		chosen = and(chosen, not(and(`request.operation == "UPDATE"`, "!has(t.timeAdded)", amongst("kept"), amongst("keptBefore"))))
	}
	const before = "variables.stood[t.kind]"
	changed := and(notExempt, "t.kind in variables.stood ? t.value != "+before+".value || t.?timeAdded != "+before+".?timeAdded : "+enclose(chosen))

	variables = append(variables,
		variable{Name: "now", Expression: listOf("object")},
		variable{Name: "old", Expression: `request.operation == "CREATE" ? [] : ` + listOf("oldObject")},
		variable{Name: "current", Expression: byKind("now")},
		variable{Name: "stood", Expression: byKind("old")},
	)
	x.add("nodes", nil, []Note{{Text: "expressions of the API server do not know the time: a taint that had none and gets the present one counts as changed"}},
		[]resourceRule{rule("", "v1", admissionregistrationv1.ClusterScope, written, "nodes")},
		policySpec{
			MatchConditions: []matchCondition{
				x.notTollgate(),
				{Name: "not-the-node-controllers", Expression: `request.operation != "UPDATE" || ` + not(in("request.userInfo.username", taint.SystemControllers()))},
				{
					Name: "not-a-node-that-registers-itself",
					Expression: `request.operation != "CREATE" || request.userInfo.username != "system:node:" + dyn(object).metadata.name || ` +
						`!("system:nodes" in request.userInfo.?groups.orValue([]))`,
				},
			},
			Variables: append(variables, x.judged(v1alpha1.TaintTargetNode,
				"variables.now.transformList(i, t, "+changed+`, {"now": dyn(t), "path": t.path, ?"old": variables.stood[?t.kind].optMap(o, dyn(o))})`+
					" + variables.old.transformList(i, t, "+and("!(t.kind in variables.current)", notExempt)+`, {"old": dyn(t), "path": dyn("spec.taints")})`)...),
			Validations: []validation{x.refusal()},
		})
}

const (
	labelsNow    = "dyn(object).metadata.?labels.orValue({})"
	labelsBefore = `request.operation == "CREATE" ? dyn({}) : dyn(oldObject).metadata.?labels.orValue({})`
)

// givenTo returns the taints that policies give to a node with labels, or keep on it: of each
// kind the first, which is kept if it, or a later registration of the same taint, says so.
func (x *taints) givenTo(labels string, kept bool) string {
	parts := make([]string, len(x.registered))
	for i := range x.registered {
		r := &x.registered[i]
		terms, keeps := []string{r.nodes}, []string{"false"}
		for j := range x.registered {
			switch other := &x.registered[j]; {
			case j < i && other.kind() == r.kind():
				terms = append(terms, not(other.nodes))
			case j == i && r.keep:
				keeps = append(keeps, "true")
			case j > i && other.RegisteredTaint == r.RegisteredTaint && other.keep:
				keeps = append(keeps, other.nodes)
			}
		}
		if kept {
			terms = append(terms, or(keeps...))
		}
		parts[i] = enclose(and(terms...) + ` ? [{"kind": ` + quote(r.kind()) + `, "value": ` + quote(r.Value) + "}] : []")
	}
	return "[" + labels + "].map(l, " + strings.Join(parts, " + ") + ")[0]"
}

// addRules adds the policy about DeviceTaintRules. "now" and "old" are lists of the taint of
// the rule, or of none. Another key or effect is another taint; other devices are a change of
// it.
func (x *taints) addRules() {
	listOf := func(object string) string {
		return "[dyn(" + object + ").spec.taint].map(t, " +
			x.object(`"kind": dyn(t.key + ":" + t.effect)`, `"driver": dyn(dyn(`+object+`).spec.?deviceSelector.?driver.orValue(""))`) + ").filter(t, " + notExempt + ")"
	}
	const changes = `size(variables.now) == 0 || size(variables.old) == 0 || variables.now[0].kind != variables.old[0].kind` +
		` ? variables.now.map(t, {"now": dyn(t), "path": dyn("spec.taint")}) + variables.old.map(t, {"old": dyn(t), "path": dyn("spec.taint")})` +
		` : !variables.reselected && variables.now[0] == variables.old[0] ? [] : ` +
		`[{"now": dyn(variables.now[0]), "old": dyn(variables.old[0]), "path": dyn(variables.reselected ? "spec.deviceSelector" : "spec.taint")}]`
	x.add("rules", nil, nil, []resourceRule{
		rule(resourcev1.GroupName, "*", admissionregistrationv1.ClusterScope, slices.Concat(written, []operation{admissionregistrationv1.Delete}), "devicetaintrules"),
	}, policySpec{
		MatchConditions: []matchCondition{x.notTollgate(), {
			Name: "not-collected-with-its-patch",
			Expression: `request.operation != "DELETE" || ` +
				not(in("request.userInfo.username", []string{"system:serviceaccount:kube-system:generic-garbage-collector", "system:kube-controller-manager"})) +
				` || !dyn(oldObject).metadata.?labels[?"` + v1alpha1.LabelPatch + `"].hasValue()`,
		}},
		Variables: append([]variable{
			{Name: "now", Expression: `request.operation == "DELETE" ? [] : ` + listOf("object")},
			{Name: "old", Expression: `request.operation == "CREATE" ? [] : ` + listOf("oldObject")},
			{Name: "reselected", Expression: `request.operation == "UPDATE" && dyn(object).spec.?deviceSelector != dyn(oldObject).spec.?deviceSelector`},
		}, x.judged(v1alpha1.TaintTargetDevice, changes)...),
		Validations: append([]validation{x.refusal()}, x.ruleLimits()...),
	})
}

const (
	sameTaint = `dyn(object).spec.taint.key == dyn(oldObject).spec.taint.key && ` +
		`dyn(object).spec.taint.?value.orValue("") == dyn(oldObject).spec.taint.?value.orValue("")`
	severity = `{"None": 0, "NoSchedule": 1, "NoExecute": 2}[?`
)

// ruleLimits returns the limits on DeviceTaintRules. They do not apply to the removal of a
// taint.
func (x *taints) ruleLimits() []validation {
	var validations []validation
	limit := func(required bool, holds, message string) {
		if required {
			validations = append(validations, refuses(`!variables.asked.exists(g, g.operation != "Remove") || !variables.conditions || `+enclose(holds), x.ref+": "+message, ""))
		}
	}
	if limits := x.p.Spec.Limits; limits != nil {
		limit(limits.RequireSelector, `!dyn(object).spec.?deviceSelector.optMap(s, !has(s.driver) && !has(s.pool) && !has(s.device)).orValue(false) || `+
			`request.operation == "UPDATE" && !variables.reselected && `+sameTaint+` && `+
			severity+`dyn(object).spec.taint.effect].orValue(3) <= `+severity+`dyn(oldObject).spec.taint.effect].orValue(3)`,
			"spec.deviceSelector: names no driver, pool or device, and may select every device; name a driver, a pool or a device")
		limit(limits.RequirePreview, `dyn(object).spec.taint.effect != "NoExecute" || request.operation == "UPDATE" && !variables.reselected && `+
			`dyn(oldObject).spec.taint.effect in ["None", "NoExecute"] && `+sameTaint,
			"spec.taint.effect: evicts pods, and the rule did not stand at effect None with this taint and selector before; "+
				"write it with effect None, read its status, then change the effect alone")
	}
	return validations
}
