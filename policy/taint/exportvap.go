package taint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/vap"
)

// Export returns who may set the taints of a policy as ValidatingAdmissionPolicies with the
// same verdicts: one about the taints of nodes, one about DeviceTaintRules, each where the
// policy governs such taints. All are the policies of the cluster, because what one of them
// registers is no matter to the setters of another. Notes say what is missing.
func Export(p *v1alpha1.TaintPolicy, all []v1alpha1.TaintPolicy, settings vap.Settings) (vap.Exported, error) {
	if errs := ValidatePolicy(p); len(errs) > 0 {
		return vap.Exported{}, fmt.Errorf("read %s: %w", policyRef(p.Name), errs.ToAggregate())
	}
	x := &exportVAP{p: p, settings: settings, registers: registrationsOf(all)}
	x.notes = x.fieldNotes()
	x.read()
	var out vap.Exported
	for _, exported := range x.policies() {
		if reasons := apivalidation.NameIsDNSSubdomain(exported.Name, false); len(reasons) > 0 {
			return vap.Exported{}, fmt.Errorf("name what %s is exported as: %q %s; give it a shorter name", policyRef(p.Name), exported.Name, reasons[0])
		}
		out.Objects = append(out.Objects, exported.Objects()...)
		for _, note := range exported.Notes {
			if !slices.Contains(out.Notes, note) {
				out.Notes = append(out.Notes, note)
			}
		}
	}
	return out, nil
}

// exportVAP is a policy that is being exported.
type exportVAP struct {
	p        *v1alpha1.TaintPolicy
	settings vap.Settings
	// registers are what all policies give to nodes.
	registers  []exportedRegistration
	setters    []string // who each setter is for, of the write g
	conditions string
	// authorizer says that what is refused depends on what is authorized.
	authorizer bool
	// fields are those of taints that expressions ask whether they are set.
	fields []string
	notes  []vap.Note
}

// fieldNotes says which fields of the policy are left out.
func (x *exportVAP) fieldNotes() []vap.Note {
	spec := &x.p.Spec
	var notes []vap.Note
	note := func(set bool, field, text string, partial bool) {
		if set {
			notes = append(notes, vap.Note{Field: field, Text: text, Partial: partial})
		}
	}
	note(len(spec.Register) > 0, "spec.register",
		"that nodes come with these taints, keep them, and do not leave the selector is not judged; `kubectl tollgate export map` gives nodes their taints", true)
	note(spec.TTL != nil, "spec.ttl", "taints end by Tollgate, not by admission", false)
	if limits := spec.Limits; limits != nil {
		const counts = "the API server does not count pods"
		note(limits.MaxAffectedPods != nil, "spec.limits.maxAffectedPods", counts, true)
		note(limits.MaxAffectedPercent != nil, "spec.limits.maxAffectedPercent", counts, true)
		note(limits.MaxTimeAddedSkew != nil, "spec.limits.maxTimeAddedSkew", "expressions of the API server do not know the time", true)
	}
	note(slices.ContainsFunc(spec.Setters, func(s v1alpha1.TaintSetter) bool { return strings.Contains(s.Expression, "timeAdded") }), "spec.setters",
		"Tollgate gives taints of nodes their time before it judges, and the API server judges those as they were sent", false)
	if slices.ContainsFunc(spec.Setters, func(s v1alpha1.TaintSetter) bool { return s.RBAC }) {
		notes = append(notes, vap.AboutKeys)
	}
	note(vap.Has(spec.Taints, v1alpha1.TaintTargetDevice), "spec.taints",
		"taints of devices are judged in DeviceTaintRules, not in ResourceSlices and ResourceSlicePatches", true)
	return notes
}

