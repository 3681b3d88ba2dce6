package taint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// Input is a request to change taints.
type Input struct {
	User   *authenticationv1.UserInfo
	Review *cel.Review
	Writes []Write
	// Rule is the DeviceTaintRule that is written; nil where it is something else.
	Rule *RuleChange
	// Patch is the ResourceSlicePatch that is written; nil where it is something else.
	Patch *PatchChange
	Now   time.Time
	// Foreseen is true if there is no request yet, as in a preview by kubectl tollgate.
	// matchConditions count as true then, and setters are ignored, because the requester is
	// unknown.
	Foreseen bool
}

// Judge decides whether the requester may make the writes. It evaluates setters,
// maxTimeAddedSkew and, for rules and patches, requireSelector and requirePreview.
//
// An error means that a policy could not be evaluated and that no other policy denies the
// request. If a policy that cannot deny fails to evaluate, its finding says so, and Judge
// returns no error.
func (s *Set) Judge(ctx context.Context, in Input) (policy.Decision, error) {
	var r policy.Report
	var fault error
	for _, position := range s.candidates(in.Writes) {
		if r.Done() {
			break
		}
		c := s.Policies[position]
		if err := c.judge(ctx, &in, &r); err != nil {
			fault = cmp.Or(fault, fmt.Errorf("judge by %s: %w", c.ref, err))
		}
	}
	if fault != nil && !r.Denied {
		return policy.Decision{}, fault
	}
	return policy.Decide(r.Findings), nil
}

// governed is a write that a policy governs, and its operation for the policy.
type governed struct {
	*Write

	operation v1alpha1.TaintOperation
}

// named returns the taint that findings about the write name.
func (g *governed) named() Taint {
	if g.operation == v1alpha1.TaintRemove {
		return g.Old
	}
	return g.New
}

// governedIn returns the writes that the policy judges. The controllers of Kubernetes may always
// write the keys of Kubernetes.
func (c *compiled) governedIn(in *Input) []governed {
	var found []governed
	for i := range in.Writes {
		g := governed{Write: &in.Writes[i], operation: c.seen(&in.Writes[i])}
		if g.operation != "" && (!selector.System(g.named().Key) || !slices.Contains(SystemControllers(), in.User.Username)) {
			found = append(found, g)
		}
	}
	return found
}

// partly is the note of a policy that cannot refuse and had a fault.
const partly = "not all of the policy could be judged"

// applies reports whether the match conditions hold. They do where one of them fails, as in
// a ValidatingAdmissionPolicy with failurePolicy Fail, and on a fault if the policy cannot
// refuse; note says why. With an error they do not.
func (c *compiled) applies(ctx context.Context, in *Input) (ok bool, note string, err error) {
	if in.Foreseen && !c.conditions.Empty() {
		return true, "if its matchConditions hold", nil
	}
	ok, err = c.conditions.Match(ctx, in.Review)
	if failed, is := errors.AsType[*cel.FailedError](err); is {
		return true, "a match condition could not be evaluated: " + policy.Short(failed.Problem, policy.MaxKeyLength), nil
	}
	if err != nil && !c.denies {
		return true, partly, nil
	}
	return ok, "", err
}

// judge reports the violations of the writes. The error is the first fault of a policy that
// can refuse; violations are reported in spite of it.
func (c *compiled) judge(ctx context.Context, in *Input, r *policy.Report) error {
	writes := c.governedIn(in)
	if len(writes) == 0 {
		return nil
	}
	ok, note, err := c.applies(ctx, in)
	if !ok {
		return err
	}
	f := violations{compiled: c, report: r, note: note}
	var fault error
	for i := range writes {
		if err := ctx.Err(); err != nil {
			return err
		}
		w := &writes[i]
		switch allowed, failure, err := c.ask(ctx, in, w); {
		case in.Foreseen, allowed:
		case err == nil:
			f.notGranted(w, in.User, failure)
		case !c.denies:
			f.note = partly
			f.notGranted(w, in.User, "")
		default:
			fault = cmp.Or(fault, err)
		}
		if c.limits != nil && c.limits.MaxTimeAddedSkew != nil {
			f.skewed(w, in.Now, c.limits.MaxTimeAddedSkew.Duration)
		}
	}
	f.limitRules(in.Rule.limited(), writes)
	f.limitRules(in.Patch.limited(), writes)
	return fault
}

const maxRemedy = 400

// violations reports the violations of one policy.
type violations struct {
	*compiled

	report *policy.Report
	// note is why not all of the policy could be judged; empty if all could.
	note string
}

