package check

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/toleration"
)

// Judge judges what stands. It is not safe for concurrent use.
type Judge struct {
	set      *toleration.Set
	policies map[string]*v1alpha1.TolerationPolicySpec
	defaults toleration.DefaultSeconds
	// Namespaces are those that there are, and Added the tolerations that RuntimeClasses
	// bring. Both are to be there before anything is judged.
	Namespaces map[string]*corev1.Namespace
	Added      []corev1.Toleration

	// verdicts are those of subjects for which the policies say the same.
	verdicts map[string][]toleration.Violation
}

// mostVerdicts bounds what is remembered: objects made from one template come one after the
// other, and in few clusters there are more kinds of them.
const mostVerdicts = 10_000

// NewExisting returns a judge by policies that are valid. Defaults are those of the API server.
func NewExisting(policies []v1alpha1.TolerationPolicy, defaults toleration.DefaultSeconds) *Judge {
	j := &Judge{
		set: toleration.Compile(policies), policies: map[string]*v1alpha1.TolerationPolicySpec{}, defaults: defaults,
		Namespaces: map[string]*corev1.Namespace{}, verdicts: map[string][]toleration.Violation{},
	}
	for i := range policies {
		j.policies[policies[i].Name] = &policies[i].Spec
	}
	return j
}

// subject is what is judged of an object.
type subject struct {
	namespace   string
	labels      map[string]string
	account     string
	daemon      bool
	hostNetwork bool
	tolerations []corev1.Toleration
	requests    []toleration.Asked
	window      string
	// path is where the tolerations of pods and templates stand.
	path string
}

// Pod judges a pod. What has ended, or is about to, or runs because of a file on its node,
// passes.
func (j *Judge) Pod(ctx context.Context, pod *corev1.Pod) (Result, error) {
	result := resultOf("v1", "Pod", pod)
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	if mirror || pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return result, nil
	}
	owner := metav1.GetControllerOf(pod)
	s := ofPodSpec(&pod.ObjectMeta, &pod.Spec, pod.Namespace, "spec")
	s.daemon, s.window = owner != nil && owner.Kind == "DaemonSet", pod.Annotations[v1alpha1.AnnotationWindow]
	return j.judged(ctx, result, s)
}

// Template judges the template in a workload; at is where its spec stands.
func (j *Judge) Template(ctx context.Context, kind ExistingKind, object metav1.Object, template *corev1.PodTemplateSpec) (Result, error) {
	result := resultOf(kind.APIVersion, kind.Name, object)
	if template == nil {
		return result, nil
	}
	s := ofPodSpec(&template.ObjectMeta, &template.Spec, object.GetNamespace(), kind.At)
	s.daemon = kind.Name == "DaemonSet"
	return j.judged(ctx, result, s)
}

// ExistingKind is a kind of workload.
type ExistingKind struct {
	APIVersion, Name string
	// At is the path of the spec of its pods.
	At string
}

// Claim judges a claim, or what a template of claims has them ask for. Annotations are those
// that the claim has, or will have.
func (j *Judge) Claim(ctx context.Context, kind string, object metav1.Object, claim metav1.ObjectMeta, spec *resourcev1.ResourceClaimSpec) (Result, error) {
	path := field.NewPath("spec")
	if kind == "ResourceClaimTemplate" {
		path = path.Child("spec")
	}
	s := &subject{
		namespace: object.GetNamespace(), labels: claim.Labels, window: claim.Annotations[v1alpha1.AnnotationWindow],
		requests: requestsOf(spec, path.Child("devices", "requests")),
	}
	return j.judged(ctx, resultOf(resourcev1.SchemeGroupVersion.String(), kind, object), s)
}

func ofPodSpec(meta *metav1.ObjectMeta, spec *corev1.PodSpec, namespace, path string) *subject {
	return &subject{
		namespace: namespace, labels: meta.Labels, account: cmp.Or(spec.ServiceAccountName, "default"),
		hostNetwork: spec.HostNetwork, tolerations: spec.Tolerations, path: path + ".",
	}
}

// requestsOf lists what the requests of a claim tolerate.
func requestsOf(spec *resourcev1.ResourceClaimSpec, path *field.Path) []toleration.Asked {
	var asked []toleration.Asked
	for i := range spec.Devices.Requests {
		request, at := &spec.Devices.Requests[i], path.Index(i)
		if exactly := request.Exactly; exactly != nil && len(exactly.Tolerations) > 0 {
			asked = append(asked, toleration.Asked{
				Path: at.Child("exactly", "tolerations"), Class: exactly.DeviceClassName, Devices: exactly.Tolerations,
			})
		}
		for k := range request.FirstAvailable {
			if sub := &request.FirstAvailable[k]; len(sub.Tolerations) > 0 {
				asked = append(asked, toleration.Asked{
					Path: at.Child("firstAvailable").Index(k).Child("tolerations"), Class: sub.DeviceClassName, Devices: sub.Tolerations,
				})
			}
		}
	}
	return asked
}

