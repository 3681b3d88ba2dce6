package vap

import (
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// MostKeys is about how many keys RBAC is asked for one object: a question costs 350,000 of
// the 10,000,000 that the API server spends on a policy, and a pod is two users to ask
// about. What has more keys is refused.
const MostKeys = 8

// AboutKeys is the note on that.
var AboutKeys = Note{Text: "RBAC is asked about any number of keys: here an object is refused that has more than " + strconv.Itoa(MostKeys) + " which nothing but RBAC could allow"}

// AboutQuestions is the note on an expression of a field that asks its authorizer, once for
// each thing that is judged: the API server spends 1,000,000 on the evaluation of one
// variable, and refuses what would cost more.
func AboutQuestions(field string) Note {
	return Note{Field: field, Text: "asks what is authorized: here an object is refused that has more than two questions asked about it"}
}

// May returns whether somebody, who is an authorizer of CEL, may do a verb on the taints
// with a key, which is an expression.
func May(who, verb, key string) string {
	return who + ".group(" + Quote(v1alpha1.GroupVersion.Group) + `).resource("taints").name(` + key + ").check(" + Quote(verb) + ").allowed()"
}

// Allowed returns variables that end in one called "allowed": which of the keys in the list
// that the variable "keys" is, one of some authorizers lets have. Each key is a variable,
// because an expression has no more than two questions.
func Allowed(verb string, by ...string) []admissionregistrationv1.Variable {
	var variables []admissionregistrationv1.Variable
	all := make([]string, MostKeys)
	for i := range MostKeys {
		n := strconv.Itoa(i)
		may := make([]string, len(by))
		for j, who := range by {
			may[j] = May(who, verb, "variables.keys["+n+"]")
		}
		variables = append(variables, admissionregistrationv1.Variable{
			Name: "may" + n, Expression: "size(variables.keys) > " + n + " && " + Enclose(Or(may...)),
		})
		all[i] = "(variables.may" + n + " ? [variables.keys[" + n + "]] : [])"
	}
	return append(variables, admissionregistrationv1.Variable{Name: "allowed", Expression: strings.Join(all, " + ")})
}
