package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/devices"
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

// decodeRules returns the spec of the DeviceTaintRule of a request and, on an
// update, the spec that it had; nil when the rule is created.
func decodeRules(req admission.Request) (now, old *resourcev1.DeviceTaintRuleSpec, err error) {
	if now, err = ruleSpec(req.Object.Raw); err != nil {
		return nil, nil, err
	}
	if req.Operation == admissionv1.Update {
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

// unsupportedFields returns the names of the fields in the selector of a rule that
// are not known here, sorted, and whether the selector is new. One that stood there is
// not judged again, so that the effect of such a rule can still be taken from it. There
// are none in versions other than v1alpha3, which never had more.
func unsupportedFields(req admission.Request) (names []string, fresh bool, err error) {
	if req.Resource.Version != resourcev1alpha3.SchemeGroupVersion.Version {
		return nil, false, nil
	}
	selector, err := rawSelector(req.Object.Raw)
	if err != nil {
		return nil, false, err
	}
	fresh = true
	if req.Operation == admissionv1.Update {
		old, err := rawSelector(req.OldObject.Raw)
		if err != nil {
			return nil, false, err
		}
		fresh = !maps.EqualFunc(selector, old, sameRaw) // both were written by one API server
	}
	for _, known := range []string{"driver", "pool", "device"} {
		delete(selector, known)
	}
	return slices.Sorted(maps.Keys(selector)), fresh, nil
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

// ruleJudge judges DeviceTaintRules.
type ruleJudge struct {
	clock clock.PassiveClock
	// obeyed is true where Tollgate acts on rules. Elsewhere it is Kubernetes that has
	// to understand the selector.
	obeyed bool
}

// Judge implements judge.
func (j *ruleJudge) Judge(_ context.Context, req admission.Request) (admission.Response, error) {
	spec, old, err := decodeRules(req)
	if err != nil {
		return admission.Response{}, err
	}
	found := findings(devices.ValidateRule(spec, old))
	unsupported, fresh, err := unsupportedFields(req)
	if err != nil {
		return admission.Response{}, err
	}
	if len(unsupported) > 0 {
		if fresh && j.obeyed {
			found = append(found, findings(devices.UnsupportedSelector(unsupported))...)
		}
		return respond(policy.Decide(found), nil), nil // warnings would be about half a selector
	}
	return respond(policy.Decide(found), devices.RuleWarnings(spec, old, j.clock.Now())), nil
}

// ruleStamper writes into DeviceTaintRules since when their effect counts. It never
// refuses.
type ruleStamper struct {
	clock clock.PassiveClock
}

// Judge implements judge.
func (j *ruleStamper) Judge(_ context.Context, req admission.Request) (admission.Response, error) {
	spec, old, err := decodeRules(req)
	if err != nil {
		return admission.Response{}, err
	}
	var stood *resourcev1.DeviceTaint
	if old != nil {
		stood = &old.Taint
	}
	response := allowed()
	at, ok := devices.StampRule(&spec.Taint, stood, j.clock.Now())
	if ok && spec.Taint.Key != "" { // without a key it is invalid, and there may be no taint to write to
		const path = "/spec/taint"
		response.Patches = []jsonpatch.JsonPatchOperation{
			jsonpatch.NewOperation("test", path+"/key", spec.Taint.Key),
			jsonpatch.NewOperation("add", path+"/timeAdded", at.UTC().Format(time.RFC3339)),
		}
	}
	return response, nil
}
