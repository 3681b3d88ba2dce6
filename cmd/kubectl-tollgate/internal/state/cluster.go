package state

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/evictor"
	"github.com/tollgate-dev/tollgate/evictor/preview"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

// Wants says what is kept besides what evictions depend on. The zero Wants is enough for
// forecasts of taints of nodes, rules and slices. Of the functions, nil keeps nothing;
// they may be called by several goroutines at once, but each by one.
type Wants struct {
	// Lease is the namespace that Tollgate runs in; settings.LeaseNamespace when empty.
	Lease string
	// Namespace is the one that is asked about, empty for all. Who may not see all pods,
	// claims and budgets is shown those in it, and whoever may not see nodes no error.
	Namespace string
	// NoDevices leaves out all that is about devices.
	NoDevices bool
	// Selection reads whole ResourceSlices and DeviceClasses, without which Selected knows
	// no devices.
	Selection bool
	// Policies reads policies of all kinds, and not EvictionPolicies alone.
	Policies bool
	// Limits reads TaintPolicies and EvictionApprovals, which say whether the write of a
	// taint is refused.
	Limits bool

	Node  func(*corev1.Node) bool
	Pod   func(*corev1.Pod) bool
	Claim func(*resourcev1.ResourceClaim) bool
}

// AddFlags adds the flag that says where Tollgate runs.
func (w *Wants) AddFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&w.Lease, "tollgate-namespace", settings.LeaseNamespace, "`namespace` of Tollgate, whose Lease says how it evicts")
}

// Everything keeps all objects of a kind.
func Everything[T any](*T) bool { return true }

// Cluster is a cluster as it was when it was read.
type Cluster struct {
	// Now is when it was read.
	Now     time.Time
	Tracker *tracker.Tracker
	// Tollgate says whether Tollgate runs, and how it evicts.
	Tollgate Tollgate
	// Rules are those of whoever evicts.
	Rules evictor.Rules
	// Policies are those that are stored: EvictionPolicies, and all others if they are
	// wanted. Foretold has those which keep pods where they are.
	Policies *policyset.Set
	// EvictionPolicies and TaintPolicies are the objects that Policies are made of, by
	// name.
	EvictionPolicies []v1alpha1.EvictionPolicy
	TaintPolicies    []v1alpha1.TaintPolicy
	// Approvals are all EvictionApprovals, if limits are wanted.
	Approvals []v1alpha1.EvictionApproval
	// Patches are all ResourceSlicePatches, by name.
	Patches []v1alpha1.ResourceSlicePatch
	// Rule has the DeviceTaintRules as they are stored, by name, and RuleVersion is the
	// version of their API, empty where they are not served.
	Rule        map[string]*resourcev1.DeviceTaintRule
	RuleVersion string

	// Nodes, Pods and Claims are those that are wanted, in the order of the API.
	Nodes  []*corev1.Node
	Pods   []*corev1.Pod
	Claims []*resourcev1.ResourceClaim

	namespaces map[string]labels.Set
	// budgetsKnown and claimsKnown say that the user may see them.
	budgetsKnown, claimsKnown bool
	// devices is nil unless a selection is wanted.
	devices *sliceview.View
	// selectable says that all that a selection depends on was read.
	selectable bool
	// comparing says that a pod has a toleration with the operator Lt or Gt.
	comparing bool
	missing   []string
	// lease is the namespace of the Lease, and leaseLack what of missing is about it.
	lease, leaseLack string
	// unread are the resources that the user may not see.
	unread map[string]bool
	// ownPods, ownBudgets and ownClaims say that these are those of one namespace.
	ownPods, ownBudgets, ownClaims bool
}

// Missing says what was not to be read, and what an answer lacks because of it: sentences
// without an end.
func (c *Cluster) Missing() []string { return c.missing }

// Unread reports whether the user may not see a resource, by its name in the plural.
func (c *Cluster) Unread(resource string) bool { return c.unread[resource] }

// Own reports whether the user may see a resource only in the namespace that is asked about,
// by its name in the plural.
func (c *Cluster) Own(resource string) bool {
	switch resource {
	case podResource.Resource:
		return c.ownPods
	case budgetResource.Resource:
		return c.ownBudgets
	case claimResource.Resource:
		return c.ownClaims
	default:
		return false
	}
}

// DevicesKnown reports whether it is known which pods use which devices.
func (c *Cluster) DevicesKnown() bool { return c.claimsKnown }

// NamespaceLabels returns the labels of a namespace; false where they are not known. A
// namespace that is gone meanwhile is not.
func (c *Cluster) NamespaceLabels(name string) (labels.Labels, bool) {
	set, known := c.namespaces[name]
	return set, known
}

// Foretold returns the EvictionPolicies that hold or protect pods; nil where nobody goes
// by any, and so also where Kubernetes evicts beside Tollgate. Those taints because of
// which Kubernetes evicts are none of theirs.
func (c *Cluster) Foretold() *eviction.Set {
	if !c.Tollgate.heeds() {
		return nil
	}
	var off []v1alpha1.TaintTarget
	if !c.Tollgate.Terms.Nodes {
		off = append(off, v1alpha1.TaintTargetNode)
	}
	if !c.Tollgate.Terms.Devices {
		off = append(off, v1alpha1.TaintTargetDevice)
	}
	return c.Policies.Evictions.Without(off...)
}

// View returns what foretells writes to this cluster.
func (c *Cluster) View() *preview.View {
	yes := func() bool { return true }
	return preview.NewView(preview.Options{
		Tracker: c.Tracker, Rules: c.Rules,
		PodsKnown: yes, NodesKnown: yes, DevicesKnown: c.DevicesKnown,
		BudgetsKnown: func() bool { return c.budgetsKnown },
		Policies:     c.Foretold, NamespaceLabels: c.NamespaceLabels,
	})
}

// Selected returns the published devices that a ResourceSlicePatch would be meant for if it
// were written. The error is of a cluster that was read without a Selection, or in part, or
// that of ctx.
func (c *Cluster) Selected(ctx context.Context, patch *v1alpha1.ResourceSlicePatch) ([]device.ID, error) {
	if c.devices == nil || !c.selectable {
		return nil, fmt.Errorf("find the devices of ResourceSlicePatch %s: not all ResourceSlices and DeviceClasses could be read", patch.Name)
	}
	ids, err := c.devices.Would(ctx, patch)
	if err != nil {
		return nil, fmt.Errorf("find the devices of ResourceSlicePatch %s: %w", patch.Name, err)
	}
	return ids, nil
}
