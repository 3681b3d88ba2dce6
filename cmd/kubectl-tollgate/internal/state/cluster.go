// Package state reads a snapshot of a cluster with the user's credentials, into the types with
// which the server decides: a tracker, the rules of the evictor, and the policies in force. A
// Source is a resource of the cluster that commands list or watch besides.
//
// Resources that are forbidden or not served count as empty in a snapshot, and Missing describes
// the effect. Pods and nodes are required.
package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/evictor/preview"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

// Wants selects what Read keeps. The zero Wants is enough for previews of taints of nodes, rules
// and slices. A nil function keeps nothing; different functions may be called concurrently.
type Wants struct {
	// Lease is the namespace of Tollgate's Lease; settings.LeaseNamespace when empty.
	Lease string
	// Namespace is the namespace of the request, empty for all. If the user may not list pods,
	// claims and budgets of all namespaces, those in it are read; nodes are then optional.
	Namespace string
	// Selection reads full ResourceSlices and DeviceClasses, which Selected needs.
	Selection bool
	// Policies reads policies of all kinds, not only EvictionPolicies.
	Policies bool
	// Limits reads TaintPolicies and EvictionApprovals, which decide whether a taint is refused.
	Limits bool

	Node  func(*corev1.Node) bool
	Pod   func(*corev1.Pod) bool
	Claim func(*resourcev1.ResourceClaim) bool
}

// AddFlags adds the flag of Tollgate's namespace.
func (w *Wants) AddFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&w.Lease, "tollgate-namespace", settings.LeaseNamespace, "`namespace` of Tollgate, whose Lease says how it evicts")
}

// Cluster is a snapshot of a cluster.
type Cluster struct {
	// Now is the time of the snapshot.
	Now     time.Time
	Tracker *tracker.Tracker
	// Tollgate is the state of Tollgate by its Lease.
	Tollgate Tollgate
	// Rules are the rules of the evictor.
	Rules decide.Rules
	// Policies are the stored EvictionPolicies, and all other policies if Wants.Policies is set.
	// Foretold returns those in force for pods.
	Policies *policyset.Set
	// EvictionPolicies and TaintPolicies are the source objects of Policies, by name. After them
	// come the TaintPolicies that guards of PlacementPolicies stand for.
	EvictionPolicies []v1alpha1.EvictionPolicy
	TaintPolicies    []v1alpha1.TaintPolicy
	// Approvals are all EvictionApprovals, if Wants.Limits is set.
	Approvals []v1alpha1.EvictionApproval
	// Patches are all ResourceSlicePatches, by name.
	Patches []v1alpha1.ResourceSlicePatch
	// Rule has the stored DeviceTaintRules by name. RuleVersion is their API version, empty where
	// they are not served.
	Rule        map[string]*resourcev1.DeviceTaintRule
	RuleVersion string

	// Nodes, Pods and Claims are the objects that Wants kept, in the order of the API.
	Nodes  []*corev1.Node
	Pods   []*corev1.Pod
	Claims []*resourcev1.ResourceClaim

	namespaces map[string]labels.Set
	// devices is nil unless Wants.Selection is set.
	devices *sliceview.View
	// comparing is true if a pod has a toleration with the operator Lt or Gt.
	comparing bool
	// missing are the sentences of Missing, without that about the Lease.
	missing []string
	// lease is Wants.Lease.
	lease string
	// reads has what came of reading resources, by their plural names.
	reads map[string]outcome
}

// Missing returns what could not be read and how that limits the answer, as sentences without a
// full stop.
func (c *Cluster) Missing() []string {
	if c.Tollgate.lack == "" {
		return c.missing
	}
	return slices.Insert(slices.Clone(c.missing), 0, c.Tollgate.lack)
}

// Unread reports whether the user may not list a resource, by its plural name.
func (c *Cluster) Unread(resource string) bool { return c.reads[resource] == forbidden }

