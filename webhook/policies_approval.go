package webhook

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// validateApproval returns what is wrong with an approval. The schema says it too, and
// is not all there is to trust: an approval lets pods go.
func validateApproval(a *v1alpha1.EvictionApproval) field.ErrorList {
	const longest = 7 * 24 * time.Hour
	spec := field.NewPath("spec")
	var errs field.ErrorList
	errs = append(errs, validateApproved(&a.Spec, spec)...)
	errs = append(errs, validateApprovedTaint(&a.Spec, spec.Child("taint"))...)
	if a.Spec.MaxPods < 1 {
		errs = append(errs, field.Invalid(spec.Child("maxPods"), a.Spec.MaxPods, "must be at least 1"))
	}
	if d := a.Spec.ExpiresAfter.Duration; d <= 0 || d > longest {
		errs = append(errs, field.Invalid(spec.Child("expiresAfter"), d.String(), "must be more than 0s, at most 168h"))
	}
	return errs
}

// validateApprovedTaint returns the errors of the taint, which an approval for an
// EvictionPolicy does not have.
func validateApprovedTaint(in *v1alpha1.EvictionApprovalSpec, path *field.Path) field.ErrorList {
	if in.EvictionPolicy != "" {
		if in.Taint != (v1alpha1.ApprovedTaint{}) {
			return field.ErrorList{field.Forbidden(path, "an approval with evictionPolicy is for all taints: leave taint out")}
		}
		return nil
	}
	errs := metav1validation.ValidateLabelName(in.Taint.Key, path.Child("key"))
	if in.Taint.Effect != corev1.TaintEffectNoExecute {
		errs = append(errs, field.NotSupported(path.Child("effect"), in.Taint.Effect, []corev1.TaintEffect{corev1.TaintEffectNoExecute}))
	}
	return errs
}

// validateApproved returns the errors of the name of what the approval is for.
func validateApproved(in *v1alpha1.EvictionApprovalSpec, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	named := 0
	for _, of := range []struct{ field, name string }{
		{"node", in.Node},
		{"deviceTaintRule", in.DeviceTaintRule},
		{"resourceSlicePatch", in.ResourceSlicePatch},
		{"evictionPolicy", in.EvictionPolicy},
	} {
		if of.name != "" {
			named++
			errs = append(errs, objectName(of.name, spec.Child(of.field))...)
		}
	}
	if named != 1 {
		return field.ErrorList{field.Required(spec.Child("node"), "name exactly one of node, deviceTaintRule, resourceSlicePatch and evictionPolicy")}
	}
	return errs
}

func objectName(name string, path *field.Path) field.ErrorList {
	if reasons := validation.IsDNS1123Subdomain(name); len(reasons) > 0 {
		return field.ErrorList{field.Invalid(path, name, strings.Join(reasons, "; "))}
	}
	return nil
}
