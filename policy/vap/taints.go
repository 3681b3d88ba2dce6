package vap

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

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

	spec *v1alpha1.TaintPolicySpec
	// remedy is the part of a message that names the users with permission to write the governed taints.
	remedy string
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

	kind  string
	nodes string // is true of the labels l of these nodes
	keep  bool
}

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
			fields:   []named{{"key", ""}, {"value", ""}, {"effect", ""}},
			optional: `?"timeAdded": t.?timeAdded.optMap(at, dyn(timestamp(at)))`,
			bindings: []named{{"object", "dyn(object)"}, {"oldObject", "dyn(oldObject)"}, {"taint", "g.taint"}, {"operation", "g.operation"}},
		},
		spec: &p.Spec, remedy: taint.Remedy(p),
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
	spec := x.spec
	limits := ptr.Deref(spec.Limits, v1alpha1.TaintLimits{})
	x.rbac = slices.ContainsFunc(spec.Setters, func(s v1alpha1.TaintSetter) bool { return s.RBAC })
	readsTime := slices.ContainsFunc(spec.Setters, func(s v1alpha1.TaintSetter) bool { return strings.Contains(s.Expression, "timeAdded") })
	const counts = "the API server does not count pods"
	for _, n := range []struct {
		field, text      string
		partial, applies bool
	}{
		{
			"spec.register", "that nodes come with these taints, keep them, and do not leave the selector is not judged; `kubectl tollgate export map` gives nodes their taints",
			true, len(spec.Register) > 0,
		},
		{"spec.ttl", "taints end by Tollgate, not by admission", false, spec.TTL != nil},
		{"spec.limits.maxAffectedPods", counts, true, limits.MaxAffectedPods != nil},
		{"spec.limits.maxAffectedPercent", counts, true, limits.MaxAffectedPercent != nil},
		{"spec.limits.maxTimeAddedSkew", "expressions of the API server do not know the time", true, limits.MaxTimeAddedSkew != nil},
		{"spec.setters", "Tollgate gives taints of nodes their time before it judges, and the API server judges those as they were sent", false, readsTime},
		{"", AboutKeys.Text, false, x.rbac},
		{
			"spec.taints", "taints of devices are judged in DeviceTaintRules, not in ResourceSlices and ResourceSlicePatches",
			true, hasTarget(spec.Taints, v1alpha1.TaintTargetDevice),
		},
	} {
		if n.applies {
			x.notes = append(x.notes, Note{n.field, n.text, n.partial})
		}
	}
}

// readRegistered reads the registrations of all policies. Those with a fault are left out.
func (x *taints) readRegistered(all []v1alpha1.TaintPolicy) {
	byName := func(a, b v1alpha1.TaintPolicy) int { return cmp.Compare(a.Name, b.Name) }
	for _, p := range slices.SortedStableFunc(slices.Values(all), byName) {
		for _, in := range p.Spec.Register {
			if len(taint.ValidateRegistration(&in, nil)) > 0 {
				continue
			}
			x.reconciles = x.reconciles || in.Reconcile
			for _, t := range in.Taints {
				x.registered = append(x.registered, registered{t, t.Key + ":" + string(t.Effect), labelled(&in.NodeSelector, "l"), in.Reconcile})
			}
		}
	}
}

func (x *taints) readSetters() {
	setters := make([]string, len(x.spec.Setters))
	for i := range setters {
		s := &x.spec.Setters[i]
		terms := []string{fmt.Sprintf("variables.setter%d", i), inAny("g.operation", s.Operations...)}
		if s.RBAC {
			x.authorizer = true
			terms = append(terms, "g.taint.key in variables.allowed")
		}
		if s.Expression != "" {
			expression, _ := x.ask(fmt.Sprintf("spec.setters[%d].expression", i), cel.OfTaint, s.Expression)
			terms = append(terms, expression)
		}
		setters[i] = and(terms...)
	}
	x.granted = or(setters...)
}

