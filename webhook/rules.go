package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/policy/validation"
)

// ruleFields are the fields of a DeviceTaintRule that admission looks at. They are
// in all versions of the API that have it, v1alpha3, v1beta2 and v1; the selector of
// v1alpha3 has more of them up to Kubernetes 1.34 (VS-03).
type ruleFields struct {
	Spec json.RawMessage `json:"spec"`
}

// selectorFields are what stands in the selector of a rule.
type selectorFields struct {
	DeviceSelector map[string]json.RawMessage `json:"deviceSelector"`
}

// decodeRules returns the spec of the DeviceTaintRule of a request, nil when the rule
// is deleted, and the spec that it had, nil when it is created.
func decodeRules(req admission.Request) (now, old *resourcev1.DeviceTaintRuleSpec, err error) {
	if req.Operation != admissionv1.Delete {
		if now, err = ruleSpec(req.Object.Raw); err != nil {
			return nil, nil, err
		}
	}
	if req.Operation != admissionv1.Create {
		if old, err = ruleSpec(req.OldObject.Raw); err != nil {
			return nil, nil, err
		}
	}
	return now, old, nil
}

func ruleSpec(raw []byte) (*resourcev1.DeviceTaintRuleSpec, error) {
	fields, err := decodeRule(raw)
	if err != nil {
		return nil, err
	}
	spec := &resourcev1.DeviceTaintRuleSpec{}
	if err := decodeField(fields.Spec, "spec", spec); err != nil {
		return nil, &badReviewError{err}
	}
	return spec, nil
}

func decodeRule(raw []byte) (fields ruleFields, err error) {
	if err := unmarshal(raw, &fields); err != nil {
		return fields, &badReviewError{fmt.Errorf("decode DeviceTaintRule: %w", err)}
	}
	return fields, nil
}

// unknownFields is what of the selector of a rule is not known here: what v1alpha3 had up to
// Kubernetes 1.34, or a field of a later Kubernetes. To Tollgate a rule with one selects
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

