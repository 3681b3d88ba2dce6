package check

import (
	"strings"

	"gomodules.xyz/jsonpatch/v2"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

// Verdict is what became of an object.
type Verdict string

// The verdicts.
const (
	Allowed Verdict = "allowed"
	// Warned is allowed with warnings.
	Warned Verdict = "warned"
	Denied Verdict = "denied"
	// Undecided is an object of which nobody can say without a cluster, or that does not
	// read as what it says it is.
	Undecided Verdict = "undecided"
)

// Finding is one thing that a policy, or a rule of Kubernetes, has against an object. It is
// policy.Finding with names for JSON.
type Finding struct {
	// Policy is "Kind/name", and empty for rules that hold without a policy.
	Policy string        `json:"policy,omitempty"`
	Reason policy.Reason `json:"reason"`
	// Actions are never empty.
	Actions []v1alpha1.ValidationAction `json:"actions"`
	Field   string                      `json:"field,omitempty"`
	Value   string                      `json:"value,omitempty"`
	Problem string                      `json:"problem"`
	Remedy  string                      `json:"remedy,omitempty"`
}

// Message is what the finding says, without the policy and the field.
func (f *Finding) Message() string {
	var b strings.Builder
	if f.Value != "" {
		b.WriteString(f.Value + ": ")
	}
	b.WriteString(f.Problem)
	if f.Remedy != "" {
		b.WriteString("; " + f.Remedy)
	}
	return b.String()
}

// Denies reports whether the finding refuses.
func (f *Finding) Denies() bool { return f.has(v1alpha1.Deny) }

// Warns reports whether the finding warns.
func (f *Finding) Warns() bool { return f.has(v1alpha1.Warn) }

func (f *Finding) has(action v1alpha1.ValidationAction) bool {
	return policy.Finding{Actions: f.Actions}.Has(action)
}

func findingsOf(found []policy.Finding) []Finding {
	out := make([]Finding, 0, len(found))
	for _, f := range found {
		actions := f.Actions
		if len(actions) == 0 {
			actions = []v1alpha1.ValidationAction{v1alpha1.Deny}
		}
		out = append(out, Finding{f.Policy, f.Reason, actions, f.Field, f.Value, f.Problem, f.Remedy})
	}
	return out
}

// Result is the judgement of one object.
type Result struct {
	// Position is zero for what stands in a cluster.
	Position   Position `json:"-"`
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Namespace  string   `json:"namespace,omitempty"`
	Name       string   `json:"name"`

	Verdict  Verdict   `json:"verdict"`
	Findings []Finding `json:"findings,omitempty"`
	// Warnings are those that come of no finding.
	Warnings []string `json:"warnings,omitempty"`
	// Message is what the API server would tell a user who is refused, or why nothing was
	// decided.
	Message string `json:"message,omitempty"`
	// Given is what the object was given before it was judged, in the order in which it was.
	Given []jsonpatch.Operation `json:"given,omitempty"`
}

// String names the object as kubectl does: Kind and namespace/name.
func (r *Result) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// conclude sets the verdict of what was judged.
func (r *Result) conclude(allowed bool) {
	r.Verdict = Allowed
	for i := range r.Findings {
		if r.Findings[i].Warns() {
			r.Verdict = Warned
		}
	}
	if len(r.Warnings) > 0 {
		r.Verdict = Warned
	}
	if !allowed {
		r.Verdict = Denied
	}
}
