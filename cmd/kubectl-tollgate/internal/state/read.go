package state

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

// The resources that Read, devices, evictions and explanations need, besides
// informer.RuleResource.
var (
	PodResource       = schema.GroupResource{Resource: "pods"}
	NodeResource      = schema.GroupResource{Resource: "nodes"}
	NamespaceResource = schema.GroupResource{Resource: "namespaces"}
	EventResource     = schema.GroupResource{Resource: "events"}
	BudgetResource    = schema.GroupResource{Group: policyv1.GroupName, Resource: "poddisruptionbudgets"}
	ClaimResource     = schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaims"}
	SliceResource     = schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceslices"}
	ClassResource     = schema.GroupResource{Group: resourcev1.GroupName, Resource: "deviceclasses"}
	PatchResource     = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "resourceslicepatches"}
	PolicyResource    = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "evictionpolicies"}
	podGroupResource  = schema.GroupResource{Group: "scheduling.k8s.io", Resource: "podgroups"}
)

// RuleVersions are the supported versions of DeviceTaintRules, newest first.
func RuleVersions() []string { return []string{"v1", "v1beta2", "v1alpha3"} }

// Version returns the newest supported version in which a resource is served, or cli.ErrNotServed.
func Version(ctx context.Context, clients *cli.Clients, resource schema.GroupResource) (string, error) {
	versions := []string{"v1"}
	switch {
	case resource == informer.RuleResource:
		versions = RuleVersions()
	case resource.Group == v1alpha1.GroupVersion.Group:
		versions = []string{v1alpha1.GroupVersion.Version}
	}
	return clients.Version(ctx, resource, versions...)
}

// Serves reports whether a resource is served in one of the versions.
func Serves(ctx context.Context, clients *cli.Clients, resource schema.GroupResource, versions ...string) (bool, error) {
	_, err := clients.Version(ctx, resource, versions...)
	if errors.Is(err, cli.ErrNotServed) {
		return false, nil
	}
	return err == nil, err
}

// ServesPodGroups is Serves for PodGroups.
func ServesPodGroups(ctx context.Context, clients *cli.Clients) (bool, error) {
	return Serves(ctx, clients, podGroupResource, "v1", "v1beta1", "v1alpha3", "v1alpha2")
}

// reader reads a cluster. Its lists run concurrently and write to different fields.
type reader struct {
	*cli.Clients
	*Cluster

	wants       Wants
	tolerations []v1alpha1.TolerationPolicy
	placement   []v1alpha1.PlacementPolicy
	gates       []v1alpha1.GatePolicy
}

// outcome is what came of reading a resource. It is zero for one that is not wanted or not served.
type outcome int

const (
	// listedOwn means that only those of Wants.Namespace were read.
	listed outcome = iota + 1
	listedOwn
	forbidden
)

// list is one kind of object.
type list struct {
	resource schema.GroupResource
	// version is the version that has to be served; empty for one that always is.
	version string
	// without describes the effect of a forbidden list; empty if the list is required.
	without string
	// read reads the objects of a namespace, or of all if it is empty.
	read func(ctx context.Context, namespace string) error
	// namespaced is true if Wants.Namespace is read where all namespaces are forbidden.
	namespaced bool
	// outcome and err are what came of reading it.
	outcome outcome
	err     error
}

// Read reads a snapshot of the cluster at now. Errors have advice.
func Read(ctx context.Context, clients *cli.Clients, now time.Time, wants Wants) (*Cluster, error) {
	c := newCluster(now)
	c.lease = wants.Lease
	if wants.Selection {
		c.devices = sliceview.New()
	}
	r := &reader{Clients: clients, Cluster: c, wants: wants}
	if err := r.all(ctx, r.lists()); err != nil {
		return nil, err
	}
	c.Policies = c.Policies.WithTolerations(r.tolerations).WithGates(r.gates)
	c.complete(r.placement)
	if c.devices != nil {
		for _, patch := range c.Patches {
			c.devices.SetPatch(&patch)
		}
	}
	if c.Own(ClaimResource.Resource) {
		c.Note("you may list resourceclaims in namespace " + wants.Namespace + " alone: which devices the claims of others have is not known")
	}
	return c, nil
}

