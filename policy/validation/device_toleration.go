package validation

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Request is what of a device request in a claim is judged.
type Request struct {
	// Exactly holds the tolerations of the request itself.
	Exactly []resourcev1.DeviceToleration
	// FirstAvailable holds those of each of its subrequests.
	FirstAvailable [][]resourcev1.DeviceToleration
}

// ValidateTolerations reports what is wrong with the tolerations of a ResourceClaim
// or of a ResourceClaimTemplate; path is that of the list of requests. Requests that
// are as they were in old are not judged again: the spec is immutable, so refusing
// an update would only keep its metadata from being written.
//
// Beyond what the API server checks (AV-09) there are two rules that it documents
// only, and what violates those is returned as documented: there may be at most 16
// to a request (AV-11), and an empty key needs the operator Exists, because with
// Equal the scheduler would take it for every key that has the value (AV-12), which
// nobody means.
//
// An operator or an effect that is not known here is left to the API server, which may
// be newer; ValidateKnown finds those.
func ValidateTolerations(requests, old []Request, path *field.Path) (errs, documented field.ErrorList) {
	if slices.EqualFunc(requests, old, sameRequest) {
		return nil, nil
	}
	for list := range lists(requests, path) {
		if len(list.tolerations) > resourcev1.DeviceTolerationsMaxLength {
			documented = append(documented, field.TooMany(list.path, len(list.tolerations), resourcev1.DeviceTolerationsMaxLength))
			continue
		}
		for i := range list.tolerations {
			t, at := &list.tolerations[i], list.path.Index(i)
			errs = append(errs, validateToleration(t, at)...)
			if t.Key == "" && (t.Operator == resourcev1.DeviceTolerationOpEqual || t.Operator == "") {
				documented = append(documented, field.Invalid(at.Child("operator"), t.Operator,
					"without a key the operator must be Exists, which tolerates every taint"))
			}
		}
	}
	return errs, documented
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

// ValidateKnown reports what of a toleration is not known here: Tollgate itself gives nobody
// what it does not understand.
func ValidateKnown(t *resourcev1.DeviceToleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	operators := []resourcev1.DeviceTolerationOperator{resourcev1.DeviceTolerationOpEqual, resourcev1.DeviceTolerationOpExists}
	if t.Operator != "" && !slices.Contains(operators, t.Operator) {
		errs = append(errs, field.NotSupported(path.Child("operator"), t.Operator, operators))
	}
	if t.Effect != "" && !isKnown(t.Effect) {
		errs = append(errs, field.NotSupported(path.Child("effect"), t.Effect, effects))
	}
	return errs
}

// list is a list of tolerations and where it stands.
type list struct {
	tolerations []resourcev1.DeviceToleration
	path        *field.Path
}

// lists returns the lists of tolerations of requests (AV-10).
func lists(requests []Request, path *field.Path) func(yield func(list) bool) {
	return func(yield func(list) bool) {
		for i := range requests {
			at := path.Index(i)
			if !yield(list{requests[i].Exactly, at.Child("exactly", "tolerations")}) {
				return
			}
			for j, tolerations := range requests[i].FirstAvailable {
				if !yield(list{tolerations, at.Child("firstAvailable").Index(j).Child("tolerations")}) {
					return
				}
			}
		}
	}
}

func sameRequest(a, b Request) bool {
	return slices.EqualFunc(a.Exactly, b.Exactly, sameToleration) &&
		slices.EqualFunc(a.FirstAvailable, b.FirstAvailable, func(a, b []resourcev1.DeviceToleration) bool {
			return slices.EqualFunc(a, b, sameToleration)
		})
}

func sameToleration(a, b resourcev1.DeviceToleration) bool {
	if (a.TolerationSeconds == nil) != (b.TolerationSeconds == nil) {
		return false
	}
	if a.TolerationSeconds != nil && *a.TolerationSeconds != *b.TolerationSeconds {
		return false
	}
	a.TolerationSeconds, b.TolerationSeconds = nil, nil
	return a == b
}
