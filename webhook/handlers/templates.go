package handlers

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/toleration"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// templatePaths returns where each kind of workload has the template of its pods.
func templatePaths() map[Resource][]string {
	spec := []string{"spec", "template"}
	return map[Resource][]string{
		{Group: appsv1.GroupName, Name: "deployments"}:  spec,
		{Group: appsv1.GroupName, Name: "replicasets"}:  spec,
		{Group: appsv1.GroupName, Name: "statefulsets"}: spec,
		{Group: appsv1.GroupName, Name: "daemonsets"}:   spec,
		{Group: batchv1.GroupName, Name: "jobs"}:        spec,
		{Group: batchv1.GroupName, Name: "cronjobs"}:    {"spec", "jobTemplate", "spec", "template"},
		{Name: "replicationcontrollers"}:                spec,
		{Name: "podtemplates"}:                          {"template"},

		{Group: appsv1.GroupName, Name: "controllerrevisions"}: append([]string{"data"}, templateOfRevision...),
	}
}

// templateHandler reviews the templates of pods within workloads. It is here that the user
// is known: the pods are made by controllers, and inherit the verdict.
//
// A template is judged by its new tolerations, like a pod: those that it had before stay
// (C28). So the directives of a suspended Job, which Kubernetes lets change (SD-15 to
// SD-20), are judged when they do.
//
// The tolerations of a RuntimeClass or a requested resource are granted to pods alone,
// because Kubernetes adds them to pods alone (TP-16, TP-19). A template that lists them
// could lose the class later, in an update that changes no toleration, and its pods would
// inherit tolerations that they have no more reason for.
//
// Grants that look at more than tolerations, such as labels, the service account or
// an expression over the pod, are asked when tolerations are written. A later update
// that changes only these is not judged again.
type templateHandler struct {
	*reviewer

	// at is where the template stands.
	at []string
	// daemons says that the DaemonSet controller makes the pods, and adds its tolerations
	// to each of them.
	daemons bool
	// gated says that the template of an object that exists changes only where
	// Kubernetes lets a queue change it, as gated pods do.
	gated bool
	// revision says that the object is a ControllerRevision, of a StatefulSet or for another
	// use. Pods inherit only from data that reads as a template; other data is not judged.
	revision bool
}

// judge judges the template of a workload that is created or updated.
func (h *templateHandler) judge(ctx context.Context, req *review.Request, policies *policyset.Set) ([]policy.Finding, []string, error) {
	template, old, err := decodeBoth(req, h.decode)
	if err != nil {
		return nil, nil, err
	}
	before := tolerationsOf(old)
	found, err := h.byPolicies(ctx, policies, req, template, old, before)
	if err != nil {
		return nil, nil, err
	}
	var warnings []string
	switch {
	case h.daemons:
		warnings = h.missingForDaemons(ctx, policies, req, template, old)
	case !h.revision:
		warnings = h.Spread.template(ctx, h.reviewer, policies, req, template, old, h.path("spec"))
	}
	if h.IgnoreComparisonOperators && !h.revision {
		warnings = append(warnings, comparisonWarnings(template.Spec.Tolerations, before, h.path("spec", "tolerations"))...)
	}
	return found, warnings, nil
}

func (h *templateHandler) byPolicies(ctx context.Context, policies *policyset.Set, req *review.Request, template, old *podFields, before []corev1.Toleration) ([]policy.Finding, error) {
	spec := &template.Spec
	var found []policy.Finding
	if h.gated && old != nil {
		found = policies.Gates.JudgeAt(h.path("spec"), &req.UserInfo, spec, &old.Spec).Findings
	}
	if policies.Tolerations.Len() == 0 {
		return found, nil
	}
	judged := &tolerationReview{
		reviewer: h.reviewer, set: policies.Tolerations, req: req, subject: template.value,
		in: toleration.Input{DefaultSeconds: &h.DefaultSeconds, FromDaemonSetController: h.daemons, HostNetwork: spec.HostNetwork},
	}
	violations, err := judged.judge(ctx, toleration.Asked{Path: h.path("spec", "tolerations"), New: spec.Tolerations, Old: before})
	if err != nil {
		return nil, err
	}
	found = append(found, violations...)
	// A template that newly puts its pods on a node past the scheduler. The pods are judged when
	// they are made; here the author of the template gets to know, and a revision is not written
	// by its author.
	if h.revision || spec.NodeName == "" || old != nil && old.Spec.NodeName == spec.NodeName || h.isScheduler(req) {
		return found, nil
	}
	violations, err = judged.judgeNode(ctx, spec.NodeName, h.path("spec", "nodeName"), spec.Tolerations)
	return append(found, violations...), err
}

