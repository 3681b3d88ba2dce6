package state

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

func (c *Cluster) addNode(node *corev1.Node) { c.Tracker.SetNode(tracker.NodeOf(node), c.Now) }

func (c *Cluster) addPod(pod tracker.Pod) {
	c.Tracker.SetPod(pod)
	for _, t := range pod.Tolerations {
		c.comparing = c.comparing || t.Operator == corev1.TolerationOpLt || t.Operator == corev1.TolerationOpGt
	}
}

func (c *Cluster) addRule(object *unstructured.Unstructured) error {
	rule, kept, err := informer.ReadRule(object)
	if err != nil {
		return err
	}
	rule.ManagedFields = nil // as in the output of kubectl
	c.Tracker.SetRule(kept, c.Now)
	c.Rule[rule.Name] = rule
	return nil
}

// manifests reads objects of manifests into a cluster.
type manifests struct {
	*Cluster

	keep    func(*corev1.Pod) tracker.Pod
	pods    []tracker.Pod
	budgets []policyv1.PodDisruptionBudget
	guards  []v1alpha1.PlacementPolicy
	// ignored counts the objects of kinds that do not matter, and unbound the pods without a node.
	ignored map[string]int
	unbound int
}

// FromManifests returns the cluster with the objects of manifests, at now, in which Tollgate runs with
// the default configuration. Objects without a UID get one. A PodDisruptionBudget without a status
// allows what its spec allows if all of its pods are healthy. Errors name the position.
func FromManifests(objects []cli.Object, now time.Time) (*Cluster, error) {
	m := &manifests{
		Cluster: newCluster(now), keep: informer.KeepPods(), ignored: map[string]int{},
	}
	m.Tollgate = Tollgate{Installed: true, Told: true, Terms: settings.DefaultEviction()}
	for _, object := range objects {
		if object.GetUID() == "" {
			object.SetUID(types.UID(object.GetKind() + "/" + object.GetNamespace() + "/" + object.GetName()))
		}
		if err := m.add(&object); err != nil {
			return nil, fmt.Errorf("%s: %w", object.Position, err)
		}
	}
	for _, budget := range m.budgets {
		budget.Namespace = cmp.Or(budget.Namespace, metav1.NamespaceDefault)
		m.Tracker.SetBudget(m.budgetOf(&budget))
	}
	m.complete(m.guards)
	if m.unbound > 0 {
		m.Note(cli.Counted(m.unbound, "pod") + " without spec.nodeName " + cli.Plural(m.unbound, "is", "are") + " left out")
	}
	for kind, count := range m.ignored {
		m.Note(fmt.Sprintf("%d of kind %s left out: it has no part in evictions, or makes pods that are not in the manifests", count, kind))
	}
	slices.Sort(m.missing)
	return m.Cluster, nil
}

// into decodes an object and passes it to take.
func into[T any](object *cli.Object, take func(*T)) error {
	typed, err := cli.As[T](object.Unstructured)
	if err == nil {
		take(typed)
	}
	return err
}

// appendTo decodes an object and appends it to a list.
func appendTo[T any](object *cli.Object, list *[]T) error {
	return into(object, func(typed *T) { *list = append(*list, *typed) })
}

// add adds an object.
func (m *manifests) add(object *cli.Object) error {
	switch kind := object.GroupVersionKind().GroupKind().String(); kind {
	case "Node":
		return into(object, m.addNode)
	case "Namespace":
		return into(object, func(n *corev1.Namespace) { m.namespaces[n.Name] = n.Labels })
	case "Pod":
		return into(object, m.pod)
	case "PodDisruptionBudget.policy":
		return appendTo(object, &m.budgets)
	case "ResourceClaim.resource.k8s.io":
		return into(object, func(c *resourcev1.ResourceClaim) { m.Tracker.SetClaim(tracker.ClaimOf(c)) })
	case "ResourceSlice.resource.k8s.io":
		return into(object, func(s *resourcev1.ResourceSlice) { m.Tracker.SetSlice(tracker.SliceOf(s), m.Now) })
	case "DeviceTaintRule.resource.k8s.io":
		m.RuleVersion = "v1"
		if err := m.addRule(object.Unstructured); err != nil {
			return fmt.Errorf("read %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		return nil
	case "EvictionPolicy.tollgate.dev":
		return appendTo(object, &m.EvictionPolicies)
	case "TaintPolicy.tollgate.dev":
		return appendTo(object, &m.TaintPolicies)
	case "PlacementPolicy.tollgate.dev":
		return appendTo(object, &m.guards)
	case "EvictionApproval.tollgate.dev":
		return appendTo(object, &m.Approvals)
	default:
		m.ignored[kind]++
		return nil
	}
}

func (m *manifests) pod(pod *corev1.Pod) {
	pod.Namespace = cmp.Or(pod.Namespace, metav1.NamespaceDefault)
	if pod.Spec.NodeName == "" {
		m.unbound++
		return
	}
	kept := m.keep(pod)
	m.pods = append(m.pods, kept)
	m.addPod(kept)
}

// budgetOf returns what is kept of a PodDisruptionBudget, which need not have a status.
func (m *manifests) budgetOf(budget *policyv1.PodDisruptionBudget) tracker.Budget {
	kept := tracker.BudgetOf(budget)
	if budget.Status.ObservedGeneration > 0 || budget.Status.ExpectedPods > 0 {
		return kept
	}
	pods := 0
	for i := range m.pods {
		if kept.Guards(&m.pods[i]) {
			pods++
		}
	}
	switch spec := &budget.Spec; {
	case spec.MaxUnavailable != nil:
		kept.Allowed = scaled(spec.MaxUnavailable, pods)
	case spec.MinAvailable != nil:
		kept.Allowed = max(int32(min(pods, 1<<30))-scaled(spec.MinAvailable, pods), 0)
	}
	return kept
}

// scaled returns a number of pods, of which there are some, or a percentage of them, rounded up.
func scaled(value *intstr.IntOrString, pods int) int32 {
	n, err := intstr.GetScaledValueFromIntOrPercent(value, pods, true)
	if err != nil {
		return 0
	}
	return int32(max(min(n, 1<<30), 0))
}
