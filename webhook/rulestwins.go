package webhook

import (
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/policy"
)

// twinLabel marks the DeviceTaintRules that Tollgate makes beside others, changes and
// removes, without asking policies who may.
const twinLabel = "tollgate.dev/pair"

// ruleMetadata are the fields of a rule that say whether Tollgate made it.
type ruleMetadata struct {
	Metadata struct {
		Labels          map[string]string       `json:"labels"`
		OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
	} `json:"metadata"`
}

// twinFindings returns what is wrong with a request, by anybody but Tollgate, that makes
// a rule pass for one of Tollgate's, or one of Tollgate's for another's: Tollgate would
// remove, on behalf of whoever wrote that, a rule that they may not remove. That a
// reference to an owner goes is the garbage collector's doing.
func twinFindings(req *admission.Request) ([]policy.Finding, error) {
	if req.Operation == admissionv1.Delete {
		return nil, nil
	}
	now, err := decodeRuleMetadata(req.Object.Raw)
	if err != nil {
		return nil, err
	}
	var old ruleMetadata
	if req.Operation == admissionv1.Update {
		if old, err = decodeRuleMetadata(req.OldObject.Raw); err != nil {
			return nil, err
		}
	}
	label, labelled := now.Metadata.Labels[twinLabel]
	before, was := old.Metadata.Labels[twinLabel]
	switch {
	case labelled != was || label != before:
		return []policy.Finding{{
			Reason: policy.TwinReserved, Field: "metadata.labels[" + twinLabel + "]", Value: clip(label),
			Problem: "marks the rules that Tollgate makes beside others",
			Remedy:  "leave the label as it is",
		}}, nil
	case labelled && slices.ContainsFunc(now.Metadata.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return !slices.ContainsFunc(old.Metadata.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == ref.UID && o.Name == ref.Name })
	}):
		return []policy.Finding{{
			Reason: policy.TwinReserved, Field: "metadata.ownerReferences",
			Problem: "this rule was made by Tollgate and goes with what it stands beside",
			Remedy:  "leave its owners as they are",
		}}, nil
	default:
		return nil, nil
	}
}

func decodeRuleMetadata(raw []byte) (fields ruleMetadata, err error) {
	if err := unmarshal(raw, &fields); err != nil {
		return fields, &badReviewError{fmt.Errorf("decode DeviceTaintRule: %w", err)}
	}
	return fields, nil
}
