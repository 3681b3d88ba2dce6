package preview

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/tracker"
)

// Limits judge writes by the limits of TaintPolicies. They are safe for concurrent use. All
// fields but the Authorizer are required.
type Limits struct {
	View   *View
	Ledger *Ledger
	// Approvals lists all EvictionApprovals, used or not; Limits do not change them.
	Approvals func(ctx context.Context) ([]v1alpha1.EvictionApproval, error)
	// Authorizer authorizes the users of writes of the leader for match conditions. Without
	// one, a condition that uses it is a fault.
	Authorizer authorizer.Authorizer
	// Clock is the clock of the API server.
	Clock clock.PassiveClock
}

// Write is a write of taints.
type Write struct {
	// Carrier is the object that is written.
	Carrier tracker.Source
	// Set and Input are the policies and the request; Set is nil for users without limits.
	Set    *taint.Set
	Input  taint.Input
	DryRun bool
	// Unproven is true if the write may not exist: its review did not come from a caller
	// that is known to be the API server. It is judged, and counts for no other write
	// until a watch reports it.
	Unproven bool

	// own is true for a write of Tollgate, which is repeated without a user.
	own bool
}

// Fault returns why, the error because of which the effect of the write is not known, if a
// limit that can refuse it applies; nil if none does.
func (w *Write) Fault(ctx context.Context, why error) error {
	if w.Set == nil {
		return nil
	}
	found, err := w.Set.Limits(ctx, w.Input)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(found, func(l taint.Limit) bool { return l.Denies() }) {
		return why
	}
	return nil
}

// Judge judges a write that makes changes for pods. Unless it is unproven, it counts for
// other writes from then on, until it is settled: of two that are judged at once, the later
// one sees the earlier. An error is a fault and no verdict. A fault does not prevent a
// refusal by another limit, and a limit that only warns refuses nothing because of a
// fault.
func (l *Limits) Judge(ctx context.Context, w *Write, changes []tracker.Change, now time.Time) (Verdict, error) {
	if w.Set == nil || len(changes) == 0 {
		return Verdict{}, nil
	}
	found, fault := w.Set.Limits(ctx, w.Input)
	if len(found) == 0 {
		return Verdict{}, fault
	}
	ledger := l.Ledger
	j := &judging{Limits: l, write: w, struck: l.View.Strikes(changes), now: now, verdict: Verdict{ledger: ledger}}
	if !w.DryRun && !w.Unproven {
		j.verdict.own = ledger.Admit(j.struck)
	}
	for i := range found {
		if err := j.judge(ctx, &found[i]); err != nil && fault == nil {
			fault = err
		}
	}
	if fault != nil && !j.verdict.Exceeded() {
		ledger.Withdraw(j.verdict.own)
		return Verdict{}, fault
	}
	return j.verdict, nil
}

// judging is the state while one write is judged.
type judging struct {
	*Limits

	write  *Write
	struck []Struck
	now    time.Time
	// approvals are the approvals, and approved the taints that they approved, once read is true.
	read      bool
	approvals []v1alpha1.EvictionApproval
	approved  []Approved
	verdict   Verdict
}

// judge judges the write by one limit.
func (j *judging) judge(ctx context.Context, limit *taint.Limit) error {
	governs := func(hit *Hit) bool { return limit.Governs(taintOf(hit)) }
	hit := slices.DeleteFunc(slices.Clone(j.struck), func(s Struck) bool { return !s.By(governs, j.now) })
	if len(hit) == 0 {
		return nil
	}
	query := Query{Window: limit.Window, Governs: governs, Own: j.verdict.own, Except: hit}
	affected := taint.Affected{Pods: len(hit), Live: j.View.Tracker.Live(), Before: j.Ledger.Others(query)}
	path, value := j.write.where(limit)
	if limit.Exceeded(affected, path, value, "") == nil {
		return nil
	}
	if err := j.readApprovals(ctx); err != nil && limit.Denies() {
		return err
	}
	query.Approved = j.approved
	affected.Before = j.Ledger.Others(query)
	needs := needed(hit, governs, j.now)
	finding := limit.Exceeded(affected, path, value, j.write.remedy(needs))
	if finding == nil {
		return nil
	}
	by := j.approvedBy(needs, hit)
	if len(by) == 0 {
		j.verdict.Findings = append(j.verdict.Findings, *finding)
		return nil
	}
	j.verdict.Beyond = append(j.verdict.Beyond,
		"beyond the limit of TaintPolicy/"+limit.Policy+", as approved by EvictionApproval/"+strings.Join(by, " and EvictionApproval/"))
	return nil
}

// specPath is the field of a refusal of a write without a NoExecute taint.
var specPath = field.NewPath("spec")

// where returns the field and the value of the first NoExecute taint that a limit governs,
// otherwise of the first NoExecute taint.
func (w *Write) where(limit *taint.Limit) (path *field.Path, value string) {
	path = specPath
	for i := range w.Input.Writes {
		of := &w.Input.Writes[i]
		governed := limit.Governs(of.New)
		if of.New.Effect == corev1.TaintEffectNoExecute && (governed || path == specPath) {
			path, value = of.Path, of.New.String()
			if governed {
				break
			}
		}
	}
	return path, value
}

// taintOf returns the taint of a hit as the type of policies.
func taintOf(hit *Hit) taint.Taint {
	taint := taint.Taint{
		Target: v1alpha1.TaintTargetNode, Key: hit.Taint.Key, Value: hit.Taint.Value, Effect: hit.Taint.Effect,
	}
	if hit.Taint.Source.Kind.OnDevice() {
		taint.Target, taint.Driver = v1alpha1.TaintTargetDevice, hit.Driver
	}
	return taint
}