// judged returns the variables from "changes" to "refused", and the conditions. A taint that
// comes to be governed counts as added, and one that is no longer governed as removed.
func (x *taints) judged(target v1alpha1.TaintTarget, changes string) []named {
	governs := func(t string) string {
		return "has(" + t + ") && " + enclose(anySelector(x.spec.Taints, target, func(s *v1alpha1.TaintSelector) string { return selects(s, t) }))
	}
	variables := []named{
		{"changes", changes},
		{"seen", `variables.changes.map(c, {"before": dyn(` + governs("c.old") + `), "after": dyn(` + governs("c.now") + `), "change": dyn(c)})`},
		{"asked", `variables.seen.filter(s, s.before || s.after).map(s, {"operation": dyn(s.before && s.after ? "Change" : s.before ? "Remove" : "Add"), ` +
			`"taint": dyn(s.after ? s.change.now : s.change.old), "path": dyn(s.change.path)})`},
	}
	for i := range x.spec.Setters {
		variables = append(variables, named{fmt.Sprintf("setter%d", i), subjects(x.spec.Setters[i].Subjects)})
	}
	if x.rbac {
		variables = append(variables, allowed("variables.asked.map(g, string(g.taint.key))", policy.VerbTaint, "authorizer")...)
	}
	return append(variables, named{"refused", "variables.asked.filter(g, " + not(x.granted) + ")"}, named{"conditions", x.conditions})
}

// refusal returns the validation that refuses what no setter is for. The message names the
// taint, unless the verdict depends on the authorizer, which messages cannot ask.
func (x *taints) refusal() validation {
	plain, message, expression := x.ref+": a taint may not be written; "+x.remedy, "", ""
	if x.spec.Message != "" {
		plain += ": " + x.spec.Message
		message = " + " + quote(": "+x.spec.Message)
	}
	if !x.authorizer {
		expression = fmt.Sprintf(`size(variables.refused) == 0 ? "" : [variables.refused[0]].map(g, `+
			`%q + g.path + " (" + g.taint.key + (g.taint.value == "" ? "" : "=" + g.taint.value) + ":" + g.taint.effect + "): "`+
			` + request.userInfo.username + " may not " + g.operation.lowerAscii() + " this taint"`+
			` + (size(variables.refused) > 1 ? " and " + string(size(variables.refused) - 1) + " more" : "") + %q%s)[0]`, x.ref+": ", "; "+x.remedy, message)
	}
	return refuses("size(variables.refused) == 0 || !variables.conditions", plain, expression)
}

