package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	kjson "sigs.k8s.io/json"
)

// Limits of a review. The API server writes objects far below them, so a
// larger one was not written by it.
const (
	// maxDepth bounds the nesting of a review. encoding/json stops at 10,000; no
	// Kubernetes object comes near 500.
	maxDepth = 500
	// maxUIDLength bounds the uid, which is echoed.
	maxUIDLength = 128
)

const reviewKind = "AdmissionReview"

// envelope is an AdmissionReview of v1 or v1beta1, which have the same fields.
// Response only tells whether there was one.
type envelope struct {
	metav1.TypeMeta `json:",inline"`

	Request  *request        `json:"request"`
	Response json.RawMessage `json:"response"`
}

// request holds the fields of an AdmissionRequest. What may be large stays as it is
// until its size has been judged. Judges do without some of them, but expressions of
// policies see all.
type request struct {
	UID                types.UID                    `json:"uid"`
	Kind               metav1.GroupVersionKind      `json:"kind"`
	Resource           metav1.GroupVersionResource  `json:"resource"`
	SubResource        string                       `json:"subResource"`
	RequestKind        *metav1.GroupVersionKind     `json:"requestKind"`
	RequestResource    *metav1.GroupVersionResource `json:"requestResource"`
	RequestSubResource string                       `json:"requestSubResource"`
	Name               string                       `json:"name"`
	Namespace          string                       `json:"namespace"`
	Operation          admissionv1.Operation        `json:"operation"`
	DryRun             *bool                        `json:"dryRun"`
	UserInfo           json.RawMessage              `json:"userInfo"`
	Object             json.RawMessage              `json:"object"`
	OldObject          json.RawMessage              `json:"oldObject"`
	Options            json.RawMessage              `json:"options"`
}

// admission returns the request as handlers read it.
func (r *request) admission() (*admission.Request, error) {
	req := &admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: r.UID, Kind: r.Kind, Resource: r.Resource, SubResource: r.SubResource,
		RequestKind: r.RequestKind, RequestResource: r.RequestResource, RequestSubResource: r.RequestSubResource,
		Name: r.Name, Namespace: r.Namespace, Operation: r.Operation, DryRun: r.DryRun,
		Object: runtime.RawExtension{Raw: r.Object}, OldObject: runtime.RawExtension{Raw: r.OldObject},
		Options: runtime.RawExtension{Raw: r.Options},
	}}
	return req, decodeField(r.UserInfo, "request.userInfo", &req.UserInfo)
}

// decodeReview reads an AdmissionReview and returns its request and the
// apiVersion to answer in. Keys are compared with their case, and a key that
// stands twice in the envelope is an error, because the API server and Tollgate
// could each have read the other one.
func decodeReview(body []byte) (*admission.Request, string, error) {
	if err := checkText(body); err != nil {
		return nil, "", err
	}
	var review envelope
	if err := unmarshal(body, &review); err != nil {
		return nil, "", fmt.Errorf("decode AdmissionReview: %w", err)
	}
	if err := checkEnvelope(&review); err != nil {
		return nil, "", err
	}
	req, err := review.Request.admission()
	return req, review.APIVersion, err
}

// unmarshal decodes data into value: keys case-sensitive, duplicate keys an
// error, unknown keys ignored (a newer API server has more fields).
func unmarshal(data []byte, value any) error {
	duplicates, err := kjson.UnmarshalStrict(data, value, kjson.DisallowDuplicateFields)
	if err != nil {
		return err
	}
	return errors.Join(duplicates...)
}

// checkText refuses texts that the JSON decoder would silently repair or choke on.
func checkText(body []byte) error {
	if !utf8.Valid(body) {
		return errors.New("the body is not valid UTF-8")
	}
	if depth := jsonDepth(body); depth > maxDepth {
		return fmt.Errorf("the body is nested deeper than %d levels", maxDepth)
	}
	return nil
}

func checkEnvelope(review *envelope) error {
	switch review.APIVersion {
	case admissionv1.SchemeGroupVersion.String(), admissionv1beta1.SchemeGroupVersion.String():
	default:
		return fmt.Errorf("apiVersion is %q, want %q or %q", clip(review.APIVersion),
			admissionv1.SchemeGroupVersion, admissionv1beta1.SchemeGroupVersion)
	}
	if review.Kind != reviewKind {
		return fmt.Errorf("kind is %q, want %q", clip(review.Kind), reviewKind)
	}
	if !isNull(review.Response) {
		return errors.New("response is set, a review that asks has none")
	}
	if review.Request == nil {
		return errors.New("request is missing")
	}
	return checkRequest(review.Request)
}

// checkRequest makes sure that the objects that an operation is about are there:
// a handler that got no object could not tell an empty one from none.
func checkRequest(req *request) error {
	if req.UID == "" || len(req.UID) > maxUIDLength {
		return fmt.Errorf("request.uid has %d characters, want 1 to %d", len(req.UID), maxUIDLength)
	}
	needsObject, needsOld := false, false
	switch req.Operation {
	case admissionv1.Create:
		needsObject = true
	case admissionv1.Update:
		needsObject, needsOld = true, true
	case admissionv1.Delete:
		needsOld = true
	case admissionv1.Connect:
	default:
		return fmt.Errorf("request.operation is %q, want CREATE, UPDATE, DELETE or CONNECT", clip(string(req.Operation)))
	}
	if needsObject && isNull(req.Object) {
		return fmt.Errorf("request.object is missing on %s", req.Operation)
	}
	if needsOld && isNull(req.OldObject) {
		return fmt.Errorf("request.oldObject is missing on %s", req.Operation)
	}
	return nil
}

// encodeReview returns the AdmissionReview that answers a request, in the
// version that it was asked in.
func encodeReview(apiVersion string, uid types.UID, response admission.Response) ([]byte, error) {
	if err := response.Complete(admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{UID: uid}}); err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	review := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: reviewKind},
		Response: &response.AdmissionResponse,
	}
	return json.Marshal(review)
}

func isNull(raw []byte) bool {
	trimmed := bytes.TrimSpace(raw)
	return len(trimmed) == 0 || bytes.Equal(trimmed, []byte("null"))
}

// clip shortens a value that comes from outside for an error message.
func clip(s string) string {
	const limit = 64
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "..."
}
