// Package preview has the commands that show which pods a taint would evict, and those that taint
// and untaint devices after such a preview. The syntax of taints is that of kubectl taint.
package preview

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/evictor/preview"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/tracker"
)

// Preview is the effect of one write.
type Preview struct {
	// Forecast has the pods that would have to leave, or leave sooner.
	preview.Forecast

	// Of is the name of the object, as kubectl prints it: node/worker-1.
	Of string
	// But is why the write evicts no pods as it is, and the forecast is for one that does; empty if
	// it evicts them.
	But string
	// Ends are the pods whose evictions are cancelled or delayed. At is the current deadline, Was
	// the new one.
	Ends []preview.Pod
	// Nothing is why there is no forecast; empty if there is one.
	Nothing string
	// Refusals are the sentences with which TaintPolicies would refuse the write, Warnings those
	// of policies that only warn.
	Refusals, Warnings []string
}

// Touches reports whether the write concerns any pod, even one that stays.
func (p *Preview) Touches() bool { return len(p.Pods)+len(p.Ends)+len(p.Protected) > 0 }

// Sentence describes the write.
func (p *Preview) Sentence() string {
	if p.Nothing != "" {
		return p.Of + ": " + p.Nothing
	}
	text := cmp.Or(p.String(), "evicts no pods")
	// If no pod would leave, but evictions end, the current taint evicts.
	if p.But != "" && (p.String() != "" || len(p.Ends) == 0) {
		text = "evicts no pods: " + p.But + ", it " + cmp.Or(p.If(), "would evict no pods")
	}
	later := 0
	for _, end := range p.Ends {
		if !end.Was.IsZero() {
			later++
		}
	}
	separator := "; "
	if over := len(p.Ends) - later; over > 0 {
		text += separator + "ends " + cli.Counted(over, "pending eviction")
		separator = ", "
	}
	if later > 0 {
		text += separator + "puts off " + cli.Counted(later, "pending eviction")
	}
	return p.Of + ": " + text
}

// Going returns the number of distinct pods that leave because of any of the writes.
func Going(all []Preview) int {
	going := sets.Set[types.UID]{}
	for _, p := range all {
		if p.But == "" {
			for _, pod := range p.Pods {
				going.Insert(pod.UID)
			}
		}
	}
	return len(going)
}

// Teller previews writes to a cluster.
type Teller struct {
	*state.Cluster

	clients *cli.Clients
	view    *preview.View
	limits  *preview.Limits
	// controllers are the controllers of pods, as replicaset/web.
	controllers map[types.UID]string
}

// NewTeller reads the cluster, and returns its Teller.
func NewTeller(ctx context.Context, clients *cli.Clients, now time.Time, wants state.Wants) (*Teller, error) {
	controllers := map[types.UID]string{}
	names := map[[2]string]string{} // Replicas share a name.
	wants.Limits = true
	wants.Pod = func(pod *corev1.Pod) bool {
		if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
			key := [2]string{ref.Kind, ref.Name}
			if names[key] == "" {
				names[key] = strings.ToLower(ref.Kind) + "/" + ref.Name
			}
			controllers[pod.UID] = names[key]
		}
		return false
	}
	cluster, err := state.Read(ctx, clients, now, wants)
	if err != nil {
		return nil, err
	}
	t := TellerOf(cluster)
	t.clients, t.controllers = clients, controllers
	return t, nil
}

// TellerOf returns the Teller of a cluster, for writes at the time Now of the cluster, which may
// advance. It does not know the controllers of pods.
func TellerOf(cluster *state.Cluster) *Teller {
	view, clk := cluster.View(), clusterClock{cluster}
	return &Teller{Cluster: cluster, view: view, limits: &preview.Limits{
		// Pods that have left already are not counted by the limits, but those of Ledger.Leaving.
		View: view, Ledger: preview.NewLedger(view, clk), Clock: clk,
		Approvals: func(context.Context) ([]v1alpha1.EvictionApproval, error) { return cluster.Approvals, nil },
	}}
}

// tell returns the preview of a write with changes. But is why the write does not evict as it is,
// empty if it does.
func (t *Teller) tell(of, but string, changes []tracker.Change) Preview {
	p := Preview{Of: of, But: but, Forecast: t.view.Forecast(t.Now, changes)}
	if but == "" {
		back := slices.Clone(changes)
		for i, change := range changes {
			back[i].Before, back[i].After = change.After, change.Before
		}
		// The reverse forecast has the pods that do not have to leave after the write.
		p.Ends = t.view.Forecast(t.Now, back).Pods
	}
	return p
}

