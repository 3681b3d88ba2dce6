package taint

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/vap"
)

// collectors are the users who delete what has lost its owner.
var collectors = []string{"system:serviceaccount:kube-system:generic-garbage-collector", "system:kube-controller-manager"}

// ofRules returns the policy about DeviceTaintRules. Of a rule there is one taint, now and
// before, which are lists of one or none here.
func (x *exportVAP) ofRules() *vap.Policy {
	p := x.blank("rules")
	p.Rules = []admissionregistrationv1.NamedRuleWithOperations{
		vap.Rule(resourcev1.GroupName, "*", admissionregistrationv1.ClusterScope, removes, "devicetaintrules"),
	}
	p.Conditions = append(p.Conditions, admissionregistrationv1.MatchCondition{
		Name: "not-collected-with-its-patch",
		Expression: `request.operation != "DELETE" || ` + vap.Not(vap.In("request.userInfo.username", collectors)) +
			` || !dyn(oldObject).metadata.?labels[?"` + v1alpha1.LabelPatch + `"].hasValue()`,
	})
	taint := func(object string) string {
		return "[dyn(" + object + ").spec.taint].map(t, " +
			x.taint(`"kind": dyn(t.key + ":" + t.effect)`, `"driver": dyn(dyn(`+object+`).spec.?deviceSelector.?driver.orValue(""))`) + ").filter(t, " + notExempt + ")"
	}
	const (
		one    = `size(variables.now) == 0 || size(variables.old) == 0 || variables.now[0].kind != variables.old[0].kind`
		all    = `variables.now.map(t, {"now": dyn(t), "path": dyn("spec.taint")}) + variables.old.map(t, {"old": dyn(t), "path": dyn("spec.taint")})`
		change = `[{"now": dyn(variables.now[0]), "old": dyn(variables.old[0]), "path": dyn(variables.reselected ? "spec.deviceSelector" : "spec.taint")}]`
	)
	p.Variables = append([]admissionregistrationv1.Variable{
		variable("now", `request.operation == "DELETE" ? [] : `+taint("object")),
		variable("old", `request.operation == "CREATE" ? [] : `+taint("oldObject")),
		variable("reselected", `request.operation == "UPDATE" && dyn(object).spec.?deviceSelector != dyn(oldObject).spec.?deviceSelector`),
		variable("changes", one+" ? "+all+" : !variables.reselected && variables.now[0] == variables.old[0] ? [] : "+change),
	}, x.judging(v1alpha1.TaintTargetDevice)...)
	p.Validations = append([]admissionregistrationv1.Validation{x.validation()}, x.ruleLimits()...)
	return p
}

// ruleLimits returns the limits that are about rules. They are about what a rule is to do,
// and not about its end.
func (x *exportVAP) ruleLimits() []admissionregistrationv1.Validation {
	limits := x.p.Spec.Limits
	if limits == nil {
		return nil
	}
	limit := func(holds, message string) admissionregistrationv1.Validation {
		return admissionregistrationv1.Validation{
			Expression: `!variables.asked.exists(g, g.operation != "Remove") || !variables.conditions || ` + vap.Enclose(holds),
			Message:    policyRef(x.p.Name) + ": " + message, Reason: new(metav1.StatusReasonForbidden),
		}
	}
	var validations []admissionregistrationv1.Validation
	if limits.RequireSelector {
		const every = `dyn(object).spec.?deviceSelector.optMap(s, !has(s.driver) && !has(s.pool) && !has(s.device)).orValue(false)`
		const severity = `{"None": 0, "NoSchedule": 1, "NoExecute": 2}[?`
		const less = `request.operation == "UPDATE" && !variables.reselected && ` +
			`dyn(object).spec.taint.key == dyn(oldObject).spec.taint.key && ` +
			`dyn(object).spec.taint.?value.orValue("") == dyn(oldObject).spec.taint.?value.orValue("") && ` +
			severity + `dyn(object).spec.taint.effect].orValue(3) <= ` + severity + `dyn(oldObject).spec.taint.effect].orValue(3)`
		validations = append(validations, limit("!"+every+" || "+less,
			"spec.deviceSelector: names no driver, pool or device, and may select every device; name a driver, a pool or a device"))
	}
	if limits.RequirePreview {
		const stood = `dyn(object).spec.taint.effect != "NoExecute" || request.operation == "UPDATE" && !variables.reselected && ` +
			`dyn(oldObject).spec.taint.effect in ["None", "NoExecute"] && dyn(object).spec.taint.key == dyn(oldObject).spec.taint.key && ` +
			`dyn(object).spec.taint.?value.orValue("") == dyn(oldObject).spec.taint.?value.orValue("")`
		validations = append(validations, limit(stood,
			"spec.taint.effect: evicts pods, and the rule did not stand at effect None with this taint and selector before; "+
				"write it with effect None, read its status, then change the effect alone"))
	}
	return validations
}
