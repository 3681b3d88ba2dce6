package webhook

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/webhook/handlers"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// encodeReview returns the AdmissionReview that answers a request, in the version that it was
// asked in.
func encodeReview(req *review.Request, result *handlers.Result) ([]byte, error) {
	patch, err := encodePatch(result.Patch)
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	if isPlain(result) && standsForItself(string(req.UID)) && standsForItself(result.PolicyVersion) {
		return plainReview(req, result, patch), nil
	}
	response := result.Response()
	response.Patches = nil // Complete would encode it again.
	if err := response.Complete(admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{UID: req.UID}}); err != nil {
		return nil, fmt.Errorf("complete answer: %w", err)
	}
	if len(patch) > 0 {
		response.Patch, response.PatchType = patch, new(admissionv1.PatchTypeJSONPatch)
	}
	return json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: req.APIVersion, Kind: review.Kind},
		Response: &response.AdmissionResponse,
	})
}

// encodePatch returns a patch as JSON; nil for an empty one.
func encodePatch(patch []jsonpatch.Operation) ([]byte, error) {
	if len(patch) == 0 {
		return nil, nil
	}
	// The method of an Operation encodes a map for each.
	type operation jsonpatch.Operation
	operations := make([]operation, len(patch))
	for i := range patch {
		operations[i] = operation(patch[i])
	}
	return json.Marshal(operations)
}

// isPlain reports whether a result lets the request in, as it is or with a patch, and says no more than
// by which policies: most do.
func isPlain(r *handlers.Result) bool {
	return r.Verdict == policy.Allowed && len(r.Findings) == 0 && len(r.Warnings) == 0
}

// standsForItself reports whether a text is the same in JSON.
func standsForItself(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return r >= utf8.RuneSelf || r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
}

// plainReview is encodeReview for a plain result, without the cost of reflection.
func plainReview(req *review.Request, result *handlers.Result, patch []byte) []byte {
	text := make([]byte, 0, 256+base64.StdEncoding.EncodedLen(len(patch)))
	text = append(text, `{"kind":"AdmissionReview","apiVersion":"`...)
	text = append(text, req.APIVersion...)
	text = append(text, `","response":{"uid":"`...)
	text = append(text, req.UID...)
	text = append(text, `","allowed":true,"status":{"metadata":{},"code":200}`...)
	if len(patch) > 0 {
		text = append(text, `,"patch":"`...)
		text = base64.StdEncoding.AppendEncode(text, patch)
		text = append(text, `","patchType":"JSONPatch"`...)
	}
	if result.PolicyVersion != "" {
		text = append(text, `,"auditAnnotations":{"`+handlers.AuditPolicies+`":"`...)
		text = append(text, result.PolicyVersion...)
		text = append(text, `"}`...)
	}
	return append(text, "}}"...)
}
