package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/toleration"
)

// byPolicies returns what policies have against the claim. What Kubernetes makes from
// a template has the tolerations of the template, which was judged when a user wrote
// it. For is whom Kubernetes makes it for, or nil.
func (j *claimJudge) byPolicies(ctx context.Context, policies *policyset.Set, req *admission.Request, current, old []requestFields, madeFor *metav1.OwnerReference) ([]policy.Finding, error) {
	var found []policy.Finding
	if req.Operation == admissionv1.Create {
		var err error
		if found, err = j.placement.claimFindings(ctx, policies, req, j.template); err != nil {
			return nil, err
		}
	}
	subject, err := j.claim(req.Object.Raw)
	if err != nil {
		return nil, err
	}
	given, marked, err := j.given(ctx, policies, req, madeFor != nil)
	if err != nil {
		return nil, err
	}
	found = append(found, marked...)
	h := j.tolerating.hear(policies.Tolerations, req, subject, toleration.Input{Claim: subject, AddedDevices: given})
	judged, err := h.judge(ctx, j.asked(current, old)...)
	if err != nil || len(judged) == 0 || madeFor == nil {
		return append(found, judged...), err
	}
	old, err = j.templateOf(ctx, req, madeFor)
	if err != nil {
		return nil, err
	}
	judged, err = h.judge(ctx, j.asked(current, old)...)
	return append(found, judged...), err
}

// given returns the windows that a claim has which is created, and what is wrong with what
// the request says of them. The mark of what Kubernetes makes from a template is that of
// the template, which was judged by the policies of then.
func (j *claimJudge) given(ctx context.Context, policies *policyset.Set, req *admission.Request, made bool) ([]resourcev1.DeviceToleration, []policy.Finding, error) {
	if req.Operation != admissionv1.Create {
		if j.template {
			return nil, nil, nil
		}
		found, err := remarked(req)
		return nil, found, err
	}
	given, found, err := j.windows.taken(ctx, policies, req, v1alpha1.TaintTargetDevice, j.template)
	if made {
		found = nil
	}
	return deviceWindows(given), found, err
}

// claim returns the claim, or the one in the template, with metadata and spec.
func (j *claimJudge) claim(raw []byte) (json.RawMessage, error) {
	if !j.template {
		return raw, nil
	}
	claim := json.RawMessage("{}")
	if err := findMembers(raw, member{"spec", &claim}); err != nil {
		return nil, &badReviewError{fmt.Errorf("decode claim template: %w", err)}
	}
	return claim, nil
}

// asked lists what each request tolerates, beside what it tolerated before.
func (j *claimJudge) asked(current, old []requestFields) []toleration.Asked {
	var asked []toleration.Asked
	for i := range current {
		var before requestFields
		if i < len(old) {
			before = old[i]
		}
		path := j.path().Index(i)
		if now := current[i].Exactly; len(now.Tolerations) > 0 {
			asked = append(asked, toleration.Asked{
				Path: path.Child("exactly", "tolerations"), Class: now.Class,
				Devices: now.Tolerations, OldDevices: toleratedAlike(now, before.Exactly),
			})
		}
		for k, now := range current[i].FirstAvailable {
			if len(now.Tolerations) == 0 {
				continue
			}
			var same subrequestFields
			if k < len(before.FirstAvailable) {
				same = before.FirstAvailable[k]
			}
			asked = append(asked, toleration.Asked{
				Path: path.Child("firstAvailable").Index(k).Child("tolerations"), Class: now.Class,
				Devices: now.Tolerations, OldDevices: toleratedAlike(now, same),
			})
		}
	}
	return asked
}

// toleratedAlike returns what a request tolerated before, if it is for the same class
// of devices: a toleration is granted for a class.
func toleratedAlike(now, before subrequestFields) []resourcev1.DeviceToleration {
	if now.Class != before.Class {
		return nil
	}
	return before.Tolerations
}

// templateOf returns the requests of the template that Kubernetes makes the claim from.
// The claim names what it is for by an annotation, and the live owner, which is the one
// with the UID in the reference, names the template. What cannot be found gives
// nothing.
func (j *claimJudge) templateOf(ctx context.Context, req *admission.Request, owner *metav1.OwnerReference) ([]requestFields, error) {
	name, err := annotation(req.Object.Raw, resourcev1.PodResourceClaimAnnotation)
	if err != nil {
		return nil, err
	}
	var template string
	if isPod(owner) {
		template, err = j.podTemplate(ctx, req.Namespace, owner, name)
	} else {
		var templates map[string]string
		templates, err = j.live.podGroupTemplates(ctx, req.Namespace, owner.APIVersion, owner.Name, owner.UID)
		template = templates[name]
	}
	if err != nil || template == "" {
		return nil, err
	}
	requests, err := j.live.claimTemplate(ctx, req.Namespace, template)
	return fieldsOf(requests), err
}

func (j *claimJudge) podTemplate(ctx context.Context, namespace string, owner *metav1.OwnerReference, claim string) (string, error) {
	pod, err := j.live.pod(ctx, namespace, owner.Name)
	if err != nil || pod == nil || pod.UID != owner.UID {
		return "", err
	}
	return templateNamed(pod, claim), nil
}

func templateNamed(pod *corev1.Pod, claim string) string {
	for i := range pod.Spec.ResourceClaims {
		if c := &pod.Spec.ResourceClaims[i]; c.Name == claim && c.ResourceClaimTemplateName != nil {
			return *c.ResourceClaimTemplateName
		}
	}
	return ""
}

func annotation(raw []byte, key string) (string, error) {
	var metadata, annotations, value json.RawMessage
	err := errors.Join(
		findMembers(raw, member{"metadata", &metadata}),
		findMembers(metadata, member{"annotations", &annotations}),
		findMembers(annotations, member{key, &value}),
	)
	if err != nil {
		return "", &badReviewError{fmt.Errorf("decode object: %w", err)}
	}
	text, err := decodeString(value)
	if err != nil {
		return "", &badReviewError{fmt.Errorf("decode annotation %s: %w", key, err)}
	}
	return text, nil
}

// fieldsOf returns what admission looks at of requests.
func fieldsOf(requests []resourcev1.DeviceRequest) []requestFields {
	fields := make([]requestFields, len(requests))
	for i := range requests {
		if exactly := requests[i].Exactly; exactly != nil {
			fields[i].Exactly = subrequestFields{exactly.DeviceClassName, exactly.Tolerations}
		}
		for k := range requests[i].FirstAvailable {
			sub := &requests[i].FirstAvailable[k]
			fields[i].FirstAvailable = append(fields[i].FirstAvailable, subrequestFields{sub.DeviceClassName, sub.Tolerations})
		}
	}
	return fields
}