// Node previews a change of the taints of a node, which has labels.
func (t *Teller) Node(ctx context.Context, name string, labels map[string]string, old, taints []corev1.Taint) (Preview, error) {
	changes := t.Tracker.IfNodeWas(tracker.Node{Name: name, Taints: old}, tracker.Node{Name: name, Taints: taints}, t.Now)
	was := taint.Node{Name: name, Labels: labels, Taints: old}
	now := was
	now.Taints = taints
	change := taint.NodeChange{New: &now, Old: &was, User: &authenticationv1.UserInfo{}}
	writes := t.Policies.Taints.Chosen(change, taint.NodeWrites(taints, old, t.Now), t.Now)
	return t.judge(ctx, t.tell("node/"+name, "", changes), tracker.SourceNode, name, taint.Input{Writes: writes}, changes)
}

// Registration previews the taints of a TaintPolicy on the existing nodes.
func (t *Teller) Registration(policy *v1alpha1.TaintPolicy) Preview {
	set := taint.Compile([]v1alpha1.TaintPolicy{*policy})
	changes, _ := t.view.Nodes(set.Kept, t.Now) // All nodes are known.
	but := ""
	if !t.Tollgate.Installed { // Only Tollgate registers taints.
		but = withTollgate
	}
	return t.tell("taintpolicy/"+policy.Name, but, changes)
}

// withTollgate begins sentences about writes that only evict with Tollgate.
const withTollgate = "with Tollgate in the cluster"

// patchesNeed returns the condition under which ResourceSlicePatches evict, empty if it is met.
func (t *Teller) patchesNeed() string {
	switch {
	case !t.Tollgate.Installed:
		return withTollgate
	case t.Tollgate.Terms.Mode == configv1alpha1.EvictionObserve:
		return "in another eviction mode than Observe"
	default:
		return ""
	}
}

// placeholderName is the name in a remedy for an object without one.
const placeholderName = "NAME"

// clusterClock has the time of a snapshot.
type clusterClock struct{ *state.Cluster }

// Now returns the time of the snapshot.
func (c clusterClock) Now() time.Time { return c.Cluster.Now }

// Since returns the time since at.
func (c clusterClock) Since(at time.Time) time.Duration { return c.Now().Sub(at) }

// judge returns a preview with the refusals and warnings of TaintPolicies, which are none if Tollgate
// is not installed. In has the writes of an object, and changes are their effects on pods.
func (t *Teller) judge(
	ctx context.Context, p Preview, kind tracker.SourceKind, name string, in taint.Input, changes []tracker.Change,
) (Preview, error) {
	if !t.Tollgate.Installed {
		return p, nil
	}
	set := t.Policies.Taints
	in.User, in.Now, in.Foreseen = &authenticationv1.UserInfo{}, t.Now, true
	decision, err := set.Judge(ctx, in)
	if err != nil {
		return p, fmt.Errorf("judge %s by TaintPolicies: %w", p.Of, err)
	}
	write := &preview.Write{Carrier: tracker.Source{Kind: kind, Name: name}, Set: set, Input: in, DryRun: true}
	verdict, err := t.limits.Judge(ctx, write, changes, t.Now)
	if err != nil {
		return p, fmt.Errorf("judge %s by the limits of TaintPolicies: %w", p.Of, err)
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
	return p, nil
}

// judgeRule is judge for a DeviceTaintRule that replaces the one with its name.
func (t *Teller) judgeRule(ctx context.Context, p Preview, name string, spec *resourcev1.DeviceTaintRuleSpec, changes []tracker.Change) (Preview, error) {
	change := &taint.RuleChange{New: spec}
	if rule := t.Cluster.Rule[name]; rule != nil {
		change.Old = &rule.Spec
	}
	return t.judge(ctx, p, tracker.SourceRule, name, taint.Input{Writes: change.Writes(), Rule: change}, changes)
}

// ruleFor returns the name of the existing rule with the same devices and key, else
// placeholderName.
func (t *Teller) ruleFor(spec *resourcev1.DeviceTaintRuleSpec) string {
	for _, name := range slices.Sorted(maps.Keys(t.Cluster.Rule)) {
		is := &t.Cluster.Rule[name].Spec
		if is.Taint.Key == spec.Taint.Key && equality.Semantic.DeepEqual(is.DeviceSelector, spec.DeviceSelector) {
			return name
		}
	}
	return placeholderName
}