func (h *templateHandler) path(names ...string) *field.Path {
	return field.NewPath(h.at[0], h.at[1:]...).Child(names[0], names[1:]...)
}

// decode returns the template of a workload.
func (h *templateHandler) decode(v review.Value) (*podFields, error) {
	if h.revision {
		return templateWithin(v, h.at), nil
	}
	return decodeTemplate(v, h.at)
}

// decodeTemplate returns the template that stands at a place in an object. One that is not there
// is empty.
func decodeTemplate(v review.Value, at []string) (*podFields, error) {
	var f review.Fields
	template := readPod(&f, f.At(v, at...))
	return template, f.Err()
}

// templateWithin is decodeTemplate for data that may be no template: it is empty then.
func templateWithin(v review.Value, at []string) *podFields {
	if template, err := decodeTemplate(v, at); err == nil {
		return template
	}
	return &podFields{}
}

// missingForDaemons warns of tolerations that PlacementPolicies would add to the pods of a
// DaemonSet and that its template, which was old, lacks. The DaemonSet controller makes pods
// for the nodes whose taints the template tolerates, so no pod is made that could get them.
func (h *templateHandler) missingForDaemons(ctx context.Context, policies *policyset.Set, req *review.Request, template, old *podFields) []string {
	if policies.Placement.Len() == 0 ||
		old != nil && equality.Semantic.DeepEqual(old.Spec.Tolerations, template.Spec.Tolerations) {
		return nil
	}
	pod, err := decodePlacedPod(template.value)
	if err != nil {
		return nil
	}
	matching, err := h.placementOfPod(ctx, policies.Placement, req, pod)
	if err != nil || matching.Empty() {
		return nil // Nothing is refused for a warning.
	}
	additions := matching.GivePod(placement.Pod{Spec: &pod.Spec, FromDaemonSetController: true})
	var warnings []string
	for i := range additions.Tolerations {
		t := &additions.Tolerations[i]
		text := t.Key
		if t.Value != "" {
			text += "=" + t.Value
		}
		if t.Effect != "" {
			text += ":" + string(t.Effect)
		}
		warnings = append(warnings, fmt.Sprintf(
			"%s: lacks the toleration of %s that a PlacementPolicy gives to pods here: the DaemonSet controller makes no pod for a node with such a taint unless the template tolerates it; add it to the template",
			h.path("spec", "tolerations"), policy.Short(text, policy.MaxKeyLength+policy.Value)))
	}
	return warnings
}

// comparisonWarnings warns of new tolerations with the operators Lt and Gt, which stand at
// path, where the evictor does not honour them: the scheduler places such a pod, if its feature
// gate is on, and the pod is evicted at once.
func comparisonWarnings(tolerations, old []corev1.Toleration, path *field.Path) []string {
	if equality.Semantic.DeepEqual(tolerations, old) {
		return nil
	}
	var warnings []string
	for i := range tolerations {
		t := &tolerations[i]
		compares := t.Operator == corev1.TolerationOpLt || t.Operator == corev1.TolerationOpGt
		if !compares || t.Effect != "" && t.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		warnings = append(warnings, fmt.Sprintf(
			"%s: Tollgate does not honour operator %s, and evicts the pod from a node with a NoExecute taint that it is to tolerate; an administrator can set eviction.comparisonOperators",
			path.Index(i), t.Operator))
	}
	return warnings
}
