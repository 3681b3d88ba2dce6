package state

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

var (
	podResource       = schema.GroupResource{Resource: "pods"}
	nodeResource      = schema.GroupResource{Resource: "nodes"}
	namespaceResource = schema.GroupResource{Resource: "namespaces"}
	budgetResource    = schema.GroupResource{Group: policyv1.GroupName, Resource: "poddisruptionbudgets"}
)

// core returns the lists of kinds that all clusters serve.
func (r *reader) core() []list {
	nodes := list{resource: nodeResource, read: r.nodes}
	if r.wants.Namespace != "" {
		nodes.without = "which taints nodes have, and which pods leave because of them, is not known"
	}
	return []list{
		nodes,
		{resource: podResource, read: r.pods},
		{resource: namespaceResource, without: "where a policy asks for labels of namespaces, its pods count as not held and not protected", read: r.namespaces},
		{resource: budgetResource, without: "it is not known which pods a PodDisruptionBudget guards", read: r.budgets},
	}
}

func (r *reader) nodes(ctx context.Context) error {
	client := r.Kubernetes.CoreV1().Nodes()
	return cli.Each(ctx, r.Clients, nodeResource, cli.Pages(client.List), metav1.ListOptions{}, func(node *corev1.Node) error {
		r.cluster.Tracker.SetNode(tracker.NodeOf(node), r.cluster.Now)
		if r.wants.Node != nil && r.wants.Node(node) {
			r.cluster.Nodes = append(r.cluster.Nodes, node)
		}
		return nil
	})
}

func (r *reader) pods(ctx context.Context) error {
	keep := informer.KeepPods()
	take := func(pod *corev1.Pod) error { //nolint:unparam // Required by cli.Each.
		kept := keep(pod)
		r.cluster.Tracker.SetPod(kept)
		r.cluster.comparing = r.cluster.comparing || compares(kept.Tolerations)
		if r.wants.Pod != nil && r.wants.Pod(pod) {
			r.cluster.Pods = append(r.cluster.Pods, pod)
		}
		return nil
	}
	own, err := r.each(func(namespace string) error {
		client := r.Kubernetes.CoreV1().Pods(namespace)
		return cli.EachIn(ctx, r.Clients, podResource, namespace, cli.Pages(client.List), metav1.ListOptions{}, take)
	})
	r.cluster.ownPods = own
	return err
}

// each calls list for all namespaces, and if that is forbidden, for Wants.Namespace. Own reports
// the latter. A forbidden list has read nothing.
func (r *reader) each(list func(namespace string) error) (own bool, err error) {
	err = list(metav1.NamespaceAll)
	if !apierrors.IsForbidden(err) || r.wants.Namespace == "" {
		return false, err
	}
	err = list(r.wants.Namespace)
	return err == nil, err
}

func compares(tolerations []corev1.Toleration) bool {
	for i := range tolerations {
		if operator := tolerations[i].Operator; operator == corev1.TolerationOpLt || operator == corev1.TolerationOpGt {
			return true
		}
	}
	return false
}

func (r *reader) namespaces(ctx context.Context) error {
	client := r.Kubernetes.CoreV1().Namespaces()
	err := cli.Each(ctx, r.Clients, namespaceResource, cli.Pages(client.List), metav1.ListOptions{}, func(namespace *corev1.Namespace) error {
		r.cluster.namespaces[namespace.Name] = namespace.Labels
		return nil
	})
	if !apierrors.IsForbidden(err) || r.wants.Namespace == "" {
		return err
	}
	namespace, getErr := client.Get(ctx, r.wants.Namespace, metav1.GetOptions{})
	if getErr != nil {
		return err
	}
	r.cluster.namespaces[namespace.Name] = namespace.Labels
	return nil
}

func (r *reader) budgets(ctx context.Context) error {
	own, err := r.each(func(namespace string) error {
		client := r.Kubernetes.PolicyV1().PodDisruptionBudgets(namespace)
		return cli.EachIn(ctx, r.Clients, budgetResource, namespace, cli.Pages(client.List), metav1.ListOptions{}, func(budget *policyv1.PodDisruptionBudget) error {
			r.cluster.Tracker.SetBudget(tracker.BudgetOf(budget))
			return nil
		})
	})
	r.cluster.ownBudgets, r.cluster.budgetsKnown = own, err == nil
	return err
}
