package handlers

import (
	"context"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/toleration"
	"github.com/tollgate-dev/tollgate/policy/validation"
	"github.com/tollgate-dev/tollgate/webhook/review"
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

var (
	tolerationsPath = field.NewPath("spec", "tolerations")
	nodeNamePath    = field.NewPath("spec", "nodeName")
)

// podHandler reviews the creation and the update of pods.
//
// A grant that looks at more than tolerations, such as the labels or the service account
// of a pod or an expression over it, is asked when the tolerations are written. Later
// writes that change only these are not judged, so such a grant is no more than a
// narrower grant to the users who may write pods in the namespace.
type podHandler struct{ *reviewer }

// mutate adds to pods that are created the fields of PlacementPolicies, and in mode Window
// the tolerations of EvictionPolicies. Mirrors of static pods, which run as their kubelet has
// them, stay as they are.
func (h *podHandler) mutate(ctx context.Context, req *review.Request) (jsonPatch, error) {
	policies, err := h.inForce()
	if err != nil || req.Operation != admissionv1.Create {
		return nil, err
	}
	marked, err := markOf(req.New, false)
	if err != nil || policies.Placement.Len() == 0 && !h.someWindows(policies, v1alpha1.TaintTargetNode) && !marked.there {
		return nil, err
	}
	pod, err := decodePlacedPod(req.New)
	if err != nil || isMirror(req, pod) {
		return nil, err
	}
	var additions placement.PodAdditions
	if policies.Placement.Len() > 0 {
		matching, err := h.placementOfPod(ctx, policies.Placement, req, pod)
		if err != nil {
			return nil, err
		}
		additions = matching.GivePod(pod.placement(req))
	}
	wanted, err := h.windowsOf(ctx, policies, req, v1alpha1.TaintTargetNode, pod.Labels)
	if err != nil {
		return nil, err
	}
	// Windows stand behind all other tolerations.
	have := slices.Concat(pod.Spec.Tolerations, additions.Tolerations)
	added, windows := podWindows.add(have, wanted, v1alpha1.ParseWindow(marked.value))
	additions.Tolerations = append(additions.Tolerations, added...)
	return podPatch(pod, &marked, &additions, windows), nil
}

// judge judges a pod that is created or updated.
func (h *podHandler) judge(ctx context.Context, req *review.Request, policies *policyset.Set) ([]policy.Finding, []string, error) {
	pod, old, err := decodeBoth(req, decodePod)
	if err != nil {
		return nil, nil, err
	}
	before := tolerationsOf(old)
	// The rules of Kubernetes itself (AV-23 to AV-28, SD-01 to SD-14).
	errs := toleration.ValidateTolerations(pod.Spec.Tolerations, before, tolerationsPath)
	switch {
	case !h.SchedulingDirectives:
	case old == nil:
		errs = append(errs, validation.ValidatePodCreate(&pod.Spec)...)
	default:
		errs = append(errs, validation.ValidatePodUpdate(&pod.Spec, &old.Spec)...)
	}
	found := findings(errs)
	violations, err := h.byPolicies(ctx, policies, req, pod, old)
	if err != nil {
		return nil, nil, err
	}
	found = append(found, violations...)
	if isMirror(req, pod) {
		for i := range found { // They deny and warn of nothing.
			found[i].Actions = []v1alpha1.ValidationAction{v1alpha1.Audit}
		}
		return found, nil, nil
	}
	var warnings []string
	if old == nil {
		misplaced, err := h.misplacedPod(ctx, policies, req)
		if err != nil {
			return nil, nil, err
		}
		found = append(found, misplaced...)
		warnings = h.Spread.pod(req)
	}
	if h.IgnoreComparisonOperators {
		warnings = append(warnings, comparisonWarnings(pod.Spec.Tolerations, before, tolerationsPath)...)
	}
	return found, warnings, nil
}

func tolerationsOf(pod *podFields) []corev1.Toleration {
	if pod == nil {
		return nil
	}
	return pod.Spec.Tolerations
}

func (h *podHandler) byPolicies(ctx context.Context, policies *policyset.Set, req *review.Request, pod, old *podFields) ([]policy.Finding, error) {
	var additions addedTolerations
	var err error
	if policies.Tolerations.Len() > 0 {
		if additions, err = h.added(ctx, pod); err != nil {
			return nil, err
		}
	}
	judged := &tolerationReview{
		reviewer: h.reviewer, set: policies.Tolerations, req: req, subject: req.New, forResources: additions.forResources,
		in: toleration.Input{
			DefaultSeconds:          &h.DefaultSeconds,
			FromDaemonSetController: slices.Contains(daemonSetControllers, req.UserInfo.Username),
			HostNetwork:             pod.Spec.HostNetwork,
			Added:                   additions.bySettings,
		},
	}
	var windows []v1alpha1.WindowToleration
	var found []policy.Finding
	if old == nil {
		windows, found, err = h.windowsOfCreated(ctx, policies, req, v1alpha1.TaintTargetNode, false)
	} else if found, err = markChanged(req); err == nil {
		windows, err = h.keptWindows(req, old)
	}
	if err != nil {
		return nil, err
	}
	judged.windows = podWindows.all(windows)
	violations, err := judged.judge(ctx, toleration.Asked{Path: tolerationsPath, New: pod.Spec.Tolerations, Old: tolerationsOf(old)})
	if err != nil {
		return nil, err
	}
	found = append(found, violations...)
	if old == nil {
		return h.placedByUser(ctx, judged, pod, found)
	}
	found = append(found, policies.Gates.Judge(&req.UserInfo, &pod.Spec, &old.Spec).Findings...)
	if len(old.Spec.SchedulingGates) == 0 || len(pod.Spec.SchedulingGates) > 0 {
		return found, nil
	}
	// The last scheduling gate goes. A field that a policy was already found to be violated by is
	// not named twice.
	again, err := judged.judgeUngated(ctx, toleration.Asked{Path: tolerationsPath, New: pod.Spec.Tolerations})
	all := found
	for _, f := range again {
		if !slices.ContainsFunc(found, func(g policy.Finding) bool { return g.Policy == f.Policy && g.Field == f.Field }) {
			all = append(all, f)
		}
	}
	return all, err
}

// placedByUser appends the findings about a pod that is created on a node, past the scheduler.
func (h *podHandler) placedByUser(ctx context.Context, judged *tolerationReview, pod *podFields, found []policy.Finding) ([]policy.Finding, error) {
	if pod.Spec.NodeName == "" || h.isScheduler(judged.req) {
		return found, nil
	}
	marked, err := markOf(judged.req.New, false)
	if err != nil {
		return nil, err
	}
	has := withoutWindows(pod.Spec.Tolerations, v1alpha1.ParseWindow(marked.value))
	violations, err := judged.judgeNode(ctx, pod.Spec.NodeName, nodeNamePath, has)
	return append(found, violations...), err
}

// validatePodStatus judges the annotation of windows alone: by the status of a pod its
// annotations can be written too.
func validatePodStatus(_ context.Context, req *review.Request) (Result, error) {
	found, err := markChanged(req)
	return Result{Decision: policy.Decide(found)}, err
}

// isMirror reports whether the request is a kubelet's, about the mirror of a
// static pod on its own node. That pod runs whether its mirror may exist or not,
// so a denial would only hide it. The annotation alone proves nothing: anyone
// can write it.
func isMirror(req *review.Request, pod *podFields) bool {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	node, isNode := strings.CutPrefix(req.UserInfo.Username, "system:node:")
	return mirror && isNode && node != "" && node == pod.Spec.NodeName &&
		slices.Contains(req.UserInfo.Groups, "system:nodes")
}
