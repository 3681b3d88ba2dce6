package webhook

import (
	"gomodules.xyz/jsonpatch/v2"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

// twinsRemarked returns what is wrong with a request, by anybody but Tollgate, that
// changes which taints of a node are Tollgate's to remove: a node, which may not change
// its own taints, would so be rid of them.
func twinsRemarked(req *admission.Request) ([]policy.Finding, error) {
	now, err := annotation(req.Object.Raw, v1alpha1.AnnotationTwins)
	if err != nil {
		return nil, err
	}
	old, err := annotation(req.OldObject.Raw, v1alpha1.AnnotationTwins)
	if err != nil || now == old {
		return nil, err
	}
	return []policy.Finding{{
		Reason: policy.WindowReserved, Field: "metadata.annotations[" + v1alpha1.AnnotationTwins + "]", Value: clip(now),
		Problem: "says which taints of the node Tollgate added, and removes again",
		Remedy:  "leave the annotation as it is",
	}}, nil
}

// bornWithoutTwins returns the patch that takes the annotation off a node that is
// created: of a new node Tollgate has added nothing.
func bornWithoutTwins(raw []byte) ([]jsonpatch.JsonPatchOperation, error) {
	value, err := annotation(raw, v1alpha1.AnnotationTwins)
	if err != nil || value == "" {
		return nil, err
	}
	var out patch
	out.remove("/metadata/annotations/" + pointerToken(v1alpha1.AnnotationTwins))
	return out, nil
}