// add adds a finding, completed with the fields that all findings of the policy share.
func (f *violations) add(found policy.Finding) {
	f.report.Add(f.denies, func() policy.Finding { return f.complete(found, f.note) }, policy.Finding{
		Reason: policy.MoreFindings, Policy: f.ref, Actions: f.actions, Field: "spec",
		Problem: "more taints violate this policy or others than are listed",
	})
}

// complete sets the name and the actions of the policy in a finding, and appends its message
// and a note, if there is one.
func (c *compiled) complete(found policy.Finding, note string) policy.Finding {
	found.Policy, found.Actions = c.ref, c.actions
	found.Field = policy.Short(found.Field, policy.Field)
	if note != "" {
		found.Problem += " (" + note + ")"
	}
	found.Remedy = policy.Short(found.Remedy, maxRemedy)
	if len(c.problems) > 0 {
		found.Remedy += " (the policy is not fully in force, see its status)"
	}
	return found.WithMessage(c.message)
}

func (f *violations) notGranted(w *governed, user *authenticationv1.UserInfo, failed string) {
	problem := policy.Short(user.Username, policy.MaxKeyLength) + " may not " + strings.ToLower(string(w.operation)) + " this taint"
	if w.Times > 1 {
		problem += fmt.Sprintf(", here and on %d more devices", w.Times-1)
	}
	if failed != "" {
		problem += " (an expression that could allow it failed: " + policy.Short(failed, policy.MaxKeyLength) + ")"
	}
	var setters []string
	for i := range f.setters {
		if f.setters[i].allows(w.operation) {
			setters = append(setters, f.setters[i].words)
		}
	}
	f.add(policy.Finding{
		Reason:  policy.TaintNotGranted,
		Field:   w.Path.String(),
		Value:   w.named().String(),
		Problem: problem,
		Remedy:  remedyOf(setters),
	})
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

// skewed reports a time that the client wrote and that is too far from now. A time that
// Tollgate or the API server has filled in is near to now, and never too far. A time that was
// there before counts as written where the policy did not govern the taint that had it,
// because it was not judged then.
func (f *violations) skewed(w *governed, now time.Time, most time.Duration) {
	if w.operation == v1alpha1.TaintRemove || w.New.TimeAdded.IsZero() {
		return
	}
	stood := cmp.Or(w.Old, w.replaced)
	kept := stood.TimeAdded.Equal(w.New.TimeAdded)
	if kept && f.governs(stood) {
		return
	}
	distance := w.New.TimeAdded.Sub(now)
	if distance.Abs() <= max(most, stampWindow) {
		return
	}
	where, remedy := "before", "leave timeAdded out to have it set, or give one"
	if distance > 0 {
		where = "after"
	}
	if kept {
		remedy = "it is that of " + stood.String() + ": remove that first, or give a time"
	}
	f.add(policy.Finding{
		Reason:  policy.TimeAddedSkewed,
		Field:   w.Path.String(),
		Value:   w.New.String() + " since " + w.New.TimeAdded.Format(time.RFC3339),
		Problem: "has a time that is " + distance.Abs().Truncate(time.Second).String() + " " + where + " the present",
		Remedy:  remedy + " within " + most.String() + " of the present",
	})
}

// SystemControllers returns the users under which the controllers of Kubernetes and of cloud
// providers taint nodes.
func SystemControllers() []string {
	return []string{
		"system:kube-controller-manager",
		"system:serviceaccount:kube-system:node-controller",
		"system:cloud-controller-manager",
		"system:serviceaccount:kube-system:cloud-controller-manager",
		"system:serviceaccount:kube-system:cloud-node-controller",
	}
}

// IsNode reports whether the user is the kubelet of a node, and of which. The group
// is what makes it one: a name alone can be anybody's (C18).
func IsNode(user *authenticationv1.UserInfo) (name string, ok bool) {
	name, found := strings.CutPrefix(user.Username, "system:node:")
	return name, found && name != "" && slices.Contains(user.Groups, "system:nodes")
}

// PublishesSlice reports whether a user counts as the driver of a slice. A driver may always
// set the taints of its own slices. node is the node of the slice, or empty if the slice has
// none.
//
// A driver is a service account, and its credentials do not name the driver. For a slice of a
// node, the user counts as the driver if its token names that node. A slice without a node is
// published by a controller that may run on any node: every service account counts as its
// driver, and RBAC alone limits writes. PublishesSlice does not check whether the pool has
// slices of another node; the caller must check that.
func PublishesSlice(user *authenticationv1.UserInfo, node string) bool {
	_, _, err := serviceaccount.SplitUsername(user.Username)
	return err == nil && (node == "" || slices.Contains(user.Extra[serviceaccount.NodeNameKey], node))
}
