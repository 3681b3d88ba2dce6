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
	"github.com/tollgate-dev/tollgate/policy/toleration"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

var (
	// underSpec is where most workloads have the template of their pods. The data of a
	// ControllerRevision have that of a StatefulSet there.
	underSpec = []string{"spec", "template"}
	// templatePaths are where each kind of workload has the template of its pods.
	templatePaths = map[Resource][]string{
		{Group: appsv1.GroupName, Name: "deployments"}:  underSpec,
		{Group: appsv1.GroupName, Name: "replicasets"}:  underSpec,
		{Group: appsv1.GroupName, Name: "statefulsets"}: underSpec,
		{Group: appsv1.GroupName, Name: "daemonsets"}:   underSpec,
		{Group: batchv1.GroupName, Name: "jobs"}:        underSpec,
		{Group: batchv1.GroupName, Name: "cronjobs"}:    {"spec", "jobTemplate", "spec", "template"},
		{Name: "replicationcontrollers"}:                underSpec,
		{Name: "podtemplates"}:                          {"template"},

		{Group: appsv1.GroupName, Name: "controllerrevisions"}: append([]string{"data"}, underSpec...),
	}
)

// templateReview reviews the template of pods within a workload. It is here that the user
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
type templateReview struct {
	request

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

// judgeTemplate judges the template of a workload that is created or updated.
func (r request) judgeTemplate(ctx context.Context) ([]policy.Finding, []string, error) {
	name := r.Resource.Resource
	t := &templateReview{
		request: r, at: templatePaths[Resource{Group: r.Resource.Group, Name: name}],
		daemons: name == "daemonsets", gated: name == "jobs", revision: name == "controllerrevisions",
	}
	template, old := readBoth(r, t.read)
	found, err := t.byPolicies(ctx, template, old)
	if err != nil {
		return nil, nil, err
	}
	var warnings []string
	switch {
	case t.daemons:
		warnings = t.missingForDaemons(ctx, template, old)
	case !t.revision:
		warnings = r.Spread.template(ctx, r, template, old, t.path("spec"))
	}
	if r.IgnoreComparisonOperators && !t.revision {
		warnings = append(warnings, comparisonWarnings(template.Spec.Tolerations, tolerationsOf(old), t.path("spec", "tolerations"))...)
	}
	return found, warnings, nil
}

func (t *templateReview) byPolicies(ctx context.Context, template, old *podFields) ([]policy.Finding, error) {
	spec := &template.Spec
	var found []policy.Finding
	if t.gated && old != nil {
		found = t.policies.Gates.JudgeAt(t.path("spec"), &t.UserInfo, spec, &old.Spec).Findings
	}
	if t.policies.Tolerations.Len() == 0 {
		return found, nil
	}
	judged := &tolerationReview{request: t.request, subject: template.value, in: toleration.Input{
		DefaultSeconds: &t.DefaultSeconds, FromDaemonSetController: t.daemons, HostNetwork: spec.HostNetwork,
	}}
	violations, err := judged.judge(ctx, toleration.Asked{Path: t.path("spec", "tolerations"), New: spec.Tolerations, Old: tolerationsOf(old)})
	if err != nil {
		return nil, err
	}
	found = append(found, violations...)
	// A template that newly puts its pods on a node past the scheduler. The pods are judged when
	// they are made; here the author of the template gets to know, and a revision is not written
	// by its author.
	if t.revision || spec.NodeName == "" || old != nil && old.Spec.NodeName == spec.NodeName || t.isScheduler() {
		return found, nil
	}
	violations, err = judged.judgeNode(ctx, spec.NodeName, t.path("spec", "nodeName"), spec.Tolerations)
	return append(found, violations...), err
}

func (t *templateReview) path(names ...string) *field.Path {
	return field.NewPath(t.at[0], t.at[1:]...).Child(names[0], names[1:]...)
}

// read returns the template of a workload. One that is not there is empty.
func (t *templateReview) read(f *review.Fields, v review.Value) *podFields {
	if t.revision {
		return templateWithin(v, t.at)
	}
	return readPod(f, f.At(v, t.at...))
}

// templateWithin returns the template at a place in data that may be no template: it is empty then.
func templateWithin(v review.Value, at []string) *podFields {
	var f review.Fields
	template := readPod(&f, f.At(v, at...))
	if f.Err() != nil {
		return &podFields{}
	}
	return template
}

// missingForDaemons warns of tolerations that PlacementPolicies would add to the pods of a
// DaemonSet and that its template, which was old, lacks. The DaemonSet controller makes pods
// for the nodes whose taints the template tolerates, so no pod is made that could get them.
func (t *templateReview) missingForDaemons(ctx context.Context, template, old *podFields) []string {
	if t.policies.Placement.Len() == 0 ||
		old != nil && equality.Semantic.DeepEqual(old.Spec.Tolerations, template.Spec.Tolerations) {
		return nil
	}
	pod := placedPodWithin(template.value)
	if pod == nil {
		return nil
	}
	matching, err := t.placementOfPod(ctx, pod)
	if err != nil || matching.Empty() {
		return nil // Nothing is refused for a warning.
	}
	additions := matching.GivePod(placement.Pod{Spec: &pod.Spec, FromDaemonSetController: true})
	var warnings []string
	for _, added := range additions.Tolerations {
		text := added.Key
		if added.Value != "" {
			text += "=" + added.Value
		}
		if added.Effect != "" {
			text += ":" + string(added.Effect)
		}
		warnings = append(warnings, fmt.Sprintf(
			"%s: lacks the toleration of %s that a PlacementPolicy gives to pods here: the DaemonSet controller makes no pod for a node with such a taint unless the template tolerates it; add it to the template",
			t.path("spec", "tolerations"), policy.Short(text, policy.MaxKeyLength+policy.Value)))
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
	for i, t := range tolerations {
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