// read reads the setters and the conditions.
func (x *exportVAP) read() {
	for i := range x.p.Spec.Setters {
		in := &x.p.Spec.Setters[i]
		terms := []string{"variables.setter" + strconv.Itoa(i)}
		if len(in.Operations) > 0 {
			terms = append(terms, vap.In("g.operation", in.Operations))
		}
		if in.RBAC {
			x.authorizer = true
			terms = append(terms, "g.taint.key in variables.allowed")
		}
		if in.Expression != "" {
			terms = append(terms, x.setterExpression(i))
		}
		x.setters = append(x.setters, vap.And(terms...))
	}
	conditions := make([]string, len(x.p.Spec.MatchConditions))
	for i := range x.p.Spec.MatchConditions {
		conditions[i], _ = x.embed("spec.matchConditions["+strconv.Itoa(i)+"]", cel.OfRequest, x.p.Spec.MatchConditions[i].Expression, "true")
	}
	x.conditions = vap.And(conditions...)
}

func (x *exportVAP) setterExpression(i int) string {
	field := "spec.setters[" + strconv.Itoa(i) + "].expression"
	text, asks := x.embed(field, cel.OfTaint, x.p.Spec.Setters[i].Expression, "false")
	if asks {
		x.notes = append(x.notes, vap.AboutQuestions(field))
	}
	return text
}

// embed returns an expression of a user, with what it reads under the names that it has
// there, or what stands for one that the API server cannot evaluate, and whether it asks the
// authorizer.
func (x *exportVAP) embed(field string, place cel.Place, text, without string) (embedded string, asks bool) {
	read, err := cel.Embed(place, text, cel.Bool)
	if err != nil {
		x.notes = append(x.notes, vap.Note{Field: field, Text: "cannot be evaluated by the API server: " + err.Error(), Partial: true})
		return without, false
	}
	asks = read.Reads("authorizer")
	x.authorizer = x.authorizer || asks
	for _, name := range taintFields {
		if read.Sets(cel.SetName(name)) && !slices.Contains(x.fields, name) {
			x.fields = append(x.fields, name)
		}
	}
	slices.Sort(x.fields)
	bound := vap.Lines(read.Text)
	for _, v := range []struct{ name, value string }{
		{"object", "dyn(object)"},
		{"oldObject", "dyn(oldObject)"},
		{"taint", "g.taint"},
		{"operation", "g.operation"},
	} {
		if read.Reads(v.name) {
			bound = vap.Bind(v.name, v.value, bound)
		}
	}
	return bound, asks
}

var taintFields = []string{"key", "value", "effect"}

func (x *exportVAP) policies() []*vap.Policy {
	var policies []*vap.Policy
	if vap.Has(x.p.Spec.Taints, v1alpha1.TaintTargetNode) {
		policies = append(policies, x.ofNodes())
	}
	if vap.Has(x.p.Spec.Taints, v1alpha1.TaintTargetDevice) {
		policies = append(policies, x.ofRules())
	}
	return policies
}

func (x *exportVAP) blank(what string, notes ...vap.Note) *vap.Policy {
	return &vap.Policy{
		Name: "tollgate-taints-" + x.p.Name + "-" + what, From: policyRef(x.p.Name), Actions: policy.Actions(x.p.Spec.ValidationActions),
		Notes:      slices.Concat(x.notes, notes),
		Conditions: []admissionregistrationv1.MatchCondition{{Name: "not-tollgate", Expression: "request.userInfo.username != " + vap.Quote(x.settings.Self)}},
	}
}

