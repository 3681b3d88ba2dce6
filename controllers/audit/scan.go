package audit

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
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

// pods visits the pods on nodes; tracker.Tracker implements it.
type pods interface {
	EachPod(visit func(*tracker.Pod))
}

// reader reads from a cache.
type reader interface {
	Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error
}

// auditor is a set of TolerationPolicies.
type auditor interface {
	AuditNeedsLabels() bool
	Audit(ctx context.Context, in toleration.AuditInput) ([]toleration.Violation, error)
}

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
	auditor    auditor
	namespaces reader
	// tollgate is the namespace of Tollgate.
	tollgate string
	defaults toleration.DefaultSeconds
	// added are tolerations that Kubernetes may have added to any pod.
	added []corev1.Toleration

	verdicts       map[group][]toleration.Violation
	namespaceCache map[string]*corev1.Namespace
	results        map[string]*v1alpha1.TolerationViolations
	err            error
}

// run returns the violations by the name of the policy.
func (s *scan) run(ctx context.Context, all pods) (map[string]*v1alpha1.TolerationViolations, error) {
	s.verdicts = map[group][]toleration.Violation{}
	s.namespaceCache = map[string]*corev1.Namespace{}
	s.results = map[string]*v1alpha1.TolerationViolations{}
	withLabels := s.auditor.AuditNeedsLabels()
	all.EachPod(func(pod *tracker.Pod) {
		if s.err != nil || len(pod.Tolerations) == 0 || pod.Finished || pod.Terminating || pod.Mirror ||
			policy.Unjudged(pod.Namespace, s.tollgate) {
			return
		}
		for _, v := range s.violations(ctx, groupOf(pod, withLabels), pod) {
			s.record(pod, v)
		}
	})
	return s.results, s.err
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
func (s *scan) violations(ctx context.Context, g group, pod *tracker.Pod) []toleration.Violation {
	verdict, ok := s.verdicts[g]
	if ok {
		return verdict
	}
	namespace := s.namespace(ctx, g.namespace)
	if namespace == nil {
		return nil // The namespace is deleted, or s.err is set.
	}
	in := toleration.AuditInput{
		Namespace: namespace, ServiceAccount: g.account, Tolerations: pod.Tolerations,
		// Which pods are on the network of their node is not known.
		DefaultSeconds: &s.defaults, OfDaemonSet: g.daemon, HostNetwork: true, Added: slices.Concat(s.added, windowTolerations(pod)),
	}
	if g.labels != nil {
		in.Labels = pod.Origin.Labels.Map()
	}
	verdict, err := s.auditor.Audit(ctx, in)
	if err != nil {
		s.err = fmt.Errorf("audit pod %s: %w", pod.Key, err)
		return nil
	}
	s.verdicts[g] = verdict
	return verdict
}

// windowTolerations returns the tolerations that Tollgate injected into a pod in mode
// Window, which its creator did not choose.
func windowTolerations(pod *tracker.Pod) []corev1.Toleration {
	var given []corev1.Toleration
	for _, w := range pod.Window.Tolerations() {
		given = append(given, corev1.Toleration{
			Key: w.Key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(w.Seconds),
		})
	}
	return given
}

func (s *scan) namespace(ctx context.Context, name string) *corev1.Namespace {
	namespace, ok := s.namespaceCache[name]
	if ok {
		return namespace
	}
	namespace = &corev1.Namespace{}
	err := s.namespaces.Get(ctx, types.NamespacedName{Name: name}, namespace)
	if err != nil {
		if !apierrors.IsNotFound(err) {
			s.err = fmt.Errorf("read namespace %s: %w", name, err)
		}
		namespace = nil
	}
	s.namespaceCache[name] = namespace
	return namespace
}

// record counts a pod, and names it if it is among the first in order.
func (s *scan) record(pod *tracker.Pod, v toleration.Violation) {
	found := s.results[v.Policy]
	if found == nil {
		found = &v1alpha1.TolerationViolations{}
		s.results[v.Policy] = found
	}
	found.Count++
	sample := v1alpha1.TolerationViolation{Namespace: pod.Namespace, Name: pod.Name, Toleration: v.Toleration}
	at, _ := slices.BinarySearchFunc(found.Sample, sample, compareSamples)
	if at == maxSamples {
		return
	}
	found.Sample = slices.Insert(found.Sample, at, sample)
	if len(found.Sample) > maxSamples {
		found.Sample = found.Sample[:maxSamples]
	}
}

func compareSamples(a, b v1alpha1.TolerationViolation) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
