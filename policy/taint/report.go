package taint

import (
	"slices"
	"strconv"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

// MaxFindings bounds the findings of a decision: a slice has as many taints as 64
// devices with 16 each, and the answer must stay readable.
const MaxFindings = 20

const (
	maxFinding = 1024
	maxRemedy  = 400
	// minMessage is the room below which a message of the policy would be cut to
	// something that says nothing.
	minMessage = 16
)

// report collects findings up to the bound, but always one that denies where there is
// one, so that the bound never changes the verdict.
type report struct {
	findings []policy.Finding
	denied   bool
	cut      bool
}

// done reports whether nothing that follows could change the decision.
func (r *report) done() bool { return r.denied && r.cut }

func (r *report) add(f policy.Finding) {
	switch {
	case len(r.findings) < MaxFindings-2 || f.Denies() && !r.denied:
		r.findings = append(r.findings, f)
		r.denied = r.denied || f.Denies()
	case !r.cut:
		r.findings = append(r.findings, policy.Finding{
			Reason: policy.MoreFindings, Policy: f.Policy, Actions: f.Actions, Field: "spec",
			Problem: "more taints violate this policy or others than are listed",
		})
		r.cut = true
	}
}

// filer files what one policy has against a request.
type filer struct {
	c *compiled
	r *report
	// note is why not all of the policy could be judged; empty if all could.
	note string
}

// file adds to a finding what is the same in all of a policy's.
func (f *filer) file(found policy.Finding) {
	f.r.add(f.c.complete(found, f.note))
}

// complete puts into a finding the name, the actions and the message of the policy, and
// a note, if there is one.
func (c *compiled) complete(found policy.Finding, note string) policy.Finding {
	found.Policy = policyRef(c.name)
	found.Actions = slices.Clone(c.actions)
	found.Field = policy.Short(found.Field, policy.Field)
	if note != "" {
		found.Problem += " (" + note + ")"
	}
	found.Remedy = policy.Short(found.Remedy, maxRemedy)
	if len(c.problems) > 0 {
		found.Remedy += " (the policy is not fully in force, see its status)"
	}
	const separator = ": "
	room := maxFinding - len(found.String()) - len(separator)
	if c.message != "" && room >= minMessage {
		found.Problem += separator + policy.Short(c.message, room)
	}
	return found
}

func (f *filer) notGranted(w *governed, user *authenticationv1.UserInfo, failed string) {
	problem := policy.Short(user.Username, policy.MaxKeyLength) + " may not " + verbOf(w.operation)
	if w.Times > 1 {
		problem += ", here and on " + strconv.Itoa(w.Times-1) + " more devices"
	}
	if failed != "" {
		problem += " (an expression that could allow it failed: " + policy.Short(failed, policy.MaxKeyLength) + ")"
	}
	f.file(policy.Finding{
		Reason:  policy.TaintNotGranted,
		Field:   w.Path.String(),
		Value:   w.named().String(),
		Problem: problem,
		Remedy:  f.c.remedy(w.operation),
	})
}

func verbOf(operation v1alpha1.TaintOperation) string {
	switch operation {
	case v1alpha1.TaintAdd:
		return "add this taint"
	case v1alpha1.TaintChange:
		return "change this taint"
	case v1alpha1.TaintRemove:
		return "remove this taint"
	default:
		return "write this taint"
	}
}

// remedy says who may do what the requester may not.
func (c *compiled) remedy(operation v1alpha1.TaintOperation) string {
	var words []string
	for i := range c.setters {
		if c.setters[i].allows(operation) {
			words = append(words, c.setters[i].words)
		}
	}
	return remedyOf(words)
}

// Remedy says who may write the taints that a policy governs, whatever the operation.
func Remedy(p *v1alpha1.TaintPolicy) string {
	words := make([]string, len(p.Spec.Setters))
	for i := range words {
		words[i] = setterWords(&p.Spec.Setters[i])
	}
	return remedyOf(words)
}

func remedyOf(setters []string) string {
	if len(setters) == 0 {
		return "the policy lets nobody do it"
	}
	return "allowed to " + policy.ShortList(setters, "; ", maxRemedy/2)
}

// skewed files a time that the client wrote and that is too far from now. One that
// Tollgate or the API server has filled in is near to now, and never too far. A time
// that was there before counts as written where the policy did not govern the taint
// that had it: nobody has judged it yet.
func (f *filer) skewed(w *governed, now time.Time, most time.Duration) {
	if w.operation == v1alpha1.TaintRemove || w.New.TimeAdded.IsZero() {
		return
	}
	stood := w.before()
	kept := stood.TimeAdded.Equal(w.New.TimeAdded)
	if kept && f.c.governs(stood) {
		return
	}
	distance := w.New.TimeAdded.Sub(now)
	if distance.Abs() <= max(most, stampWindow) {
		return
	}
	where, remedy := "before", "leave timeAdded out to have it set, or give one within "+most.String()+" of the present"
	if distance > 0 {
		where = "after"
	}
	if kept {
		remedy = "it is that of " + stood.String() + ": remove that first, or give a time within " + most.String() + " of the present"
	}
	f.file(policy.Finding{
		Reason:  policy.TimeAddedSkewed,
		Field:   w.Path.String(),
		Value:   w.New.String() + " since " + w.New.TimeAdded.Format(time.RFC3339),
		Problem: "has a time that is " + distance.Abs().Truncate(time.Second).String() + " " + where + " the present",
		Remedy:  remedy,
	})
}
