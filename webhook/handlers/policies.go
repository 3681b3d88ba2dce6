package handlers

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/policy/gate"
	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/policy/toleration"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// own is an object of our own API.
type own[T any] interface {
	*T
	client.Object
}

// validateOwn returns the handler that refuses objects of our own API that are not valid; warn is
// nil for no warnings. A write to an object that is on its way out, or beside its spec, is not
// judged: a policy that became invalid with a change of versions must still be labelled, finalized
// and deleted.
func validateOwn[T any, P own[T]](r *reviewer, spec func(P) any, validate func(P) field.ErrorList, warn func(P) []string) Handler {
	return r.handler(func(req request, _ context.Context) (Result, error) {
		now, before := readBoth(req, readWhole[T])
		object, old := P(now), P(before)
		if old != nil && (object.GetDeletionTimestamp() != nil || equality.Semantic.DeepEqual(spec(object), spec(old))) {
			return allowed(), nil
		}
		result := decided(findings(validate(object)), nil, nil)
		if warn != nil && result.Verdict == policy.Allowed {
			result.Warnings = warn(object)
		}
		return result, nil
	})
}

// formerRelease is the annotation that released a breaker before EvictionApprovals did. It would
// do nothing, and is refused.
const formerRelease = "tollgate.dev/release-breaker"

// readWhole reads an object with all of its fields.
func readWhole[T any](f *review.Fields, v review.Value) *T {
	object := new(T)
	f.Whole(object, v)
	return object
}

// validatingOwn returns the handlers of our own API but that of ResourceSlicePatches. They warn of
// policies that are legal and probably not meant, and of the pods that registered taints evict by
// a preview.
func (r *reviewer) validatingOwn() map[Resource]Handler {
	return map[Resource]Handler{
		tolerationPolicyKind: validateOwn(r, func(p *v1alpha1.TolerationPolicy) any { return p.Spec }, toleration.ValidatePolicy, toleration.Warnings),
		placementPolicyKind: validateOwn(r, func(p *v1alpha1.PlacementPolicy) any { return p.Spec }, placement.ValidatePolicy, func(p *v1alpha1.PlacementPolicy) []string {
			warnings := placement.Warnings(p)
			if _, taints := placement.Guard(p); taints != nil {
				warnings = append(warnings, r.Preview.registration(taints)...)
			}
			return warnings
		}),
		taintPolicyKind: validateOwn(r, func(p *v1alpha1.TaintPolicy) any { return p.Spec }, taint.ValidatePolicy, func(p *v1alpha1.TaintPolicy) []string {
			return append(taint.Warnings(p), r.Preview.registration(p)...)
		}),
		gatePolicyKind: validateOwn(r, func(p *v1alpha1.GatePolicy) any { return p.Spec }, gate.ValidatePolicy, nil),
		evictionPolicyKind: validateOwn(
			r,
			func(p *v1alpha1.EvictionPolicy) any { return []any{p.Spec, p.Annotations[formerRelease]} },
			func(p *v1alpha1.EvictionPolicy) field.ErrorList {
				errs := eviction.ValidatePolicy(p)
				if _, ok := p.Annotations[formerRelease]; ok {
					errs = append(errs, field.Forbidden(field.NewPath("metadata", "annotations").Key(formerRelease),
						"releases no breaker any more: create an EvictionApproval with spec.evictionPolicy: "+p.Name+" and spec.maxPods"))
				}
				return errs
			}, nil),
		approvalKind: validateOwn(r, func(a *v1alpha1.EvictionApproval) any { return a.Spec }, validateApproval, nil),
	}
}

// validateApproval returns the errors of an approval. The schema has them too, and is not
// trusted alone: an approval lets pods go.
func validateApproval(a *v1alpha1.EvictionApproval) field.ErrorList {
	const longest = 7 * 24 * time.Hour
	in, spec := &a.Spec, field.NewPath("spec")
	var errs field.ErrorList
	named := 0
	for _, of := range []struct{ field, name string }{
		{"node", in.Node},
		{"deviceTaintRule", in.DeviceTaintRule},
		{"resourceSlicePatch", in.ResourceSlicePatch},
		{"evictionPolicy", in.EvictionPolicy},
	} {
		if of.name == "" {
			continue
		}
		named++
		if reasons := validation.IsDNS1123Subdomain(of.name); len(reasons) > 0 {
			errs = append(errs, field.Invalid(spec.Child(of.field), of.name, strings.Join(reasons, "; ")))
		}
	}
	if named != 1 {
		errs = field.ErrorList{field.Required(spec.Child("node"), "name exactly one of node, deviceTaintRule, resourceSlicePatch and evictionPolicy")}
	}
	switch path := spec.Child("taint"); {
	case in.EvictionPolicy == "":
		errs = append(errs, metav1validation.ValidateLabelName(in.Taint.Key, path.Child("key"))...)
		if in.Taint.Effect != corev1.TaintEffectNoExecute {
			errs = append(errs, field.NotSupported(path.Child("effect"), in.Taint.Effect, []corev1.TaintEffect{corev1.TaintEffectNoExecute}))
		}
	case in.Taint != (v1alpha1.ApprovedTaint{}):
		errs = append(errs, field.Forbidden(path, "an approval with evictionPolicy is for all taints: leave taint out"))
	}
	if in.MaxPods < 1 {
		errs = append(errs, field.Invalid(spec.Child("maxPods"), in.MaxPods, "must be at least 1"))
	}
	if d := in.ExpiresAfter.Duration; d <= 0 || d > longest {
		errs = append(errs, field.Invalid(spec.Child("expiresAfter"), d.String(), "must be more than 0s, at most 168h"))
	}
	return errs
}