// judging returns the variables that end in "refused". The variable "changes" before them
// has maps with the taint that goes, that which comes, or both, and where that is.
func (x *exportVAP) judging(target v1alpha1.TaintTarget) []admissionregistrationv1.Variable {
	governs := func(name string) string {
		return "has(c." + name + ") && " + vap.Enclose(vap.Any(x.p.Spec.Taints, target, func(s *v1alpha1.TaintSelector) string { return vap.Selects(s, "c."+name) }))
	}
	variables := []admissionregistrationv1.Variable{
		variable("seen", `variables.changes.map(c, {"before": dyn(`+governs("old")+`), "after": dyn(`+governs("now")+`), "change": dyn(c)})`),
		// As compiled.seen has it.
		variable("asked", `variables.seen.filter(s, s.before || s.after).map(s, {"operation": dyn(s.before && s.after ? "Change" : s.before ? "Remove" : "Add"), `+
			`"taint": dyn(s.after ? s.change.now : s.change.old), "path": dyn(s.change.path)})`),
	}
	asksRBAC := false
	for i := range x.p.Spec.Setters {
		variables = append(variables, variable("setter"+strconv.Itoa(i), vap.Subjects(x.p.Spec.Setters[i].Subjects)))
		asksRBAC = asksRBAC || x.p.Spec.Setters[i].RBAC
	}
	if asksRBAC {
		variables = append(variables,
			variable("wanted", "variables.asked.map(g, string(g.taint.key))"),
			variable("keys", "variables.wanted.transformList(i, k, !variables.wanted.exists(j, o, j < i && o == k), k)"))
		variables = append(variables, vap.Allowed(policy.VerbTaint, "authorizer")...)
	}
	return append(variables,
		variable("refused", "variables.asked.filter(g, "+vap.Not(vap.Or(x.setters...))+")"),
		variable("conditions", x.conditions))
}

// taint returns a taint t in which all fields have a value, with more entries.
func (x *exportVAP) taint(entries ...string) string {
	for _, field := range taintFields {
		entries = append(entries, vap.Quote(field)+": dyn(t.?"+field+`.orValue(""))`)
	}
	for _, field := range x.fields {
		entries = append(entries, vap.Quote(cel.SetName(field))+": dyn(has(t."+field+"))")
	}
	return "{" + strings.Join(append(entries, `?"timeAdded": t.?timeAdded.optMap(at, dyn(timestamp(at)))`), ", ") + "}"
}

// validation refuses what no setter is for, if the policy looks at the request.
func (x *exportVAP) validation() admissionregistrationv1.Validation {
	remedy := x.remedy()
	plain := policyRef(x.p.Name) + ": a taint may not be written; " + remedy
	said := ""
	if x.p.Spec.Message != "" {
		plain += ": " + x.p.Spec.Message
		said = " + " + vap.Quote(": "+x.p.Spec.Message)
	}
	// What RBAC says cannot be asked for a message, so it is not said which taint it is.
	message := ""
	if !x.authorizer {
		message = `size(variables.refused) == 0 ? "" : ` + vap.BindText("g", "variables.refused[0]",
			vap.Quote(policyRef(x.p.Name)+": ")+` + g.path + " (" + g.taint.key + (g.taint.value == "" ? "" : "=" + g.taint.value) + ":" + g.taint.effect + "): "`+
				` + request.userInfo.username + " may not " + g.operation.lowerAscii() + " this taint"`+
				` + (size(variables.refused) > 1 ? " and " + string(size(variables.refused) - 1) + " more" : "") + `+vap.Quote("; "+remedy)+said)
	}
	return admissionregistrationv1.Validation{
		Expression: "size(variables.refused) == 0 || !variables.conditions", Message: plain, MessageExpression: message,
		Reason: new(metav1.StatusReasonForbidden),
	}
}

// remedy says who may write the taints.
func (x *exportVAP) remedy() string {
	if len(x.p.Spec.Setters) == 0 {
		return "the policy lets nobody do it"
	}
	words := make([]string, len(x.p.Spec.Setters))
	for i := range words {
		words[i] = setterWords(&x.p.Spec.Setters[i])
	}
	return "allowed to " + policy.ShortList(words, "; ", maxRemedy/2)
}

func variable(name, text string) admissionregistrationv1.Variable {
	return admissionregistrationv1.Variable{Name: name, Expression: text}
}

// What is looked at.
var (
	writes  = []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}
	removes = append(slices.Clone(writes), admissionregistrationv1.Delete)
)