func resultOf(apiVersion, kind string, object metav1.Object) Result {
	return Result{
		APIVersion: apiVersion, Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName(), Verdict: Allowed,
	}
}

// judged fills in what the policies have against a subject.
func (j *Judge) judged(ctx context.Context, result Result, s *subject) (Result, error) {
	if len(s.tolerations)+len(s.requests) == 0 || j.set.Len() == 0 {
		return result, nil
	}
	namespace := j.Namespaces[s.namespace]
	if namespace == nil {
		return result, nil // It is gone, and what is in it will be.
	}
	violations, err := j.violations(ctx, s, namespace)
	if err != nil {
		return result, fmt.Errorf("judge %s: %w", result.String(), err)
	}
	for _, v := range violations {
		finding := j.finding(&v, s.path)
		result.Findings = append(result.Findings, finding)
		switch {
		case finding.Denies():
			result.Verdict = Denied
		case finding.Warns() && result.Verdict == Allowed:
			result.Verdict = Warned
		}
	}
	return result, nil
}

func (j *Judge) violations(ctx context.Context, s *subject, namespace *corev1.Namespace) ([]toleration.Violation, error) {
	key, err := j.keyOf(s)
	if err != nil {
		return nil, err
	}
	if known, ok := j.verdicts[key]; ok {
		return known, nil
	}
	nodes, devices := windowsOf(s.window)
	found, err := j.set.Audit(ctx, toleration.AuditInput{
		Namespace: namespace, Labels: s.labels, ServiceAccount: s.account,
		Tolerations: s.tolerations, Requests: s.requests, DefaultSeconds: &j.defaults,
		OfDaemonSet: s.daemon, HostNetwork: s.hostNetwork,
		Added: slices.Concat(j.Added, nodes), AddedDevices: devices,
	})
	if err != nil {
		return nil, err
	}
	if len(j.verdicts) >= mostVerdicts {
		clear(j.verdicts)
	}
	j.verdicts[key] = found
	return found, nil
}

// keyOf returns what tells subjects apart for which the policies may say something else.
func (j *Judge) keyOf(s *subject) (string, error) {
	var labels []string
	if j.set.AuditNeedsLabels() {
		for _, name := range slices.Sorted(maps.Keys(s.labels)) {
			labels = append(labels, name+"="+s.labels[name])
		}
	}
	paths := make([]string, 0, len(s.requests))
	for i := range s.requests {
		paths = append(paths, s.requests[i].Path.String())
	}
	key, err := json.Marshal([]any{s.namespace, labels, s.account, s.daemon, s.hostNetwork, s.tolerations, paths, classed(s.requests), s.window})
	if err != nil {
		return "", fmt.Errorf("encode tolerations: %w", err)
	}
	return string(key), nil
}

// classed returns what of requests is judged.
func classed(requests []toleration.Asked) []any {
	out := make([]any, 0, len(requests))
	for i := range requests {
		out = append(out, requests[i].Class, requests[i].Devices)
	}
	return out
}

// windowsOf returns the tolerations that Tollgate gave in mode Window, which are nobody's
// choice.
func windowsOf(annotation string) ([]corev1.Toleration, []resourcev1.DeviceToleration) {
	var nodes []corev1.Toleration
	var devices []resourcev1.DeviceToleration
	for _, w := range v1alpha1.ParseWindow(annotation) {
		nodes = append(nodes, corev1.Toleration{
			Key: w.Key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(w.Seconds),
		})
		devices = append(devices, resourcev1.DeviceToleration{
			Key: w.Key, Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoExecute, TolerationSeconds: new(w.Seconds),
		})
	}
	return nodes, devices
}

func (j *Judge) finding(v *toleration.Violation, path string) Finding {
	spec := j.policies[v.Policy]
	actions := spec.ValidationActions
	if len(actions) == 0 {
		actions = []v1alpha1.ValidationAction{v1alpha1.Deny}
	}
	at := v.Field
	if strings.HasPrefix(at, "tolerations[") {
		at = path + at
	}
	return Finding{
		Policy: "TolerationPolicy/" + v.Policy, Reason: policy.TolerationNotGranted, Actions: actions,
		Field: at, Value: v.Toleration, Problem: "no grant of the policy allows it", Remedy: spec.Message,
	}
}
