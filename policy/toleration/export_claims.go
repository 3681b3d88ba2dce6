package toleration

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/vap"
)

// claimMakers are the users that make claims from their templates.
var claimMakers = []string{"system:serviceaccount:kube-system:resource-claim-controller", "system:kube-controller-manager"}

// ofClaims returns the policy about ResourceClaims and their templates. What they tolerate
// does not change.
func (x *export) ofClaims() *vap.Policy {
	p := x.blank("claims", append(x.askingNotes(),
		vap.Note{Text: "claims that Kubernetes makes from a template are let in, since the template was judged"},
		vap.Note{Text: "what mode Window gives a claim is judged as if its user had asked for it"},
	)...)
	p.Rules = []admissionregistrationv1.NamedRuleWithOperations{
		vap.Rule("resource.k8s.io", "v1", admissionregistrationv1.NamespacedScope, created, "resourceclaims", "resourceclaimtemplates"),
	}
	p.Conditions = []admissionregistrationv1.MatchCondition{
		{Name: "not-made-from-a-template", Expression: vap.Not(vap.In("request.userInfo.username", claimMakers))},
	}
	const claim = `request.resource.resource == "resourceclaims" ? `
	p.Variables = slices.Concat(
		[]admissionregistrationv1.Variable{
			variable("place", claim+`"spec.devices.requests[" : "spec.spec.devices.requests["`),
			variable("claim", claim+"dyn(object) : dyn(object).spec"),
			variable("subject", "variables.claim"),
			variable("pod", "null"),
			variable("tolerations", x.claimTolerations()),
			x.guarded(v1alpha1.TaintTargetDevice),
		},
		x.judging("true", "authorizer"),
	)
	p.Validations = []admissionregistrationv1.Validation{
		x.validation("refused", x.words("refused", "g.toleration.at", "could tolerate what the policy guards, which is not granted to user ")),
	}
	return p
}

// claimTolerations returns the tolerations of all requests, and of all that may stand for
// one, by their place, each with its class.
func (x *export) claimTolerations() string {
	const parts = `([{"name": dyn("exactly"), "of": dyn(r.?exactly.orValue({}))}] + ` +
		`r.?firstAvailable.orValue([]).transformList(k, sub, {"name": dyn("firstAvailable[" + string(k) + "]"), "of": dyn(sub)}))`
	const at = `variables.place + string(n) + "]." + part.name + ".tolerations[" + string(i) + "]"`
	t := x.toleration(`"at": dyn(`+at+`)`, `"class": dyn(part.of.?deviceClassName.orValue(""))`)
	return "variables.claim.spec.?devices.?requests.orValue([]).transformMapEntry(n, r, " + parts +
		".transformMapEntry(p, part, part.of.?tolerations.orValue([]).transformMapEntry(i, t, {" + at + ": " + t + "})))"
}
