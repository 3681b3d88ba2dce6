package handlers

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// twinLabel marks the DeviceTaintRules that Tollgate makes beside others, changes and
// removes, without a policy that allows it.
const twinLabel = "tollgate.dev/pair"

// collectors are the users that delete objects without an owner, and take owners that are
// gone from objects with others: the garbage collector, or the controller manager where
// controllers have no accounts of their own.
var collectors = []string{"system:serviceaccount:kube-system:generic-garbage-collector", "system:kube-controller-manager"}

// ruleMetadata are the fields of a rule that say whether Tollgate made it; nil where a
// label or an annotation is not there. Others are passed over.
type ruleMetadata struct {
	Labels struct {
		// Pair is twinLabel.
		Pair *string `json:"tollgate.dev/pair"`
		// Patch is v1alpha1.LabelPatch.
		Patch *string `json:"tollgate.dev/resource-slice-patch"`
	} `json:"labels"`
	Annotations struct {
		// Effect is v1alpha1.AnnotationPatchEffect.
		Effect *string `json:"tollgate.dev/patch-effect"`
	} `json:"annotations"`
	OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
}

// reservedFindings returns the findings about a request, by another user than Tollgate, that
// makes a rule pass for one of Tollgate's, or one of Tollgate's for another's: Tollgate would
// remove, on behalf of that user, a rule that the user may not remove, or evict pods for a rule
// that does not say so. The garbage collector may remove a reference to an owner.
func reservedFindings(username string, now, old *ruleMetadata) []policy.Finding {
	if now == nil {
		return nil
	}
	old = cmp.Or(old, &ruleMetadata{})
	if found := markFindings(now, old); len(found) > 0 {
		return found
	}
	return ownerFindings(username, now, old)
}

// markFindings returns the findings about changes of the labels and annotations by which Tollgate
// knows its rules.
func markFindings(now, old *ruleMetadata) []policy.Finding {
	var found []policy.Finding
	for _, mark := range []struct {
		now, old               *string
		reason                 policy.Reason
		field, problem, remedy string
	}{
		{
			now.Labels.Pair, old.Labels.Pair, policy.TwinReserved, "metadata.labels[" + twinLabel + "]",
			"marks the rules that Tollgate makes beside others", "leave the label as it is",
		}, {
			now.Labels.Patch, old.Labels.Patch, policy.PatchReserved, "metadata.labels[" + v1alpha1.LabelPatch + "]",
			"marks the rules that Tollgate writes out for ResourceSlicePatches", "leave the label as it is",
		}, {
			now.Annotations.Effect, old.Annotations.Effect, policy.PatchReserved, "metadata.annotations[" + v1alpha1.AnnotationPatchEffect + "]",
			"says which effect a rule that was written out for a ResourceSlicePatch has for Tollgate",
			"leave the annotation as it is, and write the effect into the ResourceSlicePatch",
		},
	} {
		if !ptr.Equal(mark.now, mark.old) {
			found = append(found, policy.Finding{
				Reason: mark.reason, Field: mark.field, Value: review.Clip(ptr.Deref(mark.now, "")), Problem: mark.problem, Remedy: mark.remedy,
			})
		}
	}
	return found
}

// ownerFindings returns the finding about a change of the owners of a rule that Tollgate made. A
// rule of a patch that is not controlled by it any more would not be one for the evictor, so only
// the garbage collector may take that owner away.
func ownerFindings(username string, now, old *ruleMetadata) []policy.Finding {
	const field, remedy = "metadata.ownerReferences", "leave its owners as they are"
	added := hasOthers(now.OwnerReferences, old.OwnerReferences)
	removed := hasOthers(old.OwnerReferences, now.OwnerReferences) && !slices.Contains(collectors, username)
	switch {
	case now.Labels.Pair != nil && added:
		return []policy.Finding{{
			Reason: policy.TwinReserved, Field: field, Remedy: remedy,
			Problem: "this rule was made by Tollgate and goes with what it stands beside",
		}}
	case now.Labels.Patch != nil && (added || removed):
		return []policy.Finding{{
			Reason: policy.PatchReserved, Field: field, Remedy: remedy,
			Problem: "this rule was written out by Tollgate and goes with its ResourceSlicePatch",
		}}
	}
	return nil
}

// hasOthers reports whether list has an owner that others do not have. Whether an owner
// has to wait for its dependents is no difference: the garbage collector changes it.
func hasOthers(list, others []metav1.OwnerReference) bool {
	// A map, since a list of owners may be long and is not Tollgate's.
	there := make(map[owner]bool, len(others))
	for _, ref := range others {
		there[ownerOf(ref)] = true
	}
	return slices.ContainsFunc(list, func(ref metav1.OwnerReference) bool { return !there[ownerOf(ref)] })
}

// owner holds the fields that tell owner references apart, and none that is a pointer.
type owner struct {
	metav1.OwnerReference

	controls bool
}

func ownerOf(ref metav1.OwnerReference) owner {
	controls := ptr.Deref(ref.Controller, false)
	ref.Controller, ref.BlockOwnerDeletion = nil, nil
	return owner{ref, controls}
}

// isCollected reports whether a write is the garbage collector's deletion of a rule that was
// written out for a patch. Its patch is gone then, and the deletion of that was judged: only
// Tollgate could name the patch of the rule.
func isCollected(username string, now, old *ruleMetadata) bool {
	return now == nil && slices.Contains(collectors, username) && old.Labels.Patch != nil
}

func readRuleMetadata(f *review.Fields, v review.Value) *ruleMetadata {
	metadata := &ruleMetadata{}
	f.Into(metadata, v, "metadata")
	return metadata
}
