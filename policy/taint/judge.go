package taint

import (
	"context"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
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
	// Foreseen says that there is no request yet: matchConditions are taken to hold, and
	// setters are not asked, because it is not known who will write.
	Foreseen bool
}

// Judge decides whether the requester may make the writes: by setters, by
// maxTimeAddedSkew and, for rules and patches, by requireSelector and requirePreview. An
// error is a fault and no verdict. What is refused anyway is refused whether or not all
// policies could be judged, and a policy that cannot refuse stops nothing by a fault: what
// it says then says so.
func (s *Set) Judge(ctx context.Context, in Input) (policy.Decision, error) {
	var r report
	var fault error
	for _, position := range s.candidates(in.Writes) {
		if r.done() {
			break
		}
		c := s.Policies[position]
		if err := c.judge(ctx, &in, &r); err != nil && fault == nil {
			fault = fmt.Errorf("judge by %s: %w", policyRef(c.name), err)
		}
	}
	if fault != nil && !r.denied {
		return policy.Decision{}, fault
	}
	return policy.Decide(r.findings), nil
}

// governed is a write that a policy governs, and what it is to the policy.
type governed struct {
	*Write

	operation v1alpha1.TaintOperation
}

// named is the taint that a sentence about the write, as the policy sees it, is about.
func (g *governed) named() Taint {
	if g.operation == v1alpha1.TaintRemove {
		return g.Old
	}
	return g.New
}

// governedIn returns the writes that the policy has a say in.
func (c *compiled) governedIn(in *Input) []governed {
	var found []governed
	for i := range in.Writes {
		w := &in.Writes[i]
		if operation, ok := c.seen(w); ok && !exempt(in.User, w) {
			found = append(found, governed{Write: w, operation: operation})
		}
	}
	return found
}

// partly is what findings say of a policy that cannot refuse and had a fault.
const partly = "not all of the policy could be judged"

// denies reports whether the policy can refuse.
func (c *compiled) denies() bool {
	return policy.Finding{Actions: c.actions}.Denies()
}

// applies reports whether the match conditions hold. They do where one of them fails,
// as they do in a ValidatingAdmissionPolicy with failurePolicy Fail, and where nobody
// could say, if the policy cannot refuse; note says why.
func (c *compiled) applies(ctx context.Context, in *Input) (ok bool, note string, err error) {
	if in.Foreseen {
		if !c.conditions.Empty() {
			note = "if its matchConditions hold"
		}
		return true, note, nil
	}
	ok, err = c.conditions.Match(ctx, in.Review, &cel.Judged{})
	if failed := (*cel.FailedError)(nil); errors.As(err, &failed) {
		return true, "a match condition could not be evaluated: " + policy.Short(failed.Problem, policy.MaxKeyLength), nil
	}
	if err != nil && !c.denies() {
		return true, partly, nil
	}
	return ok, "", err
}

// judge files what the policy has against the writes. The error is the first fault of a
// policy that can refuse; what it knows all the same is filed.
func (c *compiled) judge(ctx context.Context, in *Input, r *report) error {
	writes := c.governedIn(in)
	if len(writes) == 0 {
		return nil
	}
	ok, note, err := c.applies(ctx, in)
	if err != nil || !ok {
		return err
	}
	f := filer{c: c, r: r, note: note}
	var fault error
	for i := range writes {
		if err := ctx.Err(); err != nil {
			return err
		}
		w := &writes[i]
		switch said, err := c.ask(ctx, asked{in: in, operation: w.operation, taint: w.named()}); {
		case in.Foreseen:
		case said.allowed:
		case err == nil:
			f.notGranted(w, in.User, said.reason)
		case !c.denies():
			f.note = partly
			f.notGranted(w, in.User, "")
		case fault == nil:
			fault = err
		}
		if c.limits != nil && c.limits.MaxTimeAddedSkew != nil {
			f.skewed(w, in.Now, c.limits.MaxTimeAddedSkew.Duration)
		}
	}
	c.judgeRule(in.Rule, writes, &f)
	c.judgePatch(in.Patch, writes, &f)
	return fault
}

// judgeRule holds a rule against the limits that are about rules. They are about what
// a rule is to do, and not about its end.
func (c *compiled) judgeRule(rule *RuleChange, writes []governed, f *filer) {
	if rule == nil || rule.New == nil || c.limits == nil {
		return
	}
	for i := range writes {
		w := &writes[i]
		if w.operation == v1alpha1.TaintRemove {
			continue
		}
		if c.limits.RequireSelector && rule.unbounded() {
			f.file(policy.Finding{
				Reason:  policy.SelectorRequired,
				Field:   field.NewPath("spec", "deviceSelector").String(),
				Problem: "names no driver, pool or device, and may select every device",
				Remedy:  "name a driver, a pool or a device",
			})
		}
		if c.limits.RequirePreview && !rule.previewed() {
			f.file(policy.Finding{
				Reason:  policy.PreviewRequired,
				Field:   field.NewPath("spec", "taint", "effect").String(),
				Value:   w.New.String(),
				Problem: "evicts pods, and the rule did not stand at effect None with this taint and selector before",
				Remedy:  "write it with effect None, read its status, then change the effect alone",
			})
		}
		return
	}
}
