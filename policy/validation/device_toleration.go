package validation

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/tollgate-dev/tollgate/policy"
)

// ValidateTolerations returns the errors of the tolerations of a ResourceClaim
// or of a ResourceClaimTemplate; path is that of the list of requests. Requests that
// are as they were in old are not judged again: the spec is immutable, so refusing
// an update would only keep its metadata from being written.
//
// Beyond the checks of the API server (AV-09) there are two rules that it only documents.
// Their violations are returned as documented: there may be at most 16 tolerations
// in a request (AV-11), and an empty key needs the operator Exists, because with
// Equal the scheduler would take it for every key that has the value (AV-12), which
// is never meant.
//
// An unknown operator or effect is left to the API server, which may be newer.
func ValidateTolerations(requests, old []resourcev1.DeviceRequest, path *field.Path) (errs, documented field.ErrorList) {
	if equality.Semantic.DeepEqual(requests, old) {
		return nil, nil
	}
	for path, tolerations := range tolerationLists(requests, path) {
		if len(tolerations) > resourcev1.DeviceTolerationsMaxLength {
			documented = append(documented, field.TooMany(path, len(tolerations), resourcev1.DeviceTolerationsMaxLength))
			continue
		}
		errs = append(errs, policy.ValidateEach(tolerations, len(tolerations), path, validateToleration)...)
		documented = append(documented, policy.ValidateEach(tolerations, len(tolerations), path, validateWildcard)...)
	}
	return errs, documented
}

func validateWildcard(t *resourcev1.DeviceToleration, path *field.Path) field.ErrorList {
	if t.Key != "" || t.Operator != resourcev1.DeviceTolerationOpEqual && t.Operator != "" {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("operator"), t.Operator, "without a key the operator must be Exists, which tolerates every taint")}
}

func validateToleration(t *resourcev1.DeviceToleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Key != "" {
		errs = append(errs, metav1validation.ValidateLabelName(t.Key, path.Child("key"))...)
	}
	switch t.Operator {
	case resourcev1.DeviceTolerationOpExists:
		if t.Value != "" {
			errs = append(errs, field.Invalid(path.Child("value"), t.Value, "operator Exists takes no value"))
		}
	case resourcev1.DeviceTolerationOpEqual, "": // Equal is the default
		errs = append(errs, validateLabelValue(t.Value, path.Child("value"))...)
	}
	return errs
}

// ValidateKnown returns the errors of one toleration, those of rules that are only documented and
// an operator and an effect that this version does not know among them: Tollgate itself adds no
// toleration that it does not understand.
func ValidateKnown(t *resourcev1.DeviceToleration, path *field.Path) field.ErrorList {
	operators := []resourcev1.DeviceTolerationOperator{resourcev1.DeviceTolerationOpEqual, resourcev1.DeviceTolerationOpExists}
	return slices.Concat(
		validateToleration(t, path),
		validateWildcard(t, path),
		policy.ValidateEnum(cmp.Or(t.Operator, resourcev1.DeviceTolerationOpEqual), path.Child("operator"), operators),
		validateKnownEffect(t.Effect, path))
}

// tolerationLists returns the lists of tolerations of requests, and their paths (AV-10).
func tolerationLists(requests []resourcev1.DeviceRequest, path *field.Path) iter.Seq2[*field.Path, []resourcev1.DeviceToleration] {
	return func(yield func(*field.Path, []resourcev1.DeviceToleration) bool) {
		for i := range requests {
			at := path.Index(i)
			if !yield(at.Child("exactly", "tolerations"), ptr.Deref(requests[i].Exactly, resourcev1.ExactDeviceRequest{}).Tolerations) {
				return
			}
			for j := range requests[i].FirstAvailable {
				if !yield(at.Child("firstAvailable").Index(j).Child("tolerations"), requests[i].FirstAvailable[j].Tolerations) {
					return
				}
			}
		}
	}
}

// TolerationWarnings says which of the tolerations of a claim or of a template that is
// created, or had the requests old, are legal and probably not meant; path is that of
// the list of requests.
func TolerationWarnings(requests, old []resourcev1.DeviceRequest, path *field.Path) []string {
	if len(old) > 0 {
		return nil // the spec is immutable
	}
	var warned warnings
	for at, tolerations := range tolerationLists(requests, path) {
		for i := range tolerations {
			warned.add(at.Index(i).Child("tolerationSeconds"), secondsWarning(&tolerations[i]))
		}
	}
	return warned.texts
}

// secondsWarning is about seconds that do not count, which they do only for
// NoExecute (AV-12). A toleration of every effect tolerates NoExecute too.
func secondsWarning(t *resourcev1.DeviceToleration) string {
	switch {
	case t.TolerationSeconds == nil || t.Effect == resourcev1.DeviceTaintEffectNoExecute:
		return ""
	case t.Effect == "":
		return "is ignored without effect NoExecute: what has no effect tolerates every effect, for ever"
	default:
		return fmt.Sprintf("is ignored with effect %s: only tolerations with effect NoExecute end", t.Effect)
	}
}