// newCluster returns a snapshot at now without objects.
func newCluster(now time.Time) *Cluster {
	return &Cluster{
		Now: now, Tracker: tracker.New(), Policies: policyset.None(),
		Rule: map[string]*resourcev1.DeviceTaintRule{}, namespaces: map[string]labels.Set{}, reads: map[string]outcome{},
	}
}

// complete sets what follows from the objects that were read: the rules, the policies with those that
// guards of PlacementPolicies stand for, and whether devices are known.
func (c *Cluster) complete(placement []v1alpha1.PlacementPolicy) {
	c.Rules = c.Tollgate.rules(c.comparing)
	c.Policies = c.Policies.WithEvictions(c.EvictionPolicies).WithTaints(c.TaintPolicies).WithPlacement(placement)
	c.TaintPolicies = append(c.TaintPolicies, policyset.GuardsOf(placement).Taints...)
	c.Tracker.SetDevicesKnown(c.DevicesKnown()) // A preview also checks DevicesKnown.
}

// lists returns the lists of the wanted kinds.
func (r *reader) lists() []*list {
	c := r.Cluster
	nodes := &list{resource: NodeResource, read: r.nodes}
	if r.wants.Namespace != "" {
		nodes.without = "which taints nodes have, and which pods leave because of them, is not known"
	}
	lists := []*list{
		nodes,
		{resource: PodResource, namespaced: true, read: r.pods},
		{resource: NamespaceResource, without: "where a policy asks for labels of namespaces, its pods count as not held and not protected", read: r.namespaces},
		{resource: BudgetResource, namespaced: true, without: "it is not known which pods a PodDisruptionBudget guards", read: r.budgets},
		custom(r, "EvictionPolicies", &c.EvictionPolicies),
		custom(r, "ResourceSlicePatches", &c.Patches),
	}
	if r.wants.Limits || r.wants.Policies {
		lists = append(lists, custom(r, "TaintPolicies", &c.TaintPolicies), custom(r, "PlacementPolicies", &r.placement))
	}
	if r.wants.Limits {
		lists = append(lists, custom(r, "EvictionApprovals", &c.Approvals))
	}
	if r.wants.Policies {
		lists = append(lists, custom(r, "TolerationPolicies", &r.tolerations), custom(r, "GatePolicies", &r.gates))
	}
	lists = append(lists,
		&list{resource: ClaimResource, version: "v1", namespaced: true, without: "it is not known which pods use which devices", read: r.claims},
		&list{resource: SliceResource, version: "v1", without: "devices that no claim has, and the taints that drivers publish, are not known", read: r.resourceSlices},
		&list{resource: informer.RuleResource, without: "the taints of DeviceTaintRules and ResourceSlicePatches are not known", read: r.rules})
	if r.wants.Selection {
		lists = append(lists, &list{resource: ClassResource, version: "v1", without: "which devices a ResourceSlicePatch with a class selects is not known", read: r.deviceClasses})
	}
	return lists
}

// custom returns the list of one of Tollgate's kinds, which appends to objects.
func custom[T any](r *reader, plural string, objects *[]T) *list {
	resource := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: strings.ToLower(plural)}
	return &list{resource: resource, without: plural + " are as if there were none", read: func(ctx context.Context, _ string) error {
		return cli.AppendAll(ctx, r.Clients, resource, objects)
	}}
}

