package toleration

import (
	"strconv"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/vap"
)

// mostNamespaceKeys is about how many keys RBAC is asked for a namespace. Of more, only who
// may tolerate all keys may set the labels.
const mostNamespaceKeys = 20

// ofNamespaces returns the policy about the labels of namespaces: who gives a namespace a
// label that the policy grants something for must be allowed to tolerate the taints.
func (x *export) ofNamespaces() *vap.Policy {
	c, _ := compile(x.p)
	keys := c.keys()
	p := x.blank("namespaces")
	if len(keys) > mostNamespaceKeys {
		p.Notes = append(p.Notes, vap.Note{Field: "spec.taints", Partial: true, Text: "names more than " + strconv.Itoa(mostNamespaceKeys) +
			" keys: only who may tolerate every key may set labels that satisfy a namespaceSelector"})
		keys = nil
	}
	p.Rules = []admissionregistrationv1.NamedRuleWithOperations{
		vap.Rule("", "v1", admissionregistrationv1.ClusterScope, written, "namespaces"),
		vap.Rule("", "v1", admissionregistrationv1.ClusterScope, updated, "namespaces/status", "namespaces/finalize"),
	}
	p.Variables = append([]admissionregistrationv1.Variable{
		variable("labels", "dyn(object).metadata.?labels.orValue({})"),
		variable("before", `request.operation == "CREATE" ? dyn({`+vap.Quote(corev1.LabelMetadataName)+`: request.name}) : dyn(oldObject).metadata.?labels.orValue({})`),
		variable("newly", x.newly()),
	}, mayAll(keys)...)
	p.Validations = []admissionregistrationv1.Validation{{
		Expression: "!variables.newly || variables.mayAll",
		Message: "TolerationPolicy/" + x.p.Name + ": metadata.labels: with these labels the namespace would be granted taints of the policy, which you may not " +
			"tolerate yourself; allowed to whom RBAC allows the verb tolerate on taints.tollgate.dev of their keys",
		Reason: new(forbidden),
	}}
	return p
}

// newly returns whether the namespace satisfies a grant by its labels that it did not.
func (x *export) newly() string {
	return x.anyGrant(func(_ int, g *exportedGrant) string {
		if g.NamespaceSelector == nil {
			return "false"
		}
		return vap.And(covers(g, "request.name", "variables.labels"), vap.Not(covers(g, "request.name", "variables.before")))
	})
}

// mayAll returns variables that end in whether the requester may tolerate the taints of all
// keys: by name, or those of every key. An expression has no more than two questions.
func mayAll(keys []string) []admissionregistrationv1.Variable {
	may := func(key string) string { return vap.May("authorizer", policy.VerbTolerate, vap.Quote(key)) }
	variables := []admissionregistrationv1.Variable{variable("mayEvery", may(""))}
	each := make([]string, len(keys))
	for i, key := range keys {
		name := "may" + strconv.Itoa(i)
		variables = append(variables, variable(name, may(key)))
		each[i] = "variables." + name
	}
	all := "false"
	if len(each) > 0 {
		all = vap.And(each...)
	}
	return append(variables, variable("mayAll", vap.Or("variables.mayEvery", all)))
}
