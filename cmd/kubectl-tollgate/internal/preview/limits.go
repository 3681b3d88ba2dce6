package preview

import (
	"context"
	"fmt"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/preview"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/tracker"
)

// placeholderName is the name in a remedy for an object without one.
const placeholderName = "NAME"

// limitsOf returns the limits that admission checks. Pods that have left already are not counted.
func limitsOf(t *Teller) *preview.Limits {
	clk := moment(t.cluster.Now)
	ledger := preview.NewLedger(t.cluster.Tracker, t.cluster.Rules, clk)
	return preview.NewLimits(preview.LimitsConfig{
		View: t.view, Ledger: ledger.WithPolicies(t.cluster.Foretold, t.cluster.NamespaceLabels),
		Approvals: approvals(t.cluster.Approvals), Clock: clk,
	})
}

// approvals is a lister of the EvictionApprovals of the snapshot.
type approvals []v1alpha1.EvictionApproval

// List returns all.
func (a approvals) List(context.Context) ([]v1alpha1.EvictionApproval, error) { return a, nil }

// moment is a clock at a fixed time.
type moment time.Time

// Now returns the fixed time.
func (m moment) Now() time.Time { return time.Time(m) }

// Since returns the time since at.
func (m moment) Since(at time.Time) time.Duration { return time.Time(m).Sub(at) }

// write is a write as TaintPolicies check it. Changes are its effects on pods.
type write struct {
	carrier tracker.Source
	writes  []taint.Write
	rule    *taint.RuleChange
	patch   *taint.PatchChange
	changes []tracker.Change
}

// judge adds the refusals and warnings of TaintPolicies to a preview; none if Tollgate is not
// installed.
func (t *Teller) judge(ctx context.Context, p *Preview, w write) error {
	set := t.cluster.Policies.Taints
	if !t.cluster.Tollgate.Installed || len(w.writes) == 0 || set.Len() == 0 {
		return nil
	}
	in := taint.Input{
		User: &authenticationv1.UserInfo{}, Writes: w.writes, Rule: w.rule, Patch: w.patch, Now: t.cluster.Now, Foreseen: true,
	}
	decision, err := set.Judge(ctx, in)
	if err != nil {
		return fmt.Errorf("judge %s by TaintPolicies: %w", p.Of, err)
	}
	verdict, err := t.limits.Judge(ctx, &preview.Write{Carrier: w.carrier, Set: set, Input: in, DryRun: true}, w.changes, t.cluster.Now)
	if err != nil {
		return fmt.Errorf("judge %s by the limits of TaintPolicies: %w", p.Of, err)
	}
	for _, finding := range slices.Concat(decision.Findings, verdict.Findings) {
		text := finding.String()
		switch {
		case finding.Denies() && !slices.Contains(p.Refusals, text):
			p.Refusals = append(p.Refusals, text)
		case finding.Has(v1alpha1.Warn) && !slices.Contains(p.Warnings, text):
			p.Warnings = append(p.Warnings, text)
		}
	}
	return nil
}

// judgeNode is judge for the taints of a node.
func (t *Teller) judgeNode(ctx context.Context, p *Preview, name string, old, taints []corev1.Taint, changes []tracker.Change) error {
	was, now := &taint.Node{Name: name, Taints: old}, &taint.Node{Name: name, Taints: taints}
	for _, known := range t.cluster.Tracker.Nodes() {
		if known.Name == name {
			was.Labels, now.Labels = known.Labels.Map(), known.Labels.Map()
		}
	}
	change := taint.NodeChange{New: now, Old: was, User: &authenticationv1.UserInfo{}}
	writes := t.cluster.Policies.Taints.Chosen(change, taint.NodeWrites(taints, old, t.cluster.Now), t.cluster.Now)
	return t.judge(ctx, p, write{carrier: tracker.Source{Kind: tracker.SourceNode, Name: name}, writes: writes, changes: changes})
}

// judgeRule is judge for a DeviceTaintRule that replaces the one with its name.
func (t *Teller) judgeRule(ctx context.Context, p *Preview, name string, spec *resourcev1.DeviceTaintRuleSpec, changes []tracker.Change) error {
	change := &taint.RuleChange{New: spec}
	if stands := t.cluster.Rule[name]; stands != nil {
		change.Old = &stands.Spec
	}
	return t.judge(ctx, p, write{
		carrier: tracker.Source{Kind: tracker.SourceRule, Name: name}, writes: change.Writes(), rule: change, changes: changes,
	})
}

// judgePatch is judge for a ResourceSlicePatch that replaces the one with its name.
func (t *Teller) judgePatch(ctx context.Context, p *Preview, patch *v1alpha1.ResourceSlicePatch, changes []tracker.Change) error {
	name := patch.Name
	if name == unnamed {
		name = placeholderName
	}
	change := &taint.PatchChange{Name: name, New: &patch.Spec.Devices}
	for i := range t.cluster.Patches {
		if stands := &t.cluster.Patches[i]; stands.Name == patch.Name {
			change.Old = &stands.Spec.Devices
		}
	}
	return t.judge(ctx, p, write{
		carrier: tracker.Source{Kind: tracker.SourcePatch, Name: name}, writes: change.Writes(), patch: change, changes: changes,
	})
}

// ruleFor returns the name of the existing rule with the same devices and key, else
// placeholderName.
func (t *Teller) ruleFor(spec *resourcev1.DeviceTaintRuleSpec) string {
	found := placeholderName
	for name, rule := range t.cluster.Rule {
		if rule.Spec.Taint.Key == spec.Taint.Key && equality.Semantic.DeepEqual(rule.Spec.DeviceSelector, spec.DeviceSelector) &&
			(found == placeholderName || name < found) {
			found = name
		}
	}
	return found
}
