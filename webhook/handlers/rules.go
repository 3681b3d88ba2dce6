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
func ruleSpec(v review.Value) (*resourcev1.DeviceTaintRuleSpec, error) {
	var f review.Fields
	spec := &resourcev1.DeviceTaintRuleSpec{}
	f.Into(spec, v, "spec")
	return spec, f.Err()
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
	// former says that they are those of v1alpha3, which later versions took away.
	former bool
}

// unknownFieldsOf returns the unknown fields in the selector of the rule of a request.
func unknownFieldsOf(req *review.Request) (unknown unknownFields, err error) {
	unknown.former = req.Resource.Version == resourcev1alpha3.SchemeGroupVersion.Version
	selector, err := rawSelector(req.New)
	if err != nil {
		return unknownFields{}, err
	}
	unknown.fresh = true
	if req.Operation == admissionv1.Update {
		old, err := rawSelector(req.Old)
		if err != nil {
			return unknownFields{}, err
		}
		// Both were written by one API server.
		unknown.fresh = !maps.EqualFunc(selector, old, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) })
		unknown.left = unknown.fresh && len(unknownNames(old)) > 0
	}
	unknown.names = unknownNames(selector)
	return unknown, nil
}

// unknownNames returns the names of the fields that are not known, sorted.
func unknownNames(selector map[string]json.RawMessage) []string {
	for _, known := range []string{"driver", "pool", "device"} {
		delete(selector, known)
	}
	return slices.Sorted(maps.Keys(selector))
}

// rawSelector returns the fields of the selector of a rule.
func rawSelector(v review.Value) (selector map[string]json.RawMessage, err error) {
	var f review.Fields
	f.Into(&selector, v, "spec", "deviceSelector")
	return selector, f.Err()
}

// narrowerWarning is the warning that a preview or a limit used only the known fields of a
// selector. The unknown fields can only select fewer devices.
const narrowerWarning = "not all fields of spec.deviceSelector are known to Tollgate: by the others it may be fewer"

// unsupportedWarning is the warning about a selector with unknown fields.
func unsupportedWarning(names []string) string {
	return "spec.deviceSelector has fields that this version of Tollgate does not know (" + strings.Join(names, ", ") +
		"): to Tollgate the rule selects nothing, and nobody is evicted for it"
}

// ruleHandler reviews DeviceTaintRules.
type ruleHandler struct{ *reviewer }

// obeyed reports whether Tollgate acts on rules. Elsewhere it is Kubernetes that has to understand
// the selector.
func (h *ruleHandler) obeyed() bool { return h.DeviceTaints != nil && !h.WithoutDeviceTaintRules }

// mutate writes into DeviceTaintRules since when their effect counts.
func (h *ruleHandler) mutate(_ context.Context, req *review.Request) (jsonPatch, error) {
	spec, old, err := decodeWrite(req, ruleSpec)
	if err != nil || spec == nil {
		return nil, err
	}
	var before *resourcev1.DeviceTaint
	if old != nil {
		before = &old.Taint
	}
	var out jsonPatch
	if at, ok := validation.StampRule(&spec.Taint, before, h.ServerClock.Now()); ok {
		out.stamp("/spec/taint", spec.Taint.Key, at)
	}
	return out, nil
}

// validate implements Handler.
func (h *ruleHandler) validate(ctx context.Context, req *review.Request) (Result, error) {
	spec, old, err := decodeWrite(req, ruleSpec)
	if err != nil {
		return Result{}, err
	}
	change := taint.RuleChange{New: spec, Old: old}
	var found []policy.Finding
	var warnings []string
	var unknown unknownFields
	if spec != nil {
		if unknown, err = unknownFieldsOf(req); err != nil {
			return Result{}, err
		}
		change.Reselected = unknown.fresh && old != nil
		found, warnings = h.rules(spec, old, &unknown)
	}
	metadata, before, err := decodeWrite(req, decodeRuleMetadata)
	if err != nil {
		return Result{}, err
	}
	if isCollected(req.UserInfo.Username, metadata, before) || h.isSelf(req) {
		return decided(policy.Decide(found), warnings, nil), nil
	}
	change.Adopted = metadata != nil && before != nil && hasOthers(metadata.OwnerReferences, before.OwnerReferences)
	policies, err := h.inForce()
	if err != nil {
		return Result{}, err
	}
	in := h.taintInput(req, change.Writes())
	in.Rule = &change
	found = append(found, reservedFindings(req.UserInfo.Username, metadata, before)...)
	return enforce(ctx, policies, in, found, warnings, func() (previewed, error) {
		if spec == nil { // No pod is evicted by the end of a rule.
			return previewed{}, nil
		}
		return h.foresee(ctx, req, policies.Taints, in, old, spec, &unknown)
	})
}

// rules holds a rule against the rules of Kubernetes itself. Of half a selector there are no
// warnings.
func (h *ruleHandler) rules(spec, old *resourcev1.DeviceTaintRuleSpec, unknown *unknownFields) ([]policy.Finding, []string) {
	errs := validation.ValidateRule(spec, old)
	if len(unknown.names) == 0 {
		return findings(errs), validation.RuleWarnings(spec, old, h.ServerClock.Now())
	}
	if unknown.fresh && unknown.former && h.obeyed() {
		errs = append(errs, validation.UnsupportedSelector(unknown.names)...)
	}
	return findings(errs), nil
}

// foresee returns the preview of a rule whose selector may have unknown fields.
func (h *ruleHandler) foresee(ctx context.Context, req *review.Request, set *taint.Set, in taint.Input, old, spec *resourcev1.DeviceTaintRuleSpec, unknown *unknownFields) (previewed, error) {
	if unknown.left {
		// It selected less than it seems, and maybe no device that it selects now.
		before := *old
		before.DeviceSelector = nil
		old = &before
	}
	seen, err := h.Preview.rule(ctx, req, set, in, old, spec)
	switch {
	case len(unknown.names) == 0 || !unknown.fresh && len(seen.warnings) == 0:
	case h.obeyed():
		// The limits went by the rest of the selector all the same: another version of
		// Tollgate, or Kubernetes, may know all of it.
		seen.warnings = []string{unsupportedWarning(unknown.names)}
	case len(seen.warnings) > 0:
		seen.warnings = append(seen.warnings, narrowerWarning)
	}
	return seen, err
}
