package toleration

import (
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/vap"
)

// The variables that judge by grants are the same for pods and claims. Before them stand
// those of the object: "tolerations", which are maps by their place, and "subject", which
// has the labels. g is an item of "guarded": a toleration, and for how many seconds it lasts
// where that matters.

// lastsForEver is longer than any grant is for.
const lastsForEver = "9223372036854775807"

// toleration returns a toleration t in which all fields have a value, with more entries.
func (x *export) toleration(entries ...string) string {
	defaults := []string{`""`, `"Equal"`, `""`, `""`}
	for i, field := range tolerationFields {
		entries = append(entries, vap.Quote(field)+": dyn(t.?"+field+".orValue("+defaults[i]+"))")
	}
	for _, field := range x.fields {
		entries = append(entries, vap.Quote("set_"+field)+": dyn(has(t."+field+"))")
	}
	return "{" + strings.Join(append(entries, `?"tolerationSeconds": t.?tolerationSeconds`), ", ") + "}"
}

// guarded returns those of the variable "tolerations" that the policy guards.
func (x *export) guarded(target v1alpha1.TaintTarget) admissionregistrationv1.Variable {
	could := vap.Any(x.p.Spec.Taints, target, func(s *v1alpha1.TaintSelector) string { return vap.Could(s, "t") })
	lasts := "0"
	if slices.ContainsFunc(x.grants, func(g exportedGrant) bool { return g.MaxTolerationSeconds != nil }) {
		outlast := vap.Any(x.p.Spec.Taints, target, func(s *v1alpha1.TaintSelector) string { return vap.CouldOutlast(s, "t") })
		lasts = "!" + vap.Enclose(outlast) + " ? 0 : t.effect == \"NoExecute\" ? t.?tolerationSeconds.orValue(" + lastsForEver + ") : " + lastsForEver
	}
	return variable("guarded", "variables.tolerations.transformList(i, t, "+could+", {\"toleration\": dyn(t), \"lasts\": dyn("+lasts+")})")
}

// statics returns what of each grant does not depend on the toleration, as variables.
func (x *export) statics() []admissionregistrationv1.Variable {
	variables := make([]admissionregistrationv1.Variable, len(x.grants))
	for i := range x.grants {
		g := &x.grants[i]
		variables[i] = variable(grantName(i), vap.And(place(g), vap.Subjects(g.Subjects)))
	}
	return variables
}

func grantName(i int) string { return "grant" + strconv.Itoa(i) }

// staticsAgain returns what of each grant has nothing to do with who asks, as variables.
func (x *export) staticsAgain() []admissionregistrationv1.Variable {
	variables := make([]admissionregistrationv1.Variable, len(x.grants))
	for i := range x.grants {
		variables[i] = variable(grantName(i)+"again", place(&x.grants[i]))
	}
	return variables
}

// place returns whether a grant is for the namespace and the labels of the object.
func place(g *exportedGrant) string {
	return vap.And(
		covers(g, "request.namespace", "namespaceObject.metadata.?labels"),
		vap.Labels(g.ObjectSelector, "variables.subject.?metadata.?labels"),
	)
}

// covers returns whether a grant is for a namespace with these labels.
func covers(g *exportedGrant, namespace, labels string) string {
	return vap.And(inNamespace(g.Namespaces, namespace), vap.Labels(g.NamespaceSelector, labels))
}

func inNamespace(patterns []string, namespace string) string {
	if len(patterns) == 0 {
		return "true"
	}
	var names, terms []string
	for _, pattern := range patterns {
		prefix, open := strings.CutSuffix(pattern, "*")
		switch {
		case !open:
			names = append(names, pattern)
		case prefix == "":
			return "true"
		default:
			terms = append(terms, namespace+".startsWith("+vap.Quote(prefix)+")")
		}
	}
	if len(names) > 0 {
		terms = append([]string{vap.In(namespace, names)}, terms...)
	}
	return vap.Or(terms...)
}

// fits returns whether g stays within the time of a grant.
func fits(g *exportedGrant) string {
	if g.MaxTolerationSeconds == nil {
		return "true"
	}
	return "g.lasts <= " + strconv.FormatInt(*g.MaxTolerationSeconds, 10)
}

// free returns whether a grant that costs nothing to ask is for g.
func (x *export) free() string {
	return x.anyGrant(func(i int, g *exportedGrant) string {
		if g.dynamic() {
			return "false"
		}
		return vap.And("variables."+grantName(i), fits(g))
	})
}

// asked returns whether a grant by RBAC or an expression is for g.
func (x *export) asked() string {
	return x.anyGrant(func(i int, g *exportedGrant) string {
		terms := []string{"variables." + grantName(i), fits(g)}
		switch {
		case !g.dynamic():
			return "false"
		case g.RBAC:
			terms = append(terms, "g.toleration.key in variables.allowed")
		}
		if g.expression != "" {
			terms = append(terms, g.expression)
		}
		return vap.And(terms...)
	})
}

// whoever returns whether a grant is for g, whoever may have asked for it.
func (x *export) whoever() string {
	return x.anyGrant(func(i int, g *exportedGrant) string {
		terms := []string{"variables." + grantName(i) + "again", fits(g)}
		if g.expression != "" && !g.uses.Requester {
			terms = append(terms, g.expression)
		}
		return vap.And(terms...)
	})
}

func (x *export) anyGrant(term func(int, *exportedGrant) string) string {
	terms := make([]string, len(x.grants))
	for i := range x.grants {
		terms[i] = term(i, &x.grants[i])
	}
	return vap.Or(terms...)
}

// judging returns the variables that end in "refused". Unsettled says of g that nothing but
// a grant could let it in. By are the authorizers that are asked by grants through RBAC.
func (x *export) judging(unsettled string, by ...string) []admissionregistrationv1.Variable {
	variables := append(x.statics(), variable("unsettled", "variables.guarded.filter(g, "+vap.And(vap.Not(x.free()), unsettled)+")"))
	if x.asksRBAC() {
		variables = append(variables, x.keys()...)
		variables = append(variables, vap.Allowed(policy.VerbTolerate, by...)...)
	}
	refused := "variables.unsettled"
	if asked := x.asked(); asked != "false" {
		refused += ".filter(g, " + vap.Not(asked) + ")"
	}
	return append(variables, variable("refused", refused), variable("conditions", x.conditions))
}

// asksRBAC reports whether some grant is by RBAC.
func (x *export) asksRBAC() bool {
	return slices.ContainsFunc(x.grants, func(g exportedGrant) bool { return g.RBAC })
}

// keys returns the variable of the keys that RBAC is asked about, each once, if a grant by
// RBAC is for the request.
func (x *export) keys() []admissionregistrationv1.Variable {
	asks := x.anyGrant(func(i int, g *exportedGrant) string {
		if !g.RBAC {
			return "false"
		}
		return "variables." + grantName(i)
	})
	return []admissionregistrationv1.Variable{
		variable("wanted", vap.Enclose(asks)+" ? variables.unsettled.map(g, string(g.toleration.key)) : []"),
		variable("keys", "variables.wanted.transformList(i, k, !variables.wanted.exists(j, o, j < i && o == k), k)"),
	}
}

// validation refuses where a list of g is not empty, if the policy looks at the request.
// What could not be evaluated of conditions does not matter where nothing is refused.
func (x *export) validation(list, message string) admissionregistrationv1.Validation {
	return admissionregistrationv1.Validation{
		Expression:        "size(variables." + list + ") == 0 || !variables.conditions",
		Message:           x.plain(),
		MessageExpression: message,
		Reason:            new(forbidden),
	}
}
