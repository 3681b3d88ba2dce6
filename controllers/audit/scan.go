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
	// mostSamples is how many pods a status names.
	mostSamples = 10
	// daemonSet is the kind of owner whose controller adds tolerations.
	daemonSet = "DaemonSet"
)

// pods are those on nodes; a tracker.Tracker knows them.
type pods interface {
	EachPod(visit func(*tracker.Pod))
}

// reader reads from a cache.
type reader interface {
	Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error
}

// judge is a set of TolerationPolicies.
type judge interface {
	AuditNeedsLabels() bool
	Audit(ctx context.Context, in toleration.AuditInput) ([]toleration.Violation, error)
}

// group is what pods have in common for which the policies say the same. Lists that
// are the same are kept once, so the first element tells; where they are not, the same
// is judged twice.
type group struct {
	namespace   string
	tolerations *corev1.Toleration
	count       int
	account     string
	daemon      bool
	labels      *tracker.Label
	window      string
}

// scan is one look at all pods.
type scan struct {
	judge      judge
	namespaces reader
	// tollgate is the namespace of Tollgate.
	tollgate string
	defaults toleration.DefaultSeconds
	// added are tolerations that Kubernetes may have added to any pod.
	added []corev1.Toleration

	verdicts map[group][]toleration.Violation
	known    map[string]*corev1.Namespace
	found    map[string]*v1alpha1.TolerationViolations
	err      error
}

// run returns what was found, by the name of the policy.
func (s *scan) run(ctx context.Context, all pods) (map[string]*v1alpha1.TolerationViolations, error) {
	s.verdicts = map[group][]toleration.Violation{}
	s.known = map[string]*corev1.Namespace{}
	s.found = map[string]*v1alpha1.TolerationViolations{}
	withLabels := s.judge.AuditNeedsLabels()
	all.EachPod(func(pod *tracker.Pod) {
		if s.err != nil || len(pod.Tolerations) == 0 || pod.Finished || pod.Terminating || pod.Mirror ||
			policy.Unjudged(pod.Namespace, s.tollgate) {
			return
		}
		for _, v := range s.violations(ctx, groupOf(pod, withLabels), pod) {
			s.note(pod, v)
		}
	})
	return s.found, s.err
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

// violations returns what pods of a group violate, of which pod is one.
func (s *scan) violations(ctx context.Context, g group, pod *tracker.Pod) []toleration.Violation {
	verdict, ok := s.verdicts[g]
	if ok {
		return verdict
	}
	namespace := s.namespace(ctx, g.namespace)
	if namespace == nil {
		return nil // It is gone, and its pods will be.
	}
	in := toleration.AuditInput{
		Namespace: namespace, ServiceAccount: g.account, Tolerations: pod.Tolerations,
		// Which pods are on the network of their node is not known.
		DefaultSeconds: &s.defaults, OfDaemonSet: g.daemon, HostNetwork: true, Added: slices.Concat(s.added, givenTo(pod)),
	}
	if g.labels != nil {
		in.Labels = pod.Origin.Labels.Map()
	}
	verdict, err := s.judge.Audit(ctx, in)
	if err != nil {
		s.err = fmt.Errorf("audit pod %s: %w", pod.Key, err)
		return nil
	}
	s.verdicts[g] = verdict
	return verdict
}

// givenTo returns the tolerations that Tollgate gave a pod in mode Window, which are no
// choice of whoever created it.
func givenTo(pod *tracker.Pod) []corev1.Toleration {
	var given []corev1.Toleration
	for _, w := range pod.Window.Tolerations() {
		given = append(given, corev1.Toleration{
			Key: w.Key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(w.Seconds),
		})
	}
	return given
}

func (s *scan) namespace(ctx context.Context, name string) *corev1.Namespace {
	namespace, ok := s.known[name]
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
	s.known[name] = namespace
	return namespace
}

// note counts a pod, and names it if it is among the first.
func (s *scan) note(pod *tracker.Pod, v toleration.Violation) {
	found := s.found[v.Policy]
	if found == nil {
		found = &v1alpha1.TolerationViolations{}
		s.found[v.Policy] = found
	}
	found.Count++
	sample := v1alpha1.TolerationViolation{Namespace: pod.Namespace, Name: pod.Name, Toleration: v.Toleration}
	at, _ := slices.BinarySearchFunc(found.Sample, sample, compareSamples)
	if at == mostSamples {
		return
	}
	found.Sample = slices.Insert(found.Sample, at, sample)
	if len(found.Sample) > mostSamples {
		found.Sample = found.Sample[:mostSamples]
	}
}

func compareSamples(a, b v1alpha1.TolerationViolation) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
