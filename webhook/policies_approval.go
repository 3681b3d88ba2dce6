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
	taint := spec.Child("taint")
	errs = append(errs, metav1validation.ValidateLabelName(a.Spec.Taint.Key, taint.Child("key"))...)
	if a.Spec.Taint.Effect != corev1.TaintEffectNoExecute {
		errs = append(errs, field.NotSupported(taint.Child("effect"), a.Spec.Taint.Effect, []corev1.TaintEffect{corev1.TaintEffectNoExecute}))
	}
	if a.Spec.MaxPods < 1 {
		errs = append(errs, field.Invalid(spec.Child("maxPods"), a.Spec.MaxPods, "must be at least 1"))
	}
	if d := a.Spec.ExpiresAfter.Duration; d <= 0 || d > longest {
		errs = append(errs, field.Invalid(spec.Child("expiresAfter"), d.String(), "must be more than 0s, at most 168h"))
	}
	return errs
}

// validateApproved returns what is wrong with the name of what carries the taint.
func validateApproved(in *v1alpha1.EvictionApprovalSpec, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	named := 0
	for _, of := range []struct{ field, name string }{
		{"node", in.Node}, {"deviceTaintRule", in.DeviceTaintRule}, {"resourceSlicePatch", in.ResourceSlicePatch},
	} {
		if of.name != "" {
			named++
			errs = append(errs, objectName(of.name, spec.Child(of.field))...)
		}
	}
	if named != 1 {
		return field.ErrorList{field.Required(spec.Child("node"), "name exactly one of node, deviceTaintRule and resourceSlicePatch")}
	}
	return errs
}

func objectName(name string, path *field.Path) field.ErrorList {
	if reasons := validation.IsDNS1123Subdomain(name); len(reasons) > 0 {
		return field.ErrorList{field.Invalid(path, name, strings.Join(reasons, "; "))}
	}
	return nil
}
