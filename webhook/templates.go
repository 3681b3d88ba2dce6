package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/toleration"
)

// templateJudge judges the templates of pods within workloads. It is here that a user
// is known: the pods are made by controllers, and inherit the verdict.
//
// A template is judged by what it brings, like a pod: what stood in it before stays
// (C28). So the directives of a suspended Job, which Kubernetes lets change (SD-15 to
// SD-20), are judged when they do.
//
// What a RuntimeClass or a requested resource would bring is granted to pods alone,
// because Kubernetes adds it to pods alone (TP-16, TP-19). A template in which somebody
// wrote it out could lose the class later, in an update that changes no toleration, and
// its pods would inherit what they have no more reason to tolerate.
//
// Grants that look at more than tolerations, such as labels, the service account or
// an expression over the pod, are asked when tolerations are written. A later update
// that changes only what they looked at is not judged again.
type templateJudge struct {
	// at is where the template stands.
	at         []string
	policies   policySource
	tolerating *tolerating
	defaults   toleration.DefaultSeconds
	schedulers []string
	// daemons says that the DaemonSet controller makes the pods, and adds what it adds
	// to every one of them.
	daemons bool
	// gated says that the template of an object that exists changes only where
	// Kubernetes lets a queue change it, as gated pods do.
	gated bool
	// revision says that the template is that of a StatefulSet, or whatever else someone
	// keeps in a ControllerRevision. Only what is read from a template can be inherited
	// from one, so what does not read as a template is nobody's concern.
	revision bool
	// placement and spread find out whether pods may wait for spread without end.
	placement *placer
	spread    *Spread
	// ignoreComparisons says that pods are evicted in spite of tolerations with Lt and Gt.
	ignoreComparisons bool
}

// Judge implements judge.
func (j *templateJudge) Judge(ctx context.Context, req admission.Request) (admission.Response, error) {
	template, err := j.decode(req.Object.Raw)
	if err != nil {
		return admission.Response{}, err
	}
	var old *podTemplate
	if req.Operation == admissionv1.Update {
		if old, err = j.decode(req.OldObject.Raw); err != nil {
			return admission.Response{}, err
		}
	}
	policies := j.policies.Current()
	if policies == nil {
		return admission.Response{}, errNoPolicies
	}
	found, err := j.byPolicies(ctx, policies, &req, template, old)
	if err != nil {
		return admission.Response{}, err
	}
	var warnings []string
	if !j.daemons && !j.revision {
		warnings = j.spread.template(ctx, j.placement, policies, &req, template, old, j.path("spec"))
	}
	if j.daemons {
		warnings = j.placement.lackedByDaemons(ctx, policies, &req, template, old, j.path("spec", "tolerations"))
	}
	if j.ignoreComparisons && !j.revision {
		var before []corev1.Toleration
		if old != nil {
			before = old.pod.Spec.Tolerations
		}
		warnings = append(warnings, comparisonWarnings(template.pod.Spec.Tolerations, before, j.path("spec", "tolerations"))...)
	}
	return judgedBy(respond(ctx, policy.Decide(found), warnings), policies), nil
}

func (j *templateJudge) byPolicies(ctx context.Context, policies *policyset.Set, req *admission.Request, template, old *podTemplate) ([]policy.Finding, error) {
	var found []policy.Finding
	if j.gated && old != nil {
		found = policies.Gates.JudgeAt(j.path("spec"), &req.UserInfo, &template.pod.Spec, &old.pod.Spec).Findings
	}
	if policies.Tolerations.Len() == 0 {
		return found, nil
	}
	spec := &template.pod.Spec
	h := j.tolerating.hear(policies.Tolerations, req, template.raw, toleration.Input{
		DefaultSeconds: &j.defaults, FromDaemonSetController: j.daemons, HostNetwork: spec.HostNetwork,
	})
	asked := toleration.Asked{Path: j.path("spec", "tolerations"), New: spec.Tolerations}
	if old != nil {
		asked.Old = old.pod.Spec.Tolerations
	}
	judged, err := h.judge(ctx, asked)
	if err != nil {
		return nil, err
	}
	found = append(found, judged...)
	if !j.steers(req, spec, old) {
		return found, nil
	}
	passed, err := h.judgeNode(ctx, spec.NodeName, j.path("spec", "nodeName"), spec.Tolerations)
	return append(found, passed...), err
}

// steers reports whether the template newly puts its pods on a node past the
// scheduler. They are judged when they are made; it is the author of the template who
// is told here, and a revision is not what the author wrote.
func (j *templateJudge) steers(req *admission.Request, spec *corev1.PodSpec, old *podTemplate) bool {
	return !j.revision && spec.NodeName != "" && (old == nil || old.pod.Spec.NodeName != spec.NodeName) &&
		!slices.Contains(j.schedulers, req.UserInfo.Username)
}

func (j *templateJudge) path(names ...string) *field.Path {
	return field.NewPath(j.at[0], j.at[1:]...).Child(names[0], names[1:]...)
}

// podTemplate is the template of pods in a workload.
type podTemplate struct {
	// raw is its JSON, with metadata and spec as in a pod.
	raw json.RawMessage
	pod *corev1.Pod
}

// decode returns the template of the workload raw.
func (j *templateJudge) decode(raw []byte) (*podTemplate, error) {
	if j.revision {
		return templateWithin(raw, j.at), nil
	}
	return decodeTemplate(raw, j.at)
}

// decodeTemplate returns the template that stands at a place in raw. One that is not
// there is empty.
func decodeTemplate(raw []byte, at []string) (*podTemplate, error) {
	template := json.RawMessage(raw)
	for _, name := range at {
		var child json.RawMessage
		if err := findMembers(template, member{name, &child}); err != nil {
			return nil, &badReviewError{fmt.Errorf("decode template: %w", err)}
		}
		template = child
	}
	if isNull(template) {
		template = json.RawMessage("{}")
	}
	pod, err := decodePod(template)
	if bad := (*badReviewError)(nil); errors.As(err, &bad) {
		return nil, &badReviewError{fmt.Errorf("in the template: %w", bad.err)}
	}
	return &podTemplate{raw: template, pod: pod}, err
}

// templateWithin is decodeTemplate for what may be no template: it is empty then.
func templateWithin(raw []byte, at []string) *podTemplate {
	if template, err := decodeTemplate(raw, at); err == nil {
		return template
	}
	return &podTemplate{raw: json.RawMessage("{}"), pod: &corev1.Pod{}}
}
