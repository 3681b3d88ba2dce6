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

// judge adds the refusals and warnings of TaintPolicies to a preview; none if Tollgate is not
// installed. In has the writes of the carrier, and changes their effects on pods.
func (t *Teller) judge(ctx context.Context, p *Preview, carrier tracker.Source, in taint.Input, changes []tracker.Change) error {
	set := t.cluster.Policies.Taints
	if !t.cluster.Tollgate.Installed || len(in.Writes) == 0 || set.Len() == 0 {
		return nil
	}
	in.User, in.Now, in.Foreseen = &authenticationv1.UserInfo{}, t.cluster.Now, true
	decision, err := set.Judge(ctx, in)
	if err != nil {
		return fmt.Errorf("judge %s by TaintPolicies: %w", p.Of, err)
	}
	verdict, err := t.limits.Judge(ctx, &preview.Write{Carrier: carrier, Set: set, Input: in, DryRun: true}, changes, t.cluster.Now)
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
	for _, node := range t.cluster.Tracker.Nodes() {
		if node.Name == name {
			was.Labels, now.Labels = node.Labels.Map(), node.Labels.Map()
		}
	}
	change := taint.NodeChange{New: now, Old: was, User: &authenticationv1.UserInfo{}}
	writes := t.cluster.Policies.Taints.Chosen(change, taint.NodeWrites(taints, old, t.cluster.Now), t.cluster.Now)
	return t.judge(ctx, p, tracker.Source{Kind: tracker.SourceNode, Name: name}, taint.Input{Writes: writes}, changes)
}

// judgeRule is judge for a DeviceTaintRule that replaces the one with its name.
func (t *Teller) judgeRule(ctx context.Context, p *Preview, name string, spec *resourcev1.DeviceTaintRuleSpec, changes []tracker.Change) error {
	change := &taint.RuleChange{New: spec}
	if rule := t.cluster.Rule[name]; rule != nil {
		change.Old = &rule.Spec
	}
	return t.judge(ctx, p, tracker.Source{Kind: tracker.SourceRule, Name: name}, taint.Input{Writes: change.Writes(), Rule: change}, changes)
}

// judgePatch is judge for a ResourceSlicePatch that replaces the one with its name.
func (t *Teller) judgePatch(ctx context.Context, p *Preview, patch, old *v1alpha1.ResourceSlicePatch, changes []tracker.Change) error {
	change := &taint.PatchChange{Name: patch.Name, New: &patch.Spec.Devices}
	if change.Name == unnamed {
		change.Name = placeholderName
	}
	if old != nil {
		change.Old = &old.Spec.Devices
	}
	return t.judge(ctx, p, tracker.Source{Kind: tracker.SourcePatch, Name: change.Name}, taint.Input{Writes: change.Writes(), Patch: change}, changes)
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
