package webhook

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/webhook/handlers"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

func TestAnAnswerIsEncodedAsByTheLibrary(t *testing.T) {
	patches := map[string][]jsonpatch.Operation{
		"no patch": nil,
		"a patch": {
			jsonpatch.NewOperation("test", "/metadata/name", `a "<name>"`),
			jsonpatch.NewOperation("test", "/spec/tolerations", json.RawMessage(`[ ]`)),
			jsonpatch.NewOperation("add", "/spec/nodeSelector", map[string]string{"b": "2", "a": "1"}),
			jsonpatch.NewOperation("add", "/spec/tolerations/-", corev1.Toleration{Key: "k", Operator: corev1.TolerationOpExists}),
			jsonpatch.NewOperation("replace", "/metadata/annotations/x", ""),
			jsonpatch.NewOperation("remove", "/metadata/annotations/y", nil),
		},
	}
	for name, patch := range patches {
		for _, warnings := range [][]string{nil, {"a warning"}} {
			for _, uid := range []string{"705ab4f5-6393-11e8-b7cc-42010a800002", `a"b`, "<x>", "名前"} {
				for _, version := range []string{"", "e15c08881519", `"`} {
					for _, api := range []string{"admission.k8s.io/v1", "admission.k8s.io/v1beta1"} {
						req := &review.Request{APIVersion: api, AdmissionRequest: admissionv1.AdmissionRequest{UID: types.UID(uid)}}
						result := handlers.Result{Decision: policy.Decision{Verdict: policy.Allowed}, Warnings: warnings, Patch: patch, PolicyVersion: version}
						response := result.Response()
						require.NoError(t, response.Complete(admission.Request{AdmissionRequest: req.AdmissionRequest}))
						want := marshal(t, admissionv1.AdmissionReview{
							TypeMeta: metav1.TypeMeta{APIVersion: api, Kind: "AdmissionReview"}, Response: &response.AdmissionResponse,
						})
						got, err := encodeReview(req, &result)
						require.NoError(t, err)
						require.Equal(t, string(want), string(got), name)
					}
				}
			}
		}
	}
}
