package webhook

import (
	"context"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/toleration"
	"github.com/tollgate-dev/tollgate/policy/validation"
)

// daemonSetControllers are the identities under which the DaemonSet controller
// creates pods: its own service account, or that of the controller manager where
// controllers have none of their own.
var daemonSetControllers = []string{
	"system:serviceaccount:kube-system:daemon-set-controller",
	"system:kube-controller-manager",
}

// DefaultSchedulers returns the identity under which Kubernetes' scheduler binds pods.
func DefaultSchedulers() []string { return []string{"system:kube-scheduler"} }

// podJudge judges the creation and the update of pods.
//
// A grant that looks at more than tolerations, such as the labels or the service account
// of a pod or an expression over it, is asked when the tolerations are written. Later
// writes that change only what it looked at are not judged, so it is no more than a
// narrower grant to those who may write pods in the namespace.
type podJudge struct {
	policies   policySource
	tolerating *tolerating
	added      *additions
	defaults   toleration.DefaultSeconds
	placement  *placer
	windows    *windows
	// schedulers may put pods on nodes.
	schedulers []string
	// directives says whether changes of scheduling directives are judged.
	directives bool
	spread     *Spread
	// ignoreComparisons says that pods are evicted in spite of tolerations with Lt and Gt.
	ignoreComparisons bool
}

// Judge implements judge.
func (j *podJudge) Judge(ctx context.Context, req admission.Request) (admission.Response, error) {
	pod, old, err := decodePods(req)
	if err != nil {
		return admission.Response{}, err
	}
	policies := j.policies.Current()
	if policies == nil {
		return admission.Response{}, errNoPolicies
	}
	path := field.NewPath("spec").Child("tolerations")
	found := findings(j.syntax(pod, old, path))
	judged, err := j.byPolicies(ctx, policies, &req, pod, old, path)
	if err != nil {
		return admission.Response{}, err
	}
	found = append(found, judged...)
	mirror := isMirror(req, pod)
	if old == nil && !mirror {
		placed, err := j.placement.podFindings(ctx, policies, &req)
		if err != nil {
			return admission.Response{}, err
		}
		found = append(found, placed...)
	}
	if mirror {
		found = auditOnly(found)
	}
	var warnings []string
	if old == nil && !mirror {
		warnings = j.spread.pod(&req)
	}
	if j.ignoreComparisons && !mirror {
		var before []corev1.Toleration
		if old != nil {
			before = old.Spec.Tolerations
		}
		warnings = append(warnings, comparisonWarnings(pod.Spec.Tolerations, before, path)...)
	}
	return judgedBy(respond(ctx, policy.Decide(found), warnings), policies), nil
}

// syntax holds the pod against the rules of Kubernetes itself (AV-23 to AV-28,
// SD-01 to SD-14).
func (j *podJudge) syntax(pod, old *corev1.Pod, path *field.Path) field.ErrorList {
	var before []corev1.Toleration
	if old != nil {
		before = old.Spec.Tolerations
	}
	errs := toleration.ValidateTolerations(pod.Spec.Tolerations, before, path)
	switch {
	case !j.directives:
	case old == nil:
		errs = append(errs, validation.ValidatePodCreate(pod)...)
	default:
		errs = append(errs, validation.ValidatePodUpdate(pod, old)...)
	}
	return errs
}

func (j *podJudge) byPolicies(ctx context.Context, policies *policyset.Set, req *admission.Request, pod, old *corev1.Pod, path *field.Path) ([]policy.Finding, error) {
	var to added
	if policies.Tolerations.Len() > 0 {
		var err error
		if to, err = j.added.of(ctx, pod, req.Object.Raw); err != nil {
			return nil, err
		}
	}
	h := j.tolerating.hear(policies.Tolerations, req, req.Object.Raw, toleration.Input{
		DefaultSeconds:          &j.defaults,
		FromDaemonSetController: slices.Contains(daemonSetControllers, req.UserInfo.Username),
		HostNetwork:             pod.Spec.HostNetwork,
		Added:                   to.bySettings,
	})
	h.forResources = to.forResources
	var found []policy.Finding
	var err error
	if h.windows, found, err = j.given(ctx, policies, req, old); err != nil {
		return nil, err
	}
	if old == nil {
		judged, err := j.created(ctx, h, pod, path)
		return append(found, judged...), err
	}
	judged, err := h.judge(ctx, toleration.Asked{Path: path, New: pod.Spec.Tolerations, Old: old.Spec.Tolerations})
	if err != nil {
		return nil, err
	}
	found = append(append(found, judged...), policies.Gates.Judge(&req.UserInfo, &pod.Spec, &old.Spec).Findings...)
	if !letGo(pod, old) {
		return found, nil
	}
	again, err := h.judgeAgain(ctx, toleration.Asked{Path: path, New: pod.Spec.Tolerations})
	return withoutTwins(found, again), err
}

// given returns which tolerations of the pod are windows, and what is wrong with what the
// request says of it.
func (j *podJudge) given(ctx context.Context, policies *policyset.Set, req *admission.Request, old *corev1.Pod) ([]corev1.Toleration, []policy.Finding, error) {
	if old == nil {
		given, found, err := j.windows.taken(ctx, policies, req, v1alpha1.TaintTargetNode, false)
		return nodeWindows(given), found, err
	}
	found, err := remarked(req)
	if err != nil {
		return nil, nil, err
	}
	kept, err := j.windows.kept(req, old)
	return nodeWindows(kept), found, err
}

func (j *podJudge) created(ctx context.Context, h *hearing, pod *corev1.Pod, path *field.Path) ([]policy.Finding, error) {
	found, err := h.judge(ctx, toleration.Asked{Path: path, New: pod.Spec.Tolerations})
	if err != nil || pod.Spec.NodeName == "" || slices.Contains(j.schedulers, h.req.UserInfo.Username) {
		return found, err
	}
	marked, err := markOf(h.req.Object.Raw, false)
	if err != nil {
		return nil, err
	}
	has := withoutWindows(pod.Spec.Tolerations, v1alpha1.ParseWindow(marked.value))
	passed, err := h.judgeNode(ctx, pod.Spec.NodeName, field.NewPath("spec", "nodeName"), has)
	return append(found, passed...), err
}

// letGo reports whether the last scheduling gate of a pod goes.
func letGo(pod, old *corev1.Pod) bool {
	return len(old.Spec.SchedulingGates) > 0 && len(pod.Spec.SchedulingGates) == 0
}

// withoutTwins appends the findings of more to found, but for those about a field that
// the same policy was already found to be violated by.
func withoutTwins(found, more []policy.Finding) []policy.Finding {
	all := found
	for _, f := range more {
		if !slices.ContainsFunc(found, func(g policy.Finding) bool { return g.Policy == f.Policy && g.Field == f.Field }) {
			all = append(all, f)
		}
	}
	return all
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
