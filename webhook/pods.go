package webhook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/directives"
	"github.com/tollgate-dev/tollgate/policy/tolerations"
)

// daemonSetControllers are the identities under which the DaemonSet controller
// creates pods: its own service account, or that of the controller manager where
// controllers have none of their own.
var daemonSetControllers = []string{
	"system:serviceaccount:kube-system:daemon-set-controller",
	"system:kube-controller-manager",
}

// policySource hands out the policies in force. A snapshot never changes, so a
// review sees all of a policy change or nothing of it. Nil says that they have
// not been read yet, which is not the same as that there are none.
type policySource interface {
	Tolerations() *tolerations.Set
}

// errNoPolicies is why nothing can be decided right after the start.
var errNoPolicies = errors.New("the policies have not been read yet")

// namespaceLabels returns the labels of a namespace.
type namespaceLabels interface {
	Labels(ctx context.Context, namespace string) (map[string]string, error)
}

// podJudge judges the creation and the update of pods.
type podJudge struct {
	policies       policySource
	namespaces     namespaceLabels
	runtimeClasses runtimeClasses
	defaults       tolerations.DefaultSeconds
	// extendedResources says whether the API server adds tolerations for extended
	// resources.
	extendedResources bool
	// podTolerationRestriction says whether the API server adds a toleration for
	// memory pressure.
	podTolerationRestriction bool
	// directives says whether changes of scheduling directives are judged.
	directives bool
}

// Judge implements judge.
func (j *podJudge) Judge(ctx context.Context, req admission.Request) (admission.Response, error) {
	pod, old, err := decodePods(req)
	if err != nil {
		return admission.Response{}, err
	}
	found := findings(j.syntax(pod, old))
	judged, err := j.tolerations(ctx, req, pod, old)
	if err != nil {
		return admission.Response{}, err
	}
	found = append(found, judged...)
	if isMirror(req, pod) {
		found = auditOnly(found)
	}
	return respond(policy.Decide(found), nil), nil
}

// syntax holds the pod against the rules of Kubernetes itself (AV-23 to AV-28,
// SD-01 to SD-14).
func (j *podJudge) syntax(pod, old *corev1.Pod) field.ErrorList {
	var before []corev1.Toleration
	if old != nil {
		before = old.Spec.Tolerations
	}
	errs := tolerations.ValidateTolerations(pod.Spec.Tolerations, before, tolerationsPath())
	switch {
	case !j.directives:
	case old == nil:
		errs = append(errs, directives.ValidateCreate(pod)...)
	default:
		errs = append(errs, directives.ValidateUpdate(pod, old)...)
	}
	return errs
}

func (j *podJudge) tolerations(ctx context.Context, req admission.Request, pod, old *corev1.Pod) ([]policy.Finding, error) {
	set := j.policies.Tolerations()
	if set == nil {
		return nil, errNoPolicies
	}
	if set.Len() == 0 {
		return nil, nil
	}
	labels, err := j.namespaces.Labels(ctx, req.Namespace)
	if err != nil {
		return nil, fmt.Errorf("read the labels of namespace %s: %w", req.Namespace, err)
	}
	added, err := j.added(ctx, pod, req.Object.Raw)
	if err != nil {
		return nil, err
	}
	in := tolerations.Input{
		Namespace:               req.Namespace,
		NamespaceLabels:         labels,
		New:                     pod.Spec.Tolerations,
		Path:                    tolerationsPath(),
		DefaultSeconds:          &j.defaults,
		FromDaemonSetController: slices.Contains(daemonSetControllers, req.UserInfo.Username),
		HostNetwork:             pod.Spec.HostNetwork,
		Added:                   added,
	}
	if old != nil {
		in.Old = old.Spec.Tolerations
	}
	return set.Judge(in).Findings, nil
}

func tolerationsPath() *field.Path {
	return field.NewPath("spec", "tolerations")
}

// decodePods returns the pod of a request and, on an update, the pod as it was.
func decodePods(req admission.Request) (pod, old *corev1.Pod, err error) {
	if pod, err = decodePod(req.Object.Raw); err != nil {
		return nil, nil, err
	}
	if req.Operation == admissionv1.Update {
		if old, err = decodePod(req.OldObject.Raw); err != nil {
			return nil, nil, err
		}
	}
	return pod, old, nil
}

// isMirror reports whether the request is a kubelet's, about the mirror of a
// static pod on its own node. That pod runs whether its mirror may exist or not,
// so a denial would only hide it. The annotation alone proves nothing: anyone
// can write it.
func isMirror(req admission.Request, pod *corev1.Pod) bool {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	node, isNode := strings.CutPrefix(req.UserInfo.Username, "system:node:")
	return mirror && isNode && node != "" && node == pod.Spec.NodeName &&
		slices.Contains(req.UserInfo.Groups, "system:nodes")
}

// auditOnly returns the findings so that they deny and warn of nothing.
func auditOnly(found []policy.Finding) []policy.Finding {
	audits := slices.Clone(found)
	for i := range audits {
		audits[i].Actions = []v1alpha1.ValidationAction{v1alpha1.Audit}
	}
	return audits
}
