package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/devices"
)

// ruleFields are the fields of a DeviceTaintRule that admission looks at. They are
// the same in all versions of the API that have it, v1alpha3, v1beta2 and v1.
type ruleFields struct {
	Spec json.RawMessage `json:"spec"`
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
	var fields ruleFields
	if err := unmarshal(raw, &fields); err != nil {
		return nil, &badReviewError{fmt.Errorf("decode DeviceTaintRule: %w", err)}
	}
	spec := &resourcev1.DeviceTaintRuleSpec{}
	if err := decodeField(fields.Spec, "spec", spec); err != nil {
		return nil, &badReviewError{err}
	}
	return spec, nil
}

// ruleJudge judges DeviceTaintRules.
type ruleJudge struct {
	clock clock.PassiveClock
}

// Judge implements judge.
func (j *ruleJudge) Judge(_ context.Context, req admission.Request) (admission.Response, error) {
	spec, old, err := decodeRules(req)
	if err != nil {
		return admission.Response{}, err
	}
	found := findings(devices.ValidateRule(spec, old))
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
