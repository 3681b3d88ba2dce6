package toleration

import (
	"fmt"
	"slices"
	"strconv"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/vap"
)

// Export returns a policy as ValidatingAdmissionPolicies with the same verdicts: one about
// pods and their templates, one about claims, one about the labels of namespaces, each where
// the policy has to do with it. Notes say what is missing.
//
// Controllers are let make what they make from templates, because the API server shows a
// policy no owner: the template was judged when it was written.
func Export(p *v1alpha1.TolerationPolicy, settings vap.Settings) (vap.Exported, error) {
	if errs := ValidatePolicy(p); len(errs) > 0 {
		return vap.Exported{}, fmt.Errorf("read TolerationPolicy %s: %w", p.Name, errs.ToAggregate())
	}
	x := newExport(p, settings)
	var out vap.Exported
	for _, exported := range x.policies() {
		if reasons := apivalidation.NameIsDNSSubdomain(exported.Name, false); len(reasons) > 0 {
			return vap.Exported{}, fmt.Errorf("name what TolerationPolicy %s is exported as: %q %s; give it a shorter name", p.Name, exported.Name, reasons[0])
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

// export is a policy that is being exported.
type export struct {
	p        *v1alpha1.TolerationPolicy
	settings vap.Settings
	// remedy is what refusals say of the grants.
	remedy     string
	grants     []exportedGrant
	conditions string
	// message is what the policy says itself, an expression of type string; empty for
	// nothing.
	message string
	// fields are those of tolerations that expressions ask whether they are set.
	fields []string
	// notes are about fields of the policy.
	notes []vap.Note
}

// exportedGrant is a grant in CEL.
type exportedGrant struct {
	*v1alpha1.TolerationGrant

	// expression is that of the grant; empty where there is none, "false" for one that the
	// API server cannot evaluate.
	expression string
	uses       cel.Uses
	authorizer bool
}

// dynamic reports whether the grant has to be asked for each toleration.
func (g *exportedGrant) dynamic() bool { return g.RBAC || g.expression != "" }

func newExport(p *v1alpha1.TolerationPolicy, settings vap.Settings) *export {
	c, _ := compile(p)
	x := &export{p: p, settings: settings, remedy: c.remedy}
	for i := range p.Spec.Grants {
		x.grants = append(x.grants, x.grant(i))
	}
	terms := make([]string, 0, len(p.Spec.MatchConditions))
	for i := range p.Spec.MatchConditions {
		field := "spec.matchConditions[" + strconv.Itoa(i) + "]"
		term, _ := x.embed(field, cel.OfRequest, p.Spec.MatchConditions[i].Expression, cel.Bool, "true")
		terms = append(terms, term)
	}
	x.conditions = vap.And(terms...)
	if text := p.Spec.Message; text != "" {
		x.message = vap.Quote(text)
	}
	x.readMessage()
	return x
}

func (x *export) grant(i int) exportedGrant {
	g := exportedGrant{TolerationGrant: &x.p.Spec.Grants[i]}
	if g.Expression != "" {
		var read cel.Embedded
		field := "spec.grants[" + strconv.Itoa(i) + "].expression"
		g.expression, read = x.embed(field, cel.OfToleration, g.Expression, cel.Bool, "false")
		g.uses, g.authorizer = read.Uses, read.Reads("authorizer")
		if g.authorizer {
			x.notes = append(x.notes, vap.AboutQuestions(field))
		}
	}
	return g
}

// readMessage reads the expression of the message. In messages the API server lets nobody
// be asked what is authorized; then the plain message has to do.
func (x *export) readMessage() {
	const field = "spec.messageExpression"
	if x.p.Spec.MessageExpression == "" {
		return
	}
	read, err := cel.Embed(cel.OfToleration, x.p.Spec.MessageExpression, cel.String)
	switch {
	case err != nil:
		x.notes = append(x.notes, vap.Note{Field: field, Text: "the plain message is used: " + err.Error()})
	case read.Reads("authorizer"):
		x.notes = append(x.notes, vap.Note{Field: field, Text: "the plain message is used: messages cannot ask what is authorized"})
	default:
		if x.asksAuthorizer() {
			x.notes = append(x.notes, vap.Note{Field: field, Text: "the plain message is used: messages cannot ask what grants are for, which ask RBAC or an authorizer"})
		}
		x.use(&read)
		x.message = bindAll(&read, vap.BindText)
	}
}

// embed returns an expression of a user, or what stands for one that the API server cannot
// evaluate.
func (x *export) embed(field string, place cel.Place, text string, result cel.Type, without string) (string, cel.Embedded) {
	read, err := cel.Embed(place, text, result)
	if err != nil {
		x.notes = append(x.notes, vap.Note{Field: field, Text: "cannot be evaluated by the API server: " + err.Error(), Partial: true})
		return without, cel.Embedded{}
	}
	x.use(&read)
	return bindAll(&read, vap.Bind), read
}

// use notes what an expression asks of tolerations.
func (x *export) use(read *cel.Embedded) {
	for _, field := range tolerationFields {
		name := cel.SetName(field)
		if read.Sets(name) && !slices.Contains(x.fields, field) {
			x.fields = append(x.fields, field)
		}
	}
	slices.Sort(x.fields)
}

var tolerationFields = []string{"key", "operator", "value", "effect"}

// bindAll gives an expression of a user what it reads, under the names that it has there.
// The toleration is that of g.
func bindAll(read *cel.Embedded, bind func(name, value, expression string) string) string {
	text := vap.Lines(read.Text)
	for _, v := range []struct{ name, value string }{
		{"object", "dyn(object)"},
		{"oldObject", "dyn(oldObject)"},
		{"pod", "variables.pod"},
		{"claim", "variables.claim"},
		{"toleration", "g.toleration"},
	} {
		if read.Reads(v.name) {
			text = bind(v.name, v.value, text)
		}
	}
	return text
}

// name returns what an exported policy is called.
func (x *export) name(what string) string { return "tollgate-tolerations-" + x.p.Name + "-" + what }

// policies returns the policies that the policy is exported as.
func (x *export) policies() []*vap.Policy {
	var policies []*vap.Policy
	if vap.Has(x.p.Spec.Taints, v1alpha1.TaintTargetNode) {
		policies = append(policies, x.ofPods())
	}
	if vap.Has(x.p.Spec.Taints, v1alpha1.TaintTargetDevice) {
		policies = append(policies, x.ofClaims())
	}
	if slices.ContainsFunc(x.grants, func(g exportedGrant) bool { return g.NamespaceSelector != nil }) {
		policies = append(policies, x.ofNamespaces())
	}
	return policies
}

// blank returns a policy without rules.
func (x *export) blank(what string, notes ...vap.Note) *vap.Policy {
	return &vap.Policy{
		Name: x.name(what), From: "TolerationPolicy/" + x.p.Name, Actions: policy.Actions(x.p.Spec.ValidationActions),
		Exempt: x.settings.Exempt, Notes: slices.Concat(x.notes, notes),
	}
}

// operations that policies look at.
var (
	created = []admissionregistrationv1.OperationType{admissionregistrationv1.Create}
	updated = []admissionregistrationv1.OperationType{admissionregistrationv1.Update}
	written = slices.Concat(created, updated)
)

func variable(name, text string) admissionregistrationv1.Variable {
	return admissionregistrationv1.Variable{Name: name, Expression: text}
}
