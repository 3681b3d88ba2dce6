package toleration

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/vap"
)

// forbidden is what a client is told that Tollgate refuses.
var forbidden = metav1.StatusReasonForbidden

// plain is what is said where there is no expression for it, or it failed.
func (x *export) plain() string {
	text := "TolerationPolicy/" + x.p.Name + ": a toleration is not granted; " + x.remedy
	if message := strings.TrimSpace(policy.Short(x.p.Spec.Message, maxFinding)); message != "" {
		text += ": " + message
	}
	return text
}

// words returns the expression of what is said of the first of a list of g. Path is the
// expression of where g stands. What RBAC says cannot be asked for a message: then there is
// none, because it is not known which g is refused.
func (x *export) words(list, path, problem string) string {
	if list == "refused" && x.asksAuthorizer() {
		return ""
	}
	all := "variables." + list
	text := vap.Quote("TolerationPolicy/"+x.p.Name+": ") + " + " + path + ` + " (operator=" + g.toleration.operator` +
		described("key") + described("value") + described("effect") +
		` + (has(g.toleration.tolerationSeconds) ? " for " + string(g.toleration.tolerationSeconds) + "s" : "")` +
		` + ")" + (size(` + all + `) > 1 ? " and " + string(size(` + all + `) - 1) + " more" : "")` +
		" + " + vap.Quote(": "+problem) + ` + request.userInfo.username + " in namespace " + request.namespace + ` + vap.Quote("; "+x.remedy)
	if x.message != "" {
		text += ` + ": " + ` + x.message
	}
	// The API server evaluates messages also of what is allowed.
	return "size(" + all + `) == 0 ? "" : ` + vap.BindText("g", first(list), text)
}

// first returns the first g of a list. What comes from a map has no order; of very many it
// does not matter which it is.
func first(list string) string {
	const most = "20"
	all := "variables." + list
	return "(size(" + all + ") > " + most + " ? " + all + " : " + all + ".filter(a, " + all + ".all(b, a.toleration.at <= b.toleration.at)))[0]"
}

func described(field string) string {
	value := "g.toleration." + field
	return ` + (` + value + ` == "" ? "" : ` + vap.Quote(" "+field+"=") + " + " + value + ")"
}

// asksAuthorizer reports whether what is refused depends on what is authorized.
func (x *export) asksAuthorizer() bool {
	return slices.ContainsFunc(x.grants, func(g exportedGrant) bool { return g.RBAC || g.authorizer })
}