// unknownFieldsOf returns what is not known of the selector of the rule of a request.
func unknownFieldsOf(req admission.Request) (unknown unknownFields, err error) {
	unknown.former = req.Resource.Version == resourcev1alpha3.SchemeGroupVersion.Version
	selector, err := rawSelector(req.Object.Raw)
	if err != nil {
		return unknownFields{}, err
	}
	unknown.fresh = true
	if req.Operation == admissionv1.Update {
		old, err := rawSelector(req.OldObject.Raw)
		if err != nil {
			return unknownFields{}, err
		}
		unknown.fresh = !maps.EqualFunc(selector, old, sameRaw) // both were written by one API server
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

// rawSelector returns what stands in the selector of a rule.
func rawSelector(raw []byte) (map[string]json.RawMessage, error) {
	fields, err := decodeRule(raw)
	if err != nil {
		return nil, err
	}
	var spec selectorFields
	if err := decodeField(fields.Spec, "spec", &spec); err != nil {
		return nil, &badReviewError{err}
	}
	return spec.DeviceSelector, nil
}

func sameRaw(a, b json.RawMessage) bool {
	return bytes.Equal(a, b)
}

// narrowerWarning goes with a preview, and a limit, that go by half a selector. What is
// left of it selects all that the whole does, and more.
const narrowerWarning = "not all fields of spec.deviceSelector are known to Tollgate: by the others it may be fewer"

// unsupportedWarning says what Tollgate makes of a selector with fields that it does not know.
func unsupportedWarning(names []string) string {
	return "spec.deviceSelector has fields that this version of Tollgate does not know (" + strings.Join(names, ", ") +
		"): to Tollgate the rule selects nothing, and nobody is evicted for it"
}

// ruleJudge judges DeviceTaintRules.
type ruleJudge struct {
	clock clock.PassiveClock
	// obeyed is true where Tollgate acts on rules. Elsewhere it is Kubernetes that has
	// to understand the selector.
	obeyed   bool
	governor *governor
	preview  *Preview
}

// Judge implements judge.
func (j *ruleJudge) Judge(ctx context.Context, req admission.Request) (admission.Response, error) {
	spec, old, err := decodeRules(req)
	if err != nil {
		return admission.Response{}, err
	}
	change := taint.RuleChange{New: spec, Old: old}
	var found []policy.Finding
	var warnings []string
	var unknown unknownFields
	if spec != nil {
		if unknown, err = unknownFieldsOf(req); err != nil {
			return admission.Response{}, err
		}
		change.Reselected = unknown.fresh && old != nil
		if change.Adopted, err = isAdopted(&req); err != nil {
			return admission.Response{}, err
		}
		found, warnings = j.rules(spec, old, &unknown)
	}
	collected, err := isCollected(&req)
	if err != nil {
		return admission.Response{}, err
	}
	if collected || j.governor.isSelf(&req) {
		return respond(ctx, policy.Decide(found), warnings), nil
	}
	reserved, err := reservedFindings(&req)
	if err != nil {
		return admission.Response{}, err
	}
	return j.govern(ctx, req, change, append(found, reserved...), warnings, &unknown)
}

// govern holds a change of a rule by anybody but Tollgate against the TaintPolicies,
// beside what was found already.
func (j *ruleJudge) govern(ctx context.Context, req admission.Request, change taint.RuleChange, found []policy.Finding, warnings []string, unknown *unknownFields) (admission.Response, error) {
	spec, old := change.New, change.Old
	policies, err := j.governor.current()
	if err != nil {
		return admission.Response{}, err
	}
	set := policies.Taints
	in := j.governor.input(&req, change.Writes())
	in.Rule = &change
	judged, fault := j.governor.judge(ctx, set, in)
	decision := policy.Decide(append(found, judged...))
	if fault != nil && decision.Verdict != policy.Denied {
		return admission.Response{}, fault
	}
	if spec == nil || decision.Verdict == policy.Denied {
		return judgedBy(respond(ctx, decision, warnings), policies), nil // nobody is evicted by the end of a rule
	}
	if unknown.left {
		// What it selected is less than it seems, and may be nothing of what it does now.
		before := *old
		before.DeviceSelector = nil
		old = &before
	}
	seen, err := j.preview.rule(ctx, req, set, in, old, spec)
	if err != nil {
		return admission.Response{}, err
	}
	switch {
	case len(unknown.names) == 0 || !unknown.fresh && len(seen.warnings) == 0:
	case j.obeyed:
		// The limits went by what is left of the selector all the same: another version of
		// Tollgate, or Kubernetes, may know the rest.
		seen.warnings = []string{unsupportedWarning(unknown.names)}
	case len(seen.warnings) > 0:
		seen.warnings = append(seen.warnings, narrowerWarning)
	}
	return judgedBy(seen.respond(ctx, decision, warnings), policies), nil
}

// rules holds a rule against the rules of Kubernetes itself.
func (j *ruleJudge) rules(spec, old *resourcev1.DeviceTaintRuleSpec, unknown *unknownFields) ([]policy.Finding, []string) {
	found := findings(validation.ValidateRule(spec, old))
	if len(unknown.names) == 0 {
		return found, validation.RuleWarnings(spec, old, j.clock.Now())
	}
	if unknown.fresh && unknown.former && j.obeyed {
		found = append(found, findings(validation.UnsupportedSelector(unknown.names))...)
	}
	return found, nil // warnings would be about half a selector
}

// ruleStamper writes into DeviceTaintRules since when their effect counts. It never
// refuses.
type ruleStamper struct {
	clock clock.PassiveClock
}

// Judge implements judge.
func (j *ruleStamper) Judge(_ context.Context, req admission.Request) (admission.Response, error) {
	spec, old, err := decodeRules(req)
	if err != nil || spec == nil {
		return allowed(), err
	}
	var stood *resourcev1.DeviceTaint
	if old != nil {
		stood = &old.Taint
	}
	response := allowed()
	at, ok := validation.StampRule(&spec.Taint, stood, j.clock.Now())
	if ok && spec.Taint.Key != "" { // without a key it is invalid, and there may be no taint to write to
		const path = "/spec/taint"
		response.Patches = []jsonpatch.JsonPatchOperation{
			jsonpatch.NewOperation("test", path+"/key", spec.Taint.Key),
			jsonpatch.NewOperation("add", path+"/timeAdded", at.UTC().Format(time.RFC3339)),
		}
	}
	return response, nil
}