// Lack records the effect of a resource that is forbidden, and accepts one that is not served. It
// returns any other error.
func (c *Cluster) Lack(err error, verb string, resource schema.GroupResource, without string) error {
	switch {
	case errors.Is(err, cli.ErrNotServed):
		return nil
	case apierrors.IsForbidden(err):
		if c.reads == nil {
			c.reads = map[string]outcome{}
		}
		c.reads[resource.Resource] = forbidden
		c.Note(fmt.Sprintf("you may not %s %s: %s%s", verb, resource.Resource, without, cli.Advice(err, verb, resource)))
		return nil
	default:
		return err
	}
}

// Note adds a sentence to Missing.
func (c *Cluster) Note(sentence string) { c.missing = append(c.missing, sentence) }

// Has reports whether a node, a DeviceTaintRule or a ResourceSlicePatch was read.
func (c *Cluster) Has(kind tracker.SourceKind, name string) bool {
	switch kind {
	case tracker.SourceNode:
		return slices.ContainsFunc(c.Tracker.Nodes(), func(node tracker.LabelledNode) bool { return node.Name == name })
	case tracker.SourceRule:
		return c.Rule[name] != nil
	case tracker.SourcePatch:
		return slices.ContainsFunc(c.Patches, func(patch v1alpha1.ResourceSlicePatch) bool { return patch.Name == name })
	case tracker.SourceSlice:
	}
	return false
}

// Own reports whether the user may list a resource only in Wants.Namespace, by its plural name.
func (c *Cluster) Own(resource string) bool {
	return c.reads[resource] == listedOwn
}

// DevicesKnown reports whether claims were read; where they are not served, there are none.
func (c *Cluster) DevicesKnown() bool { return !c.Unread(ClaimResource.Resource) }

// NamespaceLabels returns the labels of a namespace; false if it was not read or is gone.
func (c *Cluster) NamespaceLabels(name string) (labels.Labels, bool) {
	set, ok := c.namespaces[name]
	return set, ok
}

// Foretold returns the EvictionPolicies in force; nil where none are, as when Kubernetes evicts
// beside Tollgate. Policies for kinds of taints that Tollgate does not handle are left out.
func (c *Cluster) Foretold() *eviction.Set {
	t := &c.Tollgate
	if !t.Installed || t.Terms.Mode != configv1alpha1.EvictionReplace || !t.Terms.Policies {
		return nil
	}
	var off []v1alpha1.TaintTarget
	if !t.Terms.Nodes {
		off = append(off, v1alpha1.TaintTargetNode)
	}
	if !t.Terms.Devices {
		off = append(off, v1alpha1.TaintTargetDevice)
	}
	return c.Policies.Evictions.Without(off...)
}

// View returns previews of writes to this cluster.
func (c *Cluster) View() *preview.View {
	yes := func() bool { return true }
	return &preview.View{
		Tracker: c.Tracker, Rules: c.Rules,
		PodsKnown: yes, NodesKnown: yes, DevicesKnown: c.DevicesKnown,
		BudgetsKnown: func() bool { return !c.Unread(BudgetResource.Resource) },
		Policies:     c.Foretold, NamespaceLabels: c.NamespaceLabels,
	}
}

// Selected returns the published devices that a ResourceSlicePatch would select. It returns an
// error if the snapshot lacks slices or classes, or ctx is done.
func (c *Cluster) Selected(ctx context.Context, patch *v1alpha1.ResourceSlicePatch) ([]device.ID, error) {
	var ids []device.ID
	err := errors.New("not all ResourceSlices and DeviceClasses could be read")
	if c.devices != nil && c.reads[SliceResource.Resource] == listed && c.reads[ClassResource.Resource] == listed {
		ids, err = c.devices.Would(ctx, patch)
	}
	if err != nil {
		return nil, fmt.Errorf("find the devices of ResourceSlicePatch %s: %w", patch.Name, err)
	}
	return ids, nil
}

var leaseResource = schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}

// Tollgate is the state of Tollgate by the Lease of its leader.
type Tollgate struct {
	// Installed is true if there is a Lease, or it may not be read.
	Installed bool
	// Terms are the eviction settings of the Lease, else of the default configuration; zero if
	// not installed.
	Terms settings.Eviction
	// Told is true if Terms are those of the Lease.
	Told bool
	// Leader is the replica that held the Lease last, and Renewed when it renewed the Lease; zero if
	// not known. Leads is true if it still holds the Lease.
	Leader  string
	Renewed time.Time
	Leads   bool
	// lack is a sentence for Missing, if any.
	lack string
}

