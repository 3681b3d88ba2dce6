package toleration

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// add adds the finding of a policy about the list at path. It is made only where it is
// kept.
func (h *review) add(c *compiled, path *field.Path, finding func() policy.Finding) {
	h.report.Add(c.denies, finding, moreFindings(c, path, "more tolerations violate this policy or others than are listed"))
}

// moreFindings returns the finding that stands for others about the list at path.
func moreFindings(c *compiled, path *field.Path, problem string) policy.Finding {
	f := blank(c, path)
	f.Reason, f.Problem, f.Remedy = policy.MoreFindings, problem, ""
	return f
}

// unasked adds the finding that RBAC was not asked about more tolerations of the list at path,
// because the request is refused already.
func (h *review) unasked(c *compiled, why *outcome, path *field.Path) {
	r := &h.report
	if h.curtailed || !r.Denied || len(r.Findings) >= policy.MaxFindings-2 || !errors.Is(why.fault, errNotAsked) {
		return
	}
	h.curtailed = true
	r.Findings = append(r.Findings, moreFindings(c, path,
		"RBAC was not asked about more tolerations, because the request is refused already: they may violate this policy or others"))
}

func (h *review) finding(ctx context.Context, q *question, r *outcome, guard *selector.Selector, path *field.Path) policy.Finding {
	c := q.policy
	f := blank(c, path)
	f.Reason = policy.TolerationNotGranted
	f.Value = describe(q.t)
	problem := "could tolerate " + guard.String() + ", which is not granted to " + c.whom(&h.in)
	if r.bounded {
		f.Reason = policy.TolerationTooLong
		f.Remedy = "allowed is " + atMost(r.limit)
		if q.t.Effect == "" && !slices.ContainsFunc(c.grants, func(g grant) bool { return g.expression != nil }) {
			// The time of a grant bounds NoExecute alone, and tolerationSeconds may stand beside no
			// other effect. An expression may read the effect.
			f.Remedy += ", and an entry of its own for effect " + string(corev1.TaintEffectNoSchedule) + " without"
		}
		problem = "could tolerate " + guard.String() + " for longer than is granted to " + c.whom(&h.in)
	}
	return h.finish(f, c, r, problem, h.message(ctx, q))
}

// blank returns a finding of a policy about a field.
func blank(c *compiled, path *field.Path) policy.Finding {
	return policy.Finding{
		Policy:  policyRef(c),
		Actions: slices.Clone(c.actions),
		Field:   policy.Short(path.String(), maxField),
		Remedy:  c.remedy,
	}
}

// finish sets the problem of a finding, with the notes of the outcome and the message of the
// policy, as far as there is room.
func (h *review) finish(f policy.Finding, c *compiled, r *outcome, problem, message string) policy.Finding {
	if len(c.problems) > 0 {
		f.Remedy += " (the policy is not fully in force, see its status)"
	}
	if len(r.notes) > 0 {
		problem += " (" + policy.ShortList(r.notes, "; ", maxNote) + ")"
	}
	f.Problem = policy.Short(problem, policy.MaxFinding-len(f.String()))
	return f.WithMessage(message)
}

// message returns the message of the policy about a toleration. If its expression fails, which one
// that returns nothing or several lines does, that is the plain message.
func (h *review) message(ctx context.Context, q *question) string {
	if q.policy.expression != nil && h.in.Review != nil {
		if text, err := q.policy.expression.Text(ctx, h.in.Review.Aside(), h.judged(q)); err == nil {
			return text
		}
	}
	return q.policy.message
}

// whom returns the subject of a denial for its message: the namespace, with the user if a
// grant of the policy depends on more than the namespace and the requester is known.
func (c *compiled) whom(in *Input) string {
	namespace := "namespace " + policy.Short(in.Namespace, policy.Value)
	if !c.personal || in.RequesterUnknown {
		return namespace
	}
	return "user " + policy.Short(in.User.Username, policy.MaxKeyLength) + " in " + namespace
}

func policyRef(c *compiled) string { return policy.Ref("TolerationPolicy", c.name) }

// The lengths of the parts of findings.
const (
	maxField  = 96 // a toleration of a subrequest is far down
	maxNote   = 160
	maxRemedy = 200
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
	switch {
	case t.Key != "":
	case t.Operator != corev1.TolerationOpExists:
		b.WriteString(" (every key)")
	case t.Effect == "":
		b.WriteString(" (every taint)")
	default:
		b.WriteString(" (every taint of the effect)")
	}
	return b.String()
}

// atMost describes the tolerations that a grant with a limit allows.
func atMost(seconds int64) string {
	return "effect " + string(corev1.TaintEffectNoExecute) + " with tolerationSeconds of at most " + strconv.FormatInt(seconds, 10)
}

const inNamespaces = "in namespaces"

// grantWords returns the subjects of a grant, for messages.
func grantWords(in *v1alpha1.TolerationGrant) string {
	var parts []string
	namespaces := inNamespaces
	if len(in.Namespaces) > 0 {
		namespaces += " " + policy.ShortList(in.Namespaces, ", ", policy.Value)
	}
	if in.NamespaceSelector != nil {
		namespaces += " labelled " + policy.Short(metav1.FormatLabelSelector(in.NamespaceSelector), policy.MaxKeyLength)
	}
	if namespaces != inNamespaces {
		parts = append(parts, namespaces)
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

// remedy returns the subjects to which the grants allow the guarded taints, for messages.
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