// notTollgate leaves out the writes of Tollgate itself.
func (x *taints) notTollgate() named {
	return named{"not-tollgate", "request.userInfo.username != " + quote(x.settings.Self)}
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
	amongst := func(list string) string { // is true of a t that is in a list of registered taints, at any time
		return "variables." + list + ".exists(r, r.kind == t.kind && r.value == t.value)"
	}

	// A taint that nodes are created with, or are given by a policy, is not the choice of the
	// requester.
	var variables []named
	given := "false"
	if len(x.registered) > 0 {
		variables = append(variables, named{"given", x.givenTo(labelsNow, false)})
		given = amongst("given")
	}
	chosen := not(and(`request.operation == "CREATE"`, or(`t.kind == "node.kubernetes.io/not-ready:NoSchedule"`, given)))
	if x.reconciles {
		variables = append(variables, named{"kept", x.givenTo(labelsNow, true)}, named{"keptBefore", x.givenTo(labelsBefore, true)})
		chosen = and(chosen, not(and(`request.operation == "UPDATE"`, "!has(t.timeAdded)", amongst("kept"), amongst("keptBefore"))))
	}
	changed := and(notExempt,
		"t.kind in variables.stood ? t.value != variables.stood[t.kind].value || t.?timeAdded != variables.stood[t.kind].?timeAdded : "+enclose(chosen))
	x.add(&export{
		what:  "nodes",
		notes: []string{"expressions of the API server do not know the time: a taint that had none and gets the present one counts as changed"},
		rules: []resourceRule{rule("", "v1", clusterWide, written, "nodes")},
		conditions: []named{
			x.notTollgate(),
			{"not-the-node-controllers", `request.operation != "UPDATE" || ` + not(in("request.userInfo.username", taint.SystemControllers()))},
			{"not-a-node-that-registers-itself", `request.operation != "CREATE" || request.userInfo.username != "system:node:" + dyn(object).metadata.name || ` +
				`!("system:nodes" in request.userInfo.?groups.orValue([]))`},
		},
		variables: slices.Concat(
			variables,
			[]named{
				{"now", listOf("object")},
				{"old", `request.operation == "CREATE" ? [] : ` + listOf("oldObject")},
				{"current", "variables.now.transformMapEntry(i, t, {string(t.kind): t})"},
				{"stood", "variables.old.transformMapEntry(i, t, {string(t.kind): t})"},
			},
			x.judged(v1alpha1.TaintTargetNode,
				"variables.now.transformList(i, t, "+changed+`, {"now": dyn(t), "path": t.path, ?"old": variables.stood[?t.kind].optMap(o, dyn(o))})`+
					" + variables.old.transformList(i, t, "+and("!(t.kind in variables.current)", notExempt)+`, {"old": dyn(t), "path": dyn("spec.taints")})`),
		),
		validations: []validation{x.refusal()},
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
	for i, r := range x.registered {
		terms, keeps := []string{r.nodes}, []string(nil)
		for j, other := range x.registered {
			switch {
			case j < i && other.kind == r.kind:
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
		parts[i] = fmt.Sprintf(`(%s ? [{"kind": %q, "value": %q}] : [])`, and(terms...), r.kind, r.Value)
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
	x.add(&export{
		what: "rules",
		rules: []resourceRule{
			rule(resourcev1.GroupName, "*", clusterWide, everyChange, "devicetaintrules"),
		},
		conditions: []named{x.notTollgate(), {"not-collected-with-its-patch", `request.operation != "DELETE" || ` +
			not(in("request.userInfo.username", []string{"system:serviceaccount:kube-system:generic-garbage-collector", "system:kube-controller-manager"})) +
			` || !dyn(oldObject).metadata.?labels[?"` + v1alpha1.LabelPatch + `"].hasValue()`}},
		variables: append([]named{
			{"now", `request.operation == "DELETE" ? [] : ` + listOf("object")},
			{"old", `request.operation == "CREATE" ? [] : ` + listOf("oldObject")},
			{"reselected", `request.operation == "UPDATE" && dyn(object).spec.?deviceSelector != dyn(oldObject).spec.?deviceSelector`},
		}, x.judged(v1alpha1.TaintTargetDevice, changes)...),
		validations: append([]validation{x.refusal()}, x.ruleLimits()...),
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
	limits := ptr.Deref(x.spec.Limits, v1alpha1.TaintLimits{})
	limit(limits.RequireSelector, `!dyn(object).spec.?deviceSelector.optMap(s, !has(s.driver) && !has(s.pool) && !has(s.device)).orValue(false) || `+
		`request.operation == "UPDATE" && !variables.reselected && `+sameTaint+` && `+
		severity+`dyn(object).spec.taint.effect].orValue(3) <= `+severity+`dyn(oldObject).spec.taint.effect].orValue(3)`,
		"spec.deviceSelector: names no driver, pool or device, and may select every device; name a driver, a pool or a device")
	limit(limits.RequirePreview, `dyn(object).spec.taint.effect != "NoExecute" || request.operation == "UPDATE" && !variables.reselected && `+
		`dyn(oldObject).spec.taint.effect in ["None", "NoExecute"] && `+sameTaint,
		"spec.taint.effect: evicts pods, and the rule did not stand at effect None with this taint and selector before; "+
			"write it with effect None, read its status, then change the effect alone")
	return validations
}
