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

var (
	tolerationsPath = field.NewPath("spec", "tolerations")
	nodeNamePath    = field.NewPath("spec", "nodeName")
)

// mutatePod adds to pods that are created the fields of PlacementPolicies, and in mode Window
// the tolerations of EvictionPolicies. Mirrors of static pods, which run as their kubelet has
// them, stay as they are.
func (r request) mutatePod(ctx context.Context) (jsonPatch, error) {
	if err := r.inForce(); err != nil || r.Operation != admissionv1.Create {
		return nil, err
	}
	marked := r.markOf(r.New)
	if r.policies.Placement.Len() == 0 && !r.someWindows(v1alpha1.TaintTargetNode) && !marked.there {
		return nil, nil
	}
	pod := readPlacedPod(&r.Fields, r.New)
	if r.isMirror(pod) {
		return nil, nil
	}
	matching, err := r.placementOfPod(ctx, pod)
	if err != nil {
		return nil, err
	}
	additions := matching.GivePod(r.placed(pod))
	wanted, err := r.windowsOf(ctx, v1alpha1.TaintTargetNode, pod.Labels)
	if err != nil {
		return nil, err
	}
	// Windows stand behind all other tolerations.
	have := slices.Concat(pod.Spec.Tolerations, additions.Tolerations)
	added, windows := podWindows.add(have, wanted, v1alpha1.ParseWindow(marked.value))
	additions.Tolerations = append(additions.Tolerations, added...)
	return podPatch(pod, &marked, &additions, windows), nil
}

// judgePod judges a pod that is created or updated.
//
// A grant that looks at more than tolerations, such as the labels or the service account
// of a pod or an expression over it, is asked when the tolerations are written. Later
// writes that change only these are not judged, so such a grant is no more than a
// narrower grant to the users who may write pods in the namespace.
func (r request) judgePod(ctx context.Context) ([]policy.Finding, []string, error) {
	pod, old := readBoth(r, readPod)
	before := tolerationsOf(old)
	// The rules of Kubernetes itself (AV-23 to AV-28, SD-01 to SD-14).
	errs := toleration.ValidateTolerations(pod.Spec.Tolerations, before, tolerationsPath)
	switch {
	case !r.SchedulingDirectives:
	case old == nil:
		errs = append(errs, validation.ValidatePodCreate(&pod.Spec)...)
	default:
		errs = append(errs, validation.ValidatePodUpdate(&pod.Spec, &old.Spec)...)
	}
	found := findings(errs)
	violations, err := r.podFindings(ctx, pod, old)
	if err != nil {
		return nil, nil, err
	}
	found = append(found, violations...)
	if r.isMirror(pod) {
		for i := range found { // They deny and warn of nothing.
			found[i].Actions = []v1alpha1.ValidationAction{v1alpha1.Audit}
		}
		return found, nil, nil
	}
	var warnings []string
	if old == nil {
		misplaced, err := r.misplacedPod(ctx)
		if err != nil {
			return nil, nil, err
		}
		found = append(found, misplaced...)
		warnings = r.Spread.pod(r.New)
	}
	if r.IgnoreComparisonOperators {
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

// podFindings returns the findings of TolerationPolicies and GatePolicies about a pod.
func (r request) podFindings(ctx context.Context, pod, old *podFields) ([]policy.Finding, error) {
	judged := &tolerationReview{request: r, subject: r.New, in: toleration.Input{
		DefaultSeconds:          &r.DefaultSeconds,
		FromDaemonSetController: r.fromDaemonSetController(),
		HostNetwork:             pod.Spec.HostNetwork,
	}}
	var err error
	if judged.in.Added, judged.forResources, err = r.added(ctx, pod); err != nil {
		return nil, err
	}
	var windows []v1alpha1.WindowToleration
	var found []policy.Finding
	if old == nil {
		if windows, found, err = r.windowsOfCreated(ctx, v1alpha1.TaintTargetNode); err != nil {
			return nil, err
		}
	} else {
		windows, found = r.keptWindows(old), r.markChanged()
	}
	judged.windows = podWindows.all(windows)
	violations, err := judged.judge(ctx, toleration.Asked{Path: tolerationsPath, New: pod.Spec.Tolerations, Old: tolerationsOf(old)})
	if err != nil {
		return nil, err
	}
	found = append(found, violations...)
	if old == nil {
		return judged.placedByUser(ctx, pod, found)
	}
	found = append(found, r.policies.Gates.Judge(&r.UserInfo, &pod.Spec, &old.Spec).Findings...)
	if len(old.Spec.SchedulingGates) == 0 || len(pod.Spec.SchedulingGates) > 0 {
		return found, nil
	}
	// The last scheduling gate goes. A field that a policy was already found to be violated by is
	// not named twice.
	again, err := judged.judgeUngated(ctx, toleration.Asked{Path: tolerationsPath, New: pod.Spec.Tolerations})
	again = slices.DeleteFunc(again, func(f policy.Finding) bool {
		return slices.ContainsFunc(found, func(g policy.Finding) bool { return g.Policy == f.Policy && g.Field == f.Field })
	})
	return append(found, again...), err
}

// placedByUser appends the findings about a pod that is created on a node, past the scheduler.
func (r *tolerationReview) placedByUser(ctx context.Context, pod *podFields, found []policy.Finding) ([]policy.Finding, error) {
	if pod.Spec.NodeName == "" || r.isScheduler() {
		return found, nil
	}
	has := withoutWindows(pod.Spec.Tolerations, v1alpha1.ParseWindow(r.markOf(r.New).value))
	violations, err := r.judgeNode(ctx, pod.Spec.NodeName, nodeNamePath, has)
	return append(found, violations...), err
}

// validatePodStatus judges the annotation of windows alone: by the status of a pod its
// annotations can be written too.
func (r request) validatePodStatus(context.Context) (Result, error) {
	return Result{Decision: policy.Decide(r.markChanged())}, nil
}

// fromDaemonSetController reports whether the request is of the DaemonSet controller.
func (r request) fromDaemonSetController() bool {
	return slices.Contains(daemonSetControllers, r.UserInfo.Username)
}

// isMirror reports whether the request is a kubelet's, about the mirror of a
// static pod on its own node. That pod runs whether its mirror may exist or not,
// so a denial would only hide it. The annotation alone proves nothing: anyone
// can write it.
func (r request) isMirror(pod *podFields) bool {
	node, isNode := strings.CutPrefix(r.UserInfo.Username, "system:node:")
	return pod.mirror && isNode && node != "" && node == pod.Spec.NodeName && slices.Contains(r.UserInfo.Groups, "system:nodes")
}
