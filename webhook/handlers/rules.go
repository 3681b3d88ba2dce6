package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/policy/validation"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// ruleSpec returns the spec of a rule. Its fields are in all versions of the API that have rules,
// v1alpha3, v1beta2 and v1; the selector of v1alpha3 has more of them up to Kubernetes 1.34 (VS-03).
func ruleSpec(f *review.Fields, v review.Value) *resourcev1.DeviceTaintRuleSpec {
	spec := &resourcev1.DeviceTaintRuleSpec{}
	f.Into(spec, v, "spec")
	return spec
}

// unknownFields are the unknown fields of the selector of a rule: those that v1alpha3 had up to
// Kubernetes 1.34, or those of a later Kubernetes. To Tollgate a rule with one selects
// nothing.
type unknownFields struct {
	// names are those of the fields, sorted.
	names []string
	// fresh says that the selector is new. One that stood there is not judged again, so
	// that the effect of such a rule can still be taken from it.
	fresh bool
	// left says that the selector is another one and had such fields before.
	left bool
}

// unknownFields returns the unknown fields in the selector of the rule of a request.
func (r request) unknownFields() unknownFields {
	selector, old := readBoth(r, rawSelector)
	// Both were written by one API server.
	fresh := r.Operation != admissionv1.Update || !maps.EqualFunc(selector, old, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) })
	return unknownFields{names: unknownNames(selector), fresh: fresh, left: fresh && len(unknownNames(old)) > 0}
}

// unknownNames returns the names of the fields that are not known, sorted.
func unknownNames(selector map[string]json.RawMessage) []string {
	for _, known := range []string{"driver", "pool", "device"} {
		delete(selector, known)
	}
	return slices.Sorted(maps.Keys(selector))
}

// rawSelector returns the fields of the selector of a rule.
func rawSelector(f *review.Fields, v review.Value) (selector map[string]json.RawMessage) {
	f.Into(&selector, v, "spec", "deviceSelector")
	return selector
}

// narrowerWarning is the warning that a preview or a limit used only the known fields of a
// selector. The unknown fields can only select fewer devices.
const narrowerWarning = "not all fields of spec.deviceSelector are known to Tollgate: by the others it may be fewer"

// unsupportedWarning is the warning about a selector with unknown fields.
func unsupportedWarning(names []string) string {
	return "spec.deviceSelector has fields that this version of Tollgate does not know (" + strings.Join(names, ", ") +
		"): to Tollgate the rule selects nothing, and nobody is evicted for it"
}

// obeysRules reports whether Tollgate acts on rules. Elsewhere it is Kubernetes that has to
// understand the selector.
func (r request) obeysRules() bool { return r.DeviceTaints != nil && !r.WithoutDeviceTaintRules }

// mutateRule writes into DeviceTaintRules since when their effect counts.
func (r request) mutateRule(context.Context) (jsonPatch, error) {
	spec, old := readWrite(r, ruleSpec)
	if spec == nil {
		return nil, nil
	}
	var before *resourcev1.DeviceTaint
	if old != nil {
		before = &old.Taint
	}
	var out jsonPatch
	if at, ok := validation.StampRule(&spec.Taint, before, r.ServerClock.Now()); ok {
		out.stamp("/spec/taint", spec.Taint.Key, at)
	}
	return out, nil
}

// validateRule judges a write of a DeviceTaintRule.
func (r request) validateRule(ctx context.Context) (Result, error) {
	spec, old := readWrite(r, ruleSpec)
	change := taint.RuleChange{New: spec, Old: old}
	var found []policy.Finding
	var warnings []string
	var unknown unknownFields
	if spec != nil {
		unknown = r.unknownFields()
		change.Reselected = unknown.fresh && old != nil
		found, warnings = r.ruleFindings(spec, old, &unknown)
	}
	metadata, before := readWrite(r, readRuleMetadata)
	if isCollected(r.UserInfo.Username, metadata, before) || r.isSelf() {
		return decided(found, warnings, nil), nil
	}
	change.Adopted = metadata != nil && before != nil && hasOthers(metadata.OwnerReferences, before.OwnerReferences)
	in := r.taintInput(change.Writes())
	in.Rule = &change
	found = append(found, reservedFindings(r.UserInfo.Username, metadata, before)...)
	return r.enforce(ctx, in, found, warnings, func() (previewed, error) {
		return r.previewRule(ctx, in, old, spec, &unknown)
	})
}

// ruleFindings holds a rule against the rules of Kubernetes itself. Of half a selector there are no
// warnings.
func (r request) ruleFindings(spec, old *resourcev1.DeviceTaintRuleSpec, unknown *unknownFields) ([]policy.Finding, []string) {
	errs := validation.ValidateRule(spec, old)
	if len(unknown.names) == 0 {
		return findings(errs), validation.RuleWarnings(spec, old, r.ServerClock.Now())
	}
	// Later versions of the API took away the fields that v1alpha3 had.
	former := r.Resource.Version == resourcev1alpha3.SchemeGroupVersion.Version
	if unknown.fresh && former && r.obeysRules() {
		errs = append(errs, validation.UnsupportedSelector(unknown.names)...)
	}
	return findings(errs), nil
}

// previewRule returns the preview of a rule whose selector may have unknown fields.
func (r request) previewRule(ctx context.Context, in taint.Input, old, spec *resourcev1.DeviceTaintRuleSpec, unknown *unknownFields) (previewed, error) {
	if unknown.left {
		// It selected less than it seems, and maybe no device that it selects now.
		before := *old
		before.DeviceSelector = nil
		old = &before
	}
	seen, err := r.Preview.rule(ctx, r, in, old, spec)
	switch {
	case len(unknown.names) == 0 || !unknown.fresh && len(seen.warnings) == 0:
	case r.obeysRules():
		// The limits went by the rest of the selector all the same: another version of
		// Tollgate, or Kubernetes, may know all of it.
		seen.warnings = []string{unsupportedWarning(unknown.names)}
	case len(seen.warnings) > 0:
		seen.warnings = append(seen.warnings, narrowerWarning)
	}
	return seen, err
}