// Lack returns what is not known of Tollgate, or that it does not run, as a sentence without a full
// stop; empty for nothing.
func (t *Tollgate) Lack() string { return t.lack }

// rules returns the rules of the evictor. Comparing says that pods have comparison operators,
// which the API server accepts only where they are enabled (AV-25).
func (t *Tollgate) rules(comparing bool) decide.Rules {
	if !t.Told {
		return decide.Rules{ComparisonOperators: comparing}
	}
	return decide.Rules{
		ComparisonOperators: t.Terms.ComparisonOperators, MaxHold: t.Terms.MaxHold,
		Window: t.Terms.Mode == configv1alpha1.EvictionWindow,
	}
}

// ReadTollgate reads the Lease of Tollgate's leader in a namespace; settings.LeaseNamespace when empty.
func ReadTollgate(ctx context.Context, clients *cli.Clients, namespace string, now time.Time) (Tollgate, error) {
	namespace = cmp.Or(namespace, settings.LeaseNamespace)
	lease, err := clients.Kubernetes.CoordinationV1().Leases(namespace).Get(ctx, settings.LeaseName, metav1.GetOptions{})
	found, name := Tollgate{Installed: true, Terms: settings.DefaultEviction()}, namespace+"/"+settings.LeaseName
	switch {
	case apierrors.IsNotFound(err):
		return Tollgate{
			lack: "Tollgate does not run here (there is no Lease " + name + "): the controllers of Kubernetes evict, past PodDisruptionBudgets and EvictionPolicies",
		}, nil
	case apierrors.IsForbidden(err):
		found.lack = "you may not read Lease " + name + ", so it is not known whether Tollgate runs: the answer is for one with the default configuration" +
			cli.Advice(err, "get", leaseResource)
		return found, nil
	case err != nil:
		return Tollgate{}, cli.Failed(err, "read Lease "+name, "get", leaseResource)
	}
	if spec := &lease.Spec; spec.HolderIdentity != nil && spec.RenewTime != nil {
		found.Leader, found.Renewed, found.Leads = *spec.HolderIdentity, spec.RenewTime.Time, isLeading(lease, now)
	}
	if terms, err := settings.ParseEviction(lease.Labels); err != nil {
		found.lack = fmt.Sprintf("Lease %s does not say how Tollgate evicts (%v): the answer is for the default configuration", name, err)
	} else if found.Terms, found.Told = terms, true; !found.Leads {
		found.lack = "no Tollgate leads at the moment (Lease " + name + " is not renewed): what it evicts stays until one does"
	}
	return found, nil
}

// Again returns a copy of c with the Lease as it is at now.
func (c *Cluster) Again(ctx context.Context, clients *cli.Clients, now time.Time) (*Cluster, error) {
	status, err := ReadTollgate(ctx, clients, c.lease, now)
	if err != nil {
		return nil, err
	}
	again := *c
	again.Now, again.Tollgate, again.Rules = now, status, status.rules(c.comparing)
	return &again, nil
}

// With returns a copy of c for now, with the tracker and the EvictionPolicies that watches keep up to
// date. Both share what could not be read, so no more may be noted in either.
func (c *Cluster) With(now time.Time, kept *tracker.Tracker, policies []v1alpha1.EvictionPolicy) *Cluster {
	with := *c
	with.Now, with.Tracker, with.EvictionPolicies = now, kept, policies
	return &with
}

// isLeading reports whether a lease is held. It allows a minute of clock skew.
func isLeading(lease *coordinationv1.Lease, now time.Time) bool {
	spec := &lease.Spec
	if spec.HolderIdentity == nil || *spec.HolderIdentity == "" || spec.RenewTime == nil || spec.LeaseDurationSeconds == nil {
		return false
	}
	const skew = time.Minute
	return now.Sub(spec.RenewTime.Time) < time.Duration(*spec.LeaseDurationSeconds)*time.Second+skew
}
