package tolerations

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/policy"
)

// MaxFindings bounds the findings of a decision. One wildcard comes under every
// policy, and a pod may have any number of tolerations (AV-29): the answer must
// stay readable, and small.
const MaxFindings = 20

// report collects findings up to the bound, but always one that denies where
// there is one, so that the bound never changes the verdict.
type report struct {
	path     *field.Path
	findings []policy.Finding
	denied   bool
	cut      bool
}

// done reports whether nothing that follows could change the decision.
func (r *report) done() bool { return r.denied && r.cut }

// add files what c has against the toleration at position i.
func (r *report) add(c *compiled, a *ask, i int, namespace string, v violation) {
	switch {
	case len(r.findings) < MaxFindings-2 || c.denies && !r.denied:
		r.findings = append(r.findings, finding(c, a, r.path.Index(i), namespace, v))
		r.denied = r.denied || c.denies
	case !r.cut:
		r.findings = append(r.findings, policy.Finding{
			Policy:  policyRef(c),
			Actions: slices.Clone(c.actions),
			Field:   r.path.String(),
			Problem: "more tolerations violate this policy or others than are listed",
		})
		r.cut = true
	}
}

func finding(c *compiled, a *ask, path *field.Path, namespace string, v violation) policy.Finding {
	f := policy.Finding{
		Policy:  policyRef(c),
		Actions: slices.Clone(c.actions),
		Field:   word(path.String(), maxField),
		Value:   describe(a),
		Remedy:  c.remedy,
	}
	problem := "could tolerate " + v.guard.String() + ", which is not granted to namespace " + word(namespace, maxValue)
	if v.bounded {
		problem = "could tolerate " + v.guard.String() + " for longer than is granted to namespace " + word(namespace, maxValue)
		f.Remedy = "allowed is " + atMost(v.limit)
	}
	if c.partial {
		f.Remedy += " (the policy is not fully in force, see its status)"
	}
	f.Problem = word(problem, maxFinding-len(f.String()))
	const separator = ": "
	if room := maxFinding - len(f.String()) - len(separator); c.message != "" && room >= minMessage {
		f.Problem += separator + word(c.message, room)
	}
	return f
}

// minMessage is the room below which a message of the policy would be cut to
// something that says nothing.
const minMessage = 16

func policyRef(c *compiled) string { return "TolerationPolicy/" + c.name }