// all reads Tollgate's Lease and the lists concurrently.
func (r *reader) all(ctx context.Context, lists []*list) error {
	c := r.Cluster
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		c.Tollgate, err = ReadTollgate(ctx, r.Clients, r.wants.Lease, c.Now)
		return err
	})
	for _, l := range lists {
		group.Go(func() error {
			l.outcome, l.err = r.try(ctx, l)
			if apierrors.IsForbidden(l.err) || errors.Is(l.err, cli.ErrNotServed) { // The other errors are reported too.
				return nil
			}
			return l.err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	var refused error // In one line.
	for _, l := range lists {
		err := l.err
		if err == nil {
			c.reads[l.resource.Resource] = l.outcome
		}
		if l.without != "" {
			err = c.Lack(err, "list", l.resource, l.without)
		}
		switch {
		case refused == nil:
			refused = err
		case err != nil:
			refused = fmt.Errorf("%w; %w", refused, err)
		}
	}
	return refused
}

// try reads a list. A list with an error has read nothing.
func (r *reader) try(ctx context.Context, l *list) (outcome, error) {
	if l.version != "" {
		if _, err := r.Version(ctx, l.resource, l.version); err != nil {
			return 0, err
		}
	}
	err := l.read(ctx, metav1.NamespaceAll)
	if apierrors.IsForbidden(err) && l.namespaced && r.wants.Namespace != "" {
		return listedOwn, l.read(ctx, r.wants.Namespace)
	}
	return listed, err
}

// each calls take for each object of a typed client, in a namespace or in all if it is empty.
func each[T, L runtime.Object](ctx context.Context, r *reader, resource schema.GroupResource, namespace string, through lister[L], take func(T)) error {
	return cli.Each(ctx, r.Clients, resource, namespace, through.List, func(object T) error {
		take(object)
		return nil
	})
}

func (r *reader) nodes(ctx context.Context, _ string) error {
	return each(ctx, r, NodeResource, "", r.Kubernetes.CoreV1().Nodes(), func(node *corev1.Node) {
		r.addNode(node)
		if r.wants.Node != nil && r.wants.Node(node) {
			r.Nodes = append(r.Nodes, node)
		}
	})
}

func (r *reader) pods(ctx context.Context, namespace string) error {
	keep := informer.KeepPods()
	return each(ctx, r, PodResource, namespace, r.Kubernetes.CoreV1().Pods(namespace), func(pod *corev1.Pod) {
		r.addPod(keep(pod))
		if r.wants.Pod != nil && r.wants.Pod(pod) {
			r.Pods = append(r.Pods, pod)
		}
	})
}

// namespaces reads namespaces, or if that is forbidden, the one of the request.
func (r *reader) namespaces(ctx context.Context, _ string) error {
	client := r.Kubernetes.CoreV1().Namespaces()
	take := func(namespace *corev1.Namespace) { r.Cluster.namespaces[namespace.Name] = namespace.Labels }
	err := each(ctx, r, NamespaceResource, "", client, take)
	if apierrors.IsForbidden(err) && r.wants.Namespace != "" {
		if namespace, getErr := client.Get(ctx, r.wants.Namespace, metav1.GetOptions{}); getErr == nil {
			take(namespace)
			return nil
		}
	}
	return err
}

func (r *reader) budgets(ctx context.Context, namespace string) error {
	return each(ctx, r, BudgetResource, namespace, r.Kubernetes.PolicyV1().PodDisruptionBudgets(namespace), func(budget *policyv1.PodDisruptionBudget) {
		r.Tracker.SetBudget(tracker.BudgetOf(budget))
	})
}

// claims reads ResourceClaims, and whether PodGroups are served.
func (r *reader) claims(ctx context.Context, namespace string) error {
	groups, err := ServesPodGroups(ctx, r.Clients)
	if err != nil {
		return err
	}
	r.Tracker.SetPodGroups(groups)
	return each(ctx, r, ClaimResource, namespace, r.Kubernetes.ResourceV1().ResourceClaims(namespace), func(claim *resourcev1.ResourceClaim) {
		r.Tracker.SetClaim(tracker.ClaimOf(claim))
		if r.wants.Claim != nil && r.wants.Claim(claim) {
			r.Claims = append(r.Claims, claim)
		}
	})
}

func (r *reader) resourceSlices(ctx context.Context, _ string) error {
	return each(ctx, r, SliceResource, "", r.Kubernetes.ResourceV1().ResourceSlices(), func(slice *resourcev1.ResourceSlice) {
		r.Tracker.SetSlice(tracker.SliceOf(slice), r.Now)
		if r.wants.Selection {
			slice.ManagedFields = nil // often half of the size
			r.devices.SetSlice(slice)
		}
	})
}

func (r *reader) deviceClasses(ctx context.Context, _ string) error {
	return each(ctx, r, ClassResource, "", r.Kubernetes.ResourceV1().DeviceClasses(), r.devices.SetClass)
}

// rules reads DeviceTaintRules in the served version.
func (r *reader) rules(ctx context.Context, _ string) (err error) {
	r.RuleVersion, err = r.EachServed(ctx, informer.RuleResource, r.addRule, RuleVersions()...)
	return err
}
