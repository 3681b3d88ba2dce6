package policy

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// Verdict is the outcome of a decision. The zero Verdict denies, so that a
// decision that was never made lets nothing through.
type Verdict uint8

// The verdicts.
const (
	Denied Verdict = iota
	Allowed
)

// String returns the verdict as it is written in logs and metric labels.
func (v Verdict) String() string {
	if v == Allowed {
		return "allowed"
	}
	return "denied"
}

// Finding is one thing that is not as a policy, or a rule of Kubernetes, asks.
type Finding struct {
	// Policy is "Kind/name" of the policy that is violated, or of several as JoinRefs joins
	// them; empty for a rule that holds without one.
	Policy string `json:"policy,omitempty"`
	// Reason names the kind of finding.
	Reason Reason `json:"reason"`
	// Actions say what the finding leads to. None means Deny.
	Actions []v1alpha1.ValidationAction `json:"actions"`
	// Field is the path of the offending field, such as spec.tolerations[2].
	Field string `json:"field,omitempty"`
	// Value is the offending value as a user would write it.
	Value string `json:"value,omitempty"`
	// Problem says what is wrong, without the field and the value.
	Problem string `json:"problem"`
	// Remedy says what would be allowed instead.
	Remedy string `json:"remedy,omitempty"`
}

// Denies reports whether the finding refuses the request.
func (f Finding) Denies() bool { return Denies(f.Actions) }

// Denies reports whether the actions of a policy refuse requests. None means Deny.
func Denies(actions []v1alpha1.ValidationAction) bool {
	return len(actions) == 0 || slices.Contains(actions, v1alpha1.Deny)
}

// Has reports whether action is among the actions of the finding.
func (f Finding) Has(action v1alpha1.ValidationAction) bool {
	return slices.Contains(f.Actions, action)
}

// String returns the finding as one sentence for the user who sent the request:
// policy, field, value, what is wrong, and what would be allowed.
func (f Finding) String() string {
	var b strings.Builder
	if f.Policy != "" {
		b.WriteString(f.Policy + ": ")
	}
	b.WriteString(f.Field)
	if f.Value != "" {
		b.WriteString(" (" + f.Value + ")")
	}
	b.WriteString(": " + f.Problem)
	if f.Remedy != "" {
		b.WriteString("; " + f.Remedy)
	}
	return b.String()
}

// MaxFinding is the length at which a finding is cut.
const MaxFinding = 1024

// WithMessage returns the finding with the message of its policy, unless the room for it is so small
// that what is left of it would say nothing.
func (f Finding) WithMessage(message string) Finding {
	const separator, least = ": ", 16
	if room := MaxFinding - len(f.String()) - len(separator); message != "" && room >= least {
		f.Problem += separator + Short(message, room)
	}
	return f
}

// Decision is a verdict and what led to it.
type Decision struct {
	Verdict  Verdict
	Findings []Finding
}

// Decide returns the decision that follows from findings: denied when one of
// them denies, else allowed. The order of the findings does not matter, the
// decision holds them sorted, so that the same request gets the same answer
// from every replica.
func Decide(findings []Finding) Decision {
	sorted := slices.Clone(findings)
	slices.SortStableFunc(sorted, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Problem, b.Problem))
	})
	verdict := Allowed
	if slices.ContainsFunc(sorted, Finding.Denies) {
		verdict = Denied
	}
	return Decision{Verdict: verdict, Findings: sorted}
}

// MaxFindings bounds the findings of a decision about tolerations, taints or gates: a request may
// have any number of these, and the answer must stay readable, and small.
const MaxFindings = 20

// Report collects findings up to the bound, but always one that denies where there is one, so
// that the bound never changes the verdict.
type Report struct {
	Findings []Finding
	// Denied says that one of the findings denies, Cut that some are not listed.
	Denied, Cut bool
}

// Done reports whether nothing that follows could change the decision.
func (r *Report) Done() bool { return r.Denied && r.Cut }

// Add adds a finding, which is made only where it is added, or once, instead of those that are not
// listed, the finding more.
func (r *Report) Add(denies bool, finding func() Finding, more Finding) {
	switch {
	case len(r.Findings) < MaxFindings-2 || denies && !r.Denied:
		r.Findings = append(r.Findings, finding())
		r.Denied = r.Denied || denies
	case !r.Cut:
		r.Findings = append(r.Findings, more)
		r.Cut = true
	}
}

// Ref returns how messages refer to a policy: its kind and its name. The name of a policy that
// a guard of a PlacementPolicy stands for is such a reference already.
func Ref(kind, name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	return kind + "/" + name
}

const refSeparator = ", "

// JoinRefs returns how messages refer to several policies.
func JoinRefs(refs []string) string { return strings.Join(refs, refSeparator) }

// Policies returns "Kind/name" of each policy that is violated, or one empty string for a
// rule that holds without one.
func (f Finding) Policies() iter.Seq[string] { return strings.SplitSeq(f.Policy, refSeparator) }

// MaxNamed is the number of policies that the labels of a metric name. The others have
// OtherName together, so that the number of series has a limit.
const (
	MaxNamed  = 500
	OtherName = "other"
)

// Unjudged reports whether admission never judges the objects of a namespace: the
// namespaceSelector of the webhooks leaves out kube-system and the namespace of Tollgate, so
// that a cluster can start without Tollgate.
func Unjudged(namespace, tollgate string) bool {
	return namespace == metav1.NamespaceSystem || namespace == tollgate
}
