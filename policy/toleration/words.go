package toleration

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// The lengths of what is said about a toleration.
const (
	maxField   = 96 // a toleration of a subrequest is far down
	maxNote    = 160
	maxRemedy  = 200
	maxFinding = 1024
	// MaxMessage is the length at which the message of a policy is cut.
	MaxMessage = maxFinding
)

// describe returns the toleration as it would be written for kubectl.
func describe(t *selector.Toleration) string {
	var b strings.Builder
	if t.Key != "" {
		b.WriteString("key=" + policy.Short(t.Key, policy.MaxKeyLength) + " ")
	}
	b.WriteString("operator=" + policy.Short(string(t.Operator), policy.Enum))
	if t.Value != "" {
		b.WriteString(" value=" + policy.Short(t.Value, policy.Value))
	}
	if t.Effect != "" {
		b.WriteString(" effect=" + policy.Short(string(t.Effect), policy.Enum))
	}
	if t.Seconds != nil {
		b.WriteString(" for " + strconv.FormatInt(*t.Seconds, 10) + "s")
	}
	if t.Key == "" {
		b.WriteString(" (" + reach(t) + ")")
	}
	return b.String()
}

// reach says which taints a toleration without a key tolerates.
func reach(t *selector.Toleration) string {
	switch {
	case !t.Wildcard():
		return "every key"
	case t.Effect == "":
		return "every taint"
	default:
		return "every taint of the effect"
	}
}

// atMost says what a toleration must be under a grant that limits it.
func atMost(seconds int64) string {
	return "effect " + string(corev1.TaintEffectNoExecute) + " with tolerationSeconds of at most " + strconv.FormatInt(seconds, 10)
}

const inNamespaces = "in namespaces"

// grantWords says in a few words whom a grant is for.
func grantWords(in *v1alpha1.TolerationGrant) string {
	var parts []string
	if len(in.Namespaces) > 0 || in.NamespaceSelector != nil {
		parts = append(parts, namespaceWords(in))
	}
	if len(in.Subjects) > 0 {
		parts = append(parts, "to "+policy.ShortSubjects(in.Subjects))
	}
	if in.RBAC {
		parts = append(parts, "to whom RBAC allows the verb tolerate on taints.tollgate.dev")
	}
	if in.Expression != "" {
		parts = append(parts, "where an expression of the policy says so")
	}
	if in.ObjectSelector != nil {
		parts = append(parts, "for objects labelled "+policy.Short(metav1.FormatLabelSelector(in.ObjectSelector), policy.MaxKeyLength))
	}
	words := strings.Join(parts, " ")
	if in.MaxTolerationSeconds != nil {
		words += " (NoExecute for at most " + strconv.FormatInt(*in.MaxTolerationSeconds, 10) + "s)"
	}
	return words
}

func namespaceWords(in *v1alpha1.TolerationGrant) string {
	words := inNamespaces
	if len(in.Namespaces) > 0 {
		words += " " + policy.ShortList(in.Namespaces, ", ", policy.Value)
	}
	if in.NamespaceSelector != nil {
		words += " labelled " + policy.Short(metav1.FormatLabelSelector(in.NamespaceSelector), policy.MaxKeyLength)
	}
	return words
}

// remedy says to whom the grants, each in its words, allow what a policy guards.
func remedy(granted []string) string {
	if len(granted) == 0 {
		return "nobody is allowed to tolerate it"
	}
	words := make([]string, len(granted))
	for i, grant := range granted {
		words[i] = grant
		if i > 0 && strings.HasPrefix(granted[i-1], inNamespaces) {
			words[i] = strings.TrimPrefix(grant, "in ")
		}
	}
	return policy.Short("allowed "+policy.ShortList(words, " or ", maxRemedy), maxRemedy)
}
