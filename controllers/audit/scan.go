package audit

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/toleration"
	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	// maxSamples is the number of pods that a status names.
	maxSamples = 10
	// daemonSet is the kind of owner whose controller adds tolerations.
	daemonSet = "DaemonSet"
)

// group is the key of pods for which the policies have the same result. The tracker
// interns equal lists, so the address of the first element identifies a list; a list that
// is not interned is evaluated again.
type group struct {
	namespace   string
	tolerations *corev1.Toleration
	count       int
	account     string
	daemon      bool
	labels      *tracker.Label
	window      string
}

// scan is one pass over all pods.
type scan struct {
	*Controller

	set *toleration.Set
	// added are tolerations that Kubernetes may have added to any pod.
	added []corev1.Toleration

	verdicts       map[group][]toleration.Ruling
	namespaceCache map[string]*corev1.Namespace
	// results are by the name of the policy.
	results map[string]*v1alpha1.TolerationViolations
	// findings are by namespace; nil if no Reports are written.
	findings map[string]*findings
	err      error
}

// scan makes a pass over all pods.
func (c *Controller) scan(ctx context.Context, set *toleration.Set) (*scan, error) {
	var classes nodev1.RuntimeClassList
	if err := c.Cache.List(ctx, &classes); err != nil {
		return nil, fmt.Errorf("list runtime classes: %w", err)
	}
	s := &scan{
		Controller: c, set: set, verdicts: map[group][]toleration.Ruling{},
		namespaceCache: map[string]*corev1.Namespace{}, results: map[string]*v1alpha1.TolerationViolations{},
	}
	if c.Reports != nil {
		s.findings = map[string]*findings{}
	}
	for i := range classes.Items {
		if scheduling := classes.Items[i].Scheduling; scheduling != nil {
			s.added = append(s.added, scheduling.Tolerations...)
		}
	}
	withLabels := set.AuditNeedsLabels()
	c.Pods.EachPod(func(pod *tracker.Pod) {
		if s.err != nil || len(pod.Tolerations) == 0 || pod.Finished || pod.Terminating || pod.Mirror ||
			policy.Unjudged(pod.Namespace, c.Namespace) {
			return
		}
		for _, v := range s.violations(ctx, groupOf(pod, withLabels), pod) {
			s.record(pod, v)
		}
	})
	return s, s.err
}

func groupOf(pod *tracker.Pod, withLabels bool) group {
	g := group{namespace: pod.Namespace, tolerations: &pod.Tolerations[0], count: len(pod.Tolerations)}
	if pod.Window != nil {
		g.window = v1alpha1.FormatWindow(pod.Window.Tolerations())
	}
	if pod.Origin == nil {
		return g
	}
	g.account, g.daemon = pod.Origin.ServiceAccount, pod.Origin.OwnerKind == daemonSet
	if withLabels && len(pod.Origin.Labels) > 0 {
		g.labels = &pod.Origin.Labels[0]
	}
	return g
}

// violations returns the violations of the pods of a group, of which pod is one.
func (s *scan) violations(ctx context.Context, g group, pod *tracker.Pod) []toleration.Ruling {
	verdict, ok := s.verdicts[g]
	if ok {
		return verdict
	}
	namespace := s.namespace(ctx, g.namespace)
	if namespace == nil {
		return nil // The namespace is deleted, or s.err is set.
	}
	in := toleration.Input{
		ServiceAccount: g.account, Asked: []toleration.Asked{{Path: field.NewPath("tolerations"), New: pod.Tolerations}},
		// Which pods are on the network of their node is not known.
		DefaultSeconds: &s.DefaultSeconds, FromDaemonSetController: g.daemon, HostNetwork: true, Added: slices.Clip(s.added),
	}
	// The creator of the pod did not choose the tolerations that Tollgate injected.
	for _, w := range pod.Window.Tolerations() {
		in.Added = append(in.Added, w.OfPod())
	}
	if g.labels != nil {
		in.Labels = pod.Origin.Labels.Map()
	}
	verdict, err := s.set.Audit(ctx, namespace, in)
	if err != nil {
		s.err = fmt.Errorf("audit pod %s: %w", pod.Key, err)
		return nil
	}
	s.verdicts[g] = verdict
	return verdict
}

func (s *scan) namespace(ctx context.Context, name string) *corev1.Namespace {
	namespace, ok := s.namespaceCache[name]
	if ok {
		return namespace
	}
	namespace = &corev1.Namespace{}
	err := s.Cache.Get(ctx, types.NamespacedName{Name: name}, namespace)
	if err != nil {
		s.err = client.IgnoreNotFound(fmt.Errorf("read namespace %s: %w", name, err))
		namespace = nil
	}
	s.namespaceCache[name] = namespace
	return namespace
}

// record counts a pod, and names it if it is among the first in order.
func (s *scan) record(pod *tracker.Pod, v toleration.Ruling) {
	found := s.results[v.Policy]
	if found == nil {
		found = &v1alpha1.TolerationViolations{}
		s.results[v.Policy] = found
	}
	found.Count++
	if s.findings != nil {
		if s.findings[pod.Namespace] == nil {
			s.findings[pod.Namespace] = &findings{}
		}
		s.findings[pod.Namespace].add(finding{key: pod.Key, Ruling: v})
	}
	sample := v1alpha1.TolerationViolation{Namespace: pod.Namespace, Name: pod.Name, Toleration: v.Toleration}
	found.Sample = insert(found.Sample, sample, maxSamples, func(a, b v1alpha1.TolerationViolation) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// insert adds an item to a list in order, of which no more than the first are kept.
func insert[T any](list []T, item T, most int, compare func(a, b T) int) []T {
	at, _ := slices.BinarySearchFunc(list, item, compare)
	if at == most {
		return list
	}
	list = slices.Insert(list, at, item)
	return list[:min(len(list), most)]
}
