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

// LimitsConfig is what Limits look at. All but the Authorizer is required.
type LimitsConfig struct {
	View   *View
	Ledger *Ledger
	// Approvals reads what was approved beyond the limits.
	Approvals approvals
	// Authorizer answers what match conditions ask about writes of the leader. Without
	// one, a condition that asks is a fault.
	Authorizer authorizer.Authorizer
	// Clock tells the time of the API server.
	Clock clock.PassiveClock
}

// Limits judge writes. They are safe for concurrent use.
type Limits struct{ config LimitsConfig }

// NewLimits returns what judges by limits.
func NewLimits(config LimitsConfig) *Limits { return &Limits{config: config} }

// Write is a write of taints.
type Write struct {
	// Carrier is what is written.
	Carrier tracker.Source
	// Set and Input are what it is judged by; Set is nil for those who have no limits.
	Set    *taint.Set
	Input  taint.Input
	DryRun bool
	// Unproven says that nobody knows whether there is such a write: whoever told of it has
	// not shown that it is the API server. It is judged, and counts for no other write
	// until it is seen to be stored.
	Unproven bool

	// own says that Tollgate writes it, which tries again by itself.
	own bool
}

// Fault returns why, for which nobody can say what the write does to pods, if a limit
// holds for it that could refuse it; nil if none does.
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

// Judge judges a write that changes what holds for pods. Unless it is unproven, it counts for
// other writes from then on, until it is settled: of two that are judged at once, the later
// one sees the earlier. An error is a fault and no verdict: what is refused anyway is refused, and a
// limit that only warns stops nothing by a fault.
func (l *Limits) Judge(ctx context.Context, w *Write, changes []tracker.Change, now time.Time) (Verdict, error) {
	if w.Set == nil || len(changes) == 0 {
		return Verdict{}, nil
	}
	found, fault := w.Set.Limits(ctx, w.Input)
	if len(found) == 0 {
		return Verdict{}, fault
	}
	j := &judging{Limits: l, write: w, struck: l.config.View.Strikes(changes), now: now}
	j.verdict.settled = j.settle
	if !w.DryRun && !w.Unproven {
		j.own = l.config.Ledger.Admit(j.struck)
	}
	for i := range found {
		if err := j.judge(ctx, &found[i]); err != nil && fault == nil {
			fault = err
		}
	}
	if fault != nil && !j.verdict.Exceeded() {
		l.config.Ledger.Withdraw(j.own)
		return Verdict{}, fault
	}
	return j.verdict, nil
}

// judging is the judging of one write.
type judging struct {
	*Limits

	write  *Write
	struck []Struck
	now    time.Time
	// own is the write in the ledger, nil for a dry run and for one that is unproven.
	own *Admission
	// list are the approvals, nil until one may be needed.
	list    *listed
	verdict Verdict
}

// judge holds the write against one limit.
func (j *judging) judge(ctx context.Context, limit *taint.Limit) error {
	governs := func(hit *Hit) bool { return limit.Governs(taintOf(hit)) }
	hit := slices.DeleteFunc(slices.Clone(j.struck), func(s Struck) bool { return !s.By(governs, j.now) })
	if len(hit) == 0 {
		return nil
	}
	query := Query{Window: limit.Window, Governs: governs, Own: j.own, Except: hit}
	affected := taint.Affected{Pods: len(hit), Live: j.config.View.Live(), Before: j.config.Ledger.Others(query)}
	path, value := j.write.where(limit)
	if limit.Exceeded(affected, path, value, "") == nil {
		return nil
	}
	list, err := j.approvals(ctx)
	if err != nil && limit.Denies() {
		return err
	}
	query.Approved = list.approved
	affected.Before = j.config.Ledger.Others(query)
	needs := needed(j.write.Carrier, hit, governs, j.now)
	finding := limit.Exceeded(affected, path, value, j.write.remedy(needs))
	if finding == nil {
		return nil
	}
	by := j.approvedBy(list.items, needs, hit)
	if len(by) == 0 {
		j.verdict.Findings = append(j.verdict.Findings, *finding)
		return nil
	}
	for _, name := range by {
		if !slices.Contains(j.verdict.Approved, name) {
			j.verdict.Approved = append(j.verdict.Approved, name)
		}
	}
	j.verdict.Beyond = append(j.verdict.Beyond,
		"beyond the limit of TaintPolicy/"+limit.Policy+", as approved by EvictionApproval/"+strings.Join(by, " and EvictionApproval/"))
	return nil
}

// settle takes in what became of the write.
func (j *judging) settle(written bool) {
	if !written {
		j.config.Ledger.Withdraw(j.own)
	}
}

// specPath is where a write is refused that has no field of its own.
var specPath = field.NewPath("spec")

// where returns the field and the taint that a limit governs.
func (w *Write) where(limit *taint.Limit) (path *field.Path, value string) {
	at := slices.IndexFunc(w.Input.Writes, func(of taint.Write) bool {
		return of.New.Effect == corev1.TaintEffectNoExecute && limit.Governs(of.New)
	})
	if at < 0 {
		at = slices.IndexFunc(w.Input.Writes, func(of taint.Write) bool { return of.New.Effect == corev1.TaintEffectNoExecute })
	}
	if at < 0 {
		return specPath, ""
	}
	return w.Input.Writes[at].Path, w.Input.Writes[at].New.String()
}

// taintOf returns a taint as policies know it.
func taintOf(hit *Hit) taint.Taint {
	taint := taint.Taint{
		Target: v1alpha1.TaintTargetNode, Key: hit.Taint.Key, Value: hit.Taint.Value, Effect: hit.Taint.Effect,
	}
	if hit.Taint.Source.Kind.OnDevice() {
		taint.Target, taint.Driver = v1alpha1.TaintTargetDevice, hit.Driver
	}
	return taint
}
