package webhook

import (
	"bytes"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/webhook/review"
)

// validReview is a review as text, to be broken by tests.
func validReview(t *testing.T) string {
	t.Helper()
	return string(marshal(t, podReview(t, admissionv1.Create, simplePod, "")))
}

func TestB01WhatIsNotJSONInUTF8IsRefused(t *testing.T) {
	url := serveHandler(t, testOptions(), allowAll)
	review := validReview(t)
	utf16 := func(s string) string {
		var b strings.Builder
		for _, c := range []byte(s) {
			b.WriteByte(c)
			b.WriteByte(0)
		}
		return b.String()
	}
	tests := map[string]string{
		"not JSON":                     "apiVersion: v1",
		"truncated":                    review[:len(review)-1],
		"truncated in a string":        review[:len(review)/2],
		"two documents":                review + review,
		"UTF-16":                       "\xff\xfe" + utf16(review),
		"a byte order mark":            "\xef\xbb\xbf" + review,
		"invalid UTF-8 in a string":    strings.Replace(review, "alice", "al\xc3\x28ice", 1),
		"a NUL byte in a string":       strings.Replace(review, "alice", "al\x00ice", 1),
		"a NUL byte between":           strings.Replace(review, "{", "{\x00", 1),
		"a list":                       "[" + review + "]",
		"a string":                     `"AdmissionReview"`,
		"null":                         "null",
		"a number where a list is due": strings.Replace(review, `["system:authenticated"]`, "7", 1),
	}
	for name, body := range tests {
		t.Run(name, func(t *testing.T) {
			status, text := post(t, url, []byte(body))
			require.Equal(t, http.StatusBadRequest, status, text)
		})
	}
}

func TestB02DeepNestingIsRefusedAtOnce(t *testing.T) {
	for _, depth := range []int{501, 10_000, 1_000_000} {
		for _, brackets := range [][2]string{{"[", "]"}, {`{"a":`, "}"}} {
			t.Run(fmt.Sprint(depth, " times ", brackets[0]), func(t *testing.T) {
				nested := strings.Repeat(brackets[0], depth) + "1" + strings.Repeat(brackets[1], depth)
				body := []byte(strings.Replace(validReview(t), simplePod, nested, 1))
				reader := new(review.Reader)
				_, err := reader.Read(body)
				require.ErrorContains(t, err, "nested deeper than 500 levels")
				// The whole process is counted: what others allocate once is not one for each run.
				require.LessOrEqual(t, testing.AllocsPerRun(100, func() { _, _ = reader.Read(body) }), 10.0, "none for a level")
			})
		}
	}
	t.Run("brackets in strings do not nest", func(t *testing.T) {
		body := strings.Replace(validReview(t), "alice", strings.Repeat(`[{\"`, 1000), 1)
		_, err := readRequest([]byte(body))
		require.NoError(t, err)
	})
}

func TestB03ManyKeysAndItemsCostABoundedMultiple(t *testing.T) {
	const million = 1_000_000
	tests := map[string]string{
		"a million empty tolerations": `{"spec":{"tolerations":[{}` + strings.Repeat(",{}", million) + `]}}`,
		"200,000 node labels":         `{"spec":{"nodeSelector":{"k":"v"` + sequence(200_000, `,"%d":""`) + `}}}`,
		"200,000 unknown keys":        `{"x":1` + sequence(200_000, `,"%d":1`) + `}`,
		"200,000 annotations":         `{"metadata":{"annotations":{"k":"v"` + sequence(200_000, `,"%d":""`) + `}}}`,
		"a million terms":             `{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{}` + strings.Repeat(",{}", million) + `]}}}}}`,
	}
	for name, object := range tests {
		t.Run(name, func(t *testing.T) {
			requireBounded(t, strings.Replace(validReview(t), simplePod, object, 1))
		})
	}
	users := map[string]string{
		"a million groups": `"groups":[""` + strings.Repeat(`,""`, million) + `]`,
		"200,000 extras":   `"extra":{"k":[""]` + sequence(200_000, `,"%d":[""]`) + `}`,
	}
	for name, field := range users {
		t.Run(name, func(t *testing.T) {
			requireBounded(t, strings.Replace(validReview(t), `"groups":["system:authenticated"]`, field, 1))
		})
	}
}

// requireBounded decodes a review, judges its pod, and fails if that allocates more
// than ten times its size.
func requireBounded(t *testing.T, body string) {
	t.Helper()
	require.Less(t, len(body), maxBodyBytes)
	endpoint := Validate(testConfig())
	allocated := allocations(func() {
		if req, err := readRequest([]byte(body)); err == nil {
			_, _ = endpoint.Review(t.Context(), req)
		}
	})
	require.Less(t, allocated, uint64(10*len(body)), "bytes allocated for %d bytes", len(body))
}

// sequence returns the format n times, with 0 to n-1 filled in.
func sequence(n int, format string) string {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// allocations returns how many bytes f allocates.
func allocations(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestB04DuplicateKeysOfTheEnvelopeAreRefused(t *testing.T) {
	url := serveHandler(t, testOptions(), allowAll)
	review := validReview(t)
	for name, body := range map[string]string{
		"uid":                     strings.Replace(review, `"uid":`, `"uid":"other","uid":`, 1),
		"request":                 strings.Replace(review, `"request":`, `"request":{},"request":`, 1),
		"kind":                    strings.Replace(review, `"kind":"AdmissionReview"`, `"kind":"AdmissionReview","kind":"AdmissionReview"`, 1),
		"object":                  strings.Replace(review, `"object":`, `"object":{"spec":{}},"object":`, 1),
		"the user's name":         strings.Replace(review, `"username":`, `"username":"system:admin","username":`, 1),
		"a field of the pod":      strings.Replace(review, `"spec":{`, `"spec":{"tolerations":[],"tolerations":[],`, 1),
		"a field of a toleration": strings.Replace(review, `"spec":{`, `"spec":{"tolerations":[{"key":"a","key":"b"}],`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			url := url
			if strings.HasPrefix(name, "a field") {
				url = serveEndpoint(t, Validate(testConfig()))
			}
			status, text := post(t, url, []byte(body))
			require.Equal(t, http.StatusBadRequest, status)
			require.Contains(t, text, "duplicate field")
		})
	}
}

func TestB05KeysInAnotherCaseAreNotTheField(t *testing.T) {
	url := serveEndpoint(t, Validate(testConfig()))
	review := validReview(t)
	status, text := post(t, url, []byte(strings.Replace(review, `"request":`, `"Request":`, 1)))
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, text, "request is missing")

	status, text = post(t, url, []byte(strings.Replace(review, `"object":`, `"OBJECT":`, 1)))
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, text, "request.object is missing")

	hidden := `{"Spec":{"tolerations":[{"key":"dedicated"}]},"spec":{"Tolerations":[{"key":"dedicated"}]}}`
	status, text = post(t, url, []byte(strings.Replace(review, simplePod, hidden, 1)))
	require.Equal(t, http.StatusOK, status)
	require.True(t, answerOf(t, text).Response.Allowed, "what no API server understands is not a toleration")
}

func TestB07AReviewAsksAndDoesNotAnswer(t *testing.T) {
	url := serveHandler(t, testOptions(), allowAll)
	review := validReview(t)
	for name, body := range map[string]string{
		"request missing":      `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`,
		"request null":         `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":null}`,
		"response set":         strings.Replace(review, `"request":`, `"response":{"allowed":true},"request":`, 1),
		"an unknown version":   strings.Replace(review, "admission.k8s.io/v1", "admission.k8s.io/v2", 1),
		"no version":           strings.Replace(review, `"apiVersion":"admission.k8s.io/v1",`, "", 1),
		"another kind":         strings.Replace(review, `"kind":"AdmissionReview"`, `"kind":"Review"`, 1),
		"an unknown operation": strings.Replace(review, `"operation":"CREATE"`, `"operation":"PATCH"`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			status, text := post(t, url, []byte(body))
			require.Equal(t, http.StatusBadRequest, status, text)
		})
	}
	for _, version := range []string{"admission.k8s.io/v1", "admission.k8s.io/v1beta1"} {
		t.Run(version+" is answered in kind", func(t *testing.T) {
			status, text := post(t, url, []byte(strings.Replace(review, "admission.k8s.io/v1", version, 1)))
			require.Equal(t, http.StatusOK, status)
			answer := answerOf(t, text)
			require.Equal(t, version, answer.APIVersion)
			require.Equal(t, "AdmissionReview", answer.Kind)
			require.Nil(t, answer.Request)
		})
	}
}

func TestB08TheUIDIsEchoedOrRefused(t *testing.T) {
	url := serveHandler(t, testOptions(), allowAll)
	review := podReview(t, admissionv1.Create, simplePod, "")
	for name, uid := range map[string]string{
		"a UUID":         "705ab4f5-6393-11e8-b7cc-42010a800002",
		"not a UUID":     "seven",
		"with quotes":    `a"b\c`,
		"with spaces":    "  a ",
		"not in English": "名前",
		"as long as can": strings.Repeat("x", 128),
	} {
		t.Run(name, func(t *testing.T) {
			review.Request.UID = types.UID(uid)
			status, text := post(t, url, marshal(t, review))
			require.Equal(t, http.StatusOK, status)
			require.Equal(t, types.UID(uid), answerOf(t, text).Response.UID)
		})
	}
	for name, uid := range map[string]string{"missing": "", "a megabyte": strings.Repeat("x", 1<<20)} {
		t.Run(name, func(t *testing.T) {
			review.Request.UID = types.UID(uid)
			status, text := post(t, url, marshal(t, review))
			require.Equal(t, http.StatusBadRequest, status)
			require.Less(t, len(text), 200)
		})
	}
}

func TestB09MissingObjectsAreRefused(t *testing.T) {
	url := serveEndpoint(t, Validate(testConfig()))
	for name, tt := range map[string]struct {
		operation   admissionv1.Operation
		object, old string
	}{
		"no object on CREATE":      {admissionv1.Create, "null", ""},
		"no object on UPDATE":      {admissionv1.Update, "null", simplePod},
		"no old object on UPDATE":  {admissionv1.Update, simplePod, "null"},
		"neither on DELETE":        {admissionv1.Delete, "null", "null"},
		"a string as object":       {admissionv1.Create, `"pod"`, ""},
		"a list as spec":           {admissionv1.Create, `{"spec":[]}`, ""},
		"a list as old spec":       {admissionv1.Update, simplePod, `{"spec":[]}`},
		"a number as a toleration": {admissionv1.Create, `{"spec":{"tolerations":[1]}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			status, text := post(t, url, marshal(t, podReview(t, tt.operation, tt.object, tt.old)))
			require.Equal(t, http.StatusBadRequest, status, text)
		})
	}
}

// A review whose parts contradict each other comes from no API server, and what it calls a pod
// may be read as something else.
func TestB10AnObjectOfAnotherKindThanTheRequestSaysIsRefused(t *testing.T) {
	url := serveEndpoint(t, Validate(testConfig()))
	tests := map[string]struct {
		change  func(*admissionv1.AdmissionRequest)
		refusal string
	}{
		"a pod":                                    {func(*admissionv1.AdmissionRequest) {}, ""},
		"an object that does not say what it is":   {object(`{"spec":{}}`), ""},
		"an object of another kind":                {object(`{"apiVersion":"v1","kind":"Node"}`), `request.object is a "Node" of "v1", and request.kind says "Pod" of "v1"`},
		"an object of another version":             {object(`{"apiVersion":"v2","kind":"Pod"}`), `request.object is a "Pod" of "v2", and request.kind says "Pod" of "v1"`},
		"an object of another group":               {object(`{"apiVersion":"apps/v1","kind":"Pod"}`), `request.object is a "Pod" of "apps/v1"`},
		"an object with an escape in the name":     {object(`{"\u006bind":"Node"}`), `request.object is a "Node"`},
		"an object whose kind is a number":         {object(`{"kind":7}`), "decode kind: not a string"},
		"an object whose kind stands twice":        {object(`{"kind":"Pod","kind":"Node"}`), `duplicate field "kind"`},
		"a request of another kind":                {func(r *admissionv1.AdmissionRequest) { r.Kind.Kind = "Node" }, `request.kind says "Node" of "v1"`},
		"an object before that is of another kind": {was(`{"apiVersion":"v1","kind":"Node"}`), `request.oldObject is a "Node"`},
		"a resource of another version":            {func(r *admissionv1.AdmissionRequest) { r.Resource.Version = "v2" }, `request.resource.version of pods is "v2", want v1`},
		"a resource of no version":                 {func(r *admissionv1.AdmissionRequest) { r.Resource.Version = "" }, `request.resource.version of pods is "", want v1`},
		"a resource of another group":              {func(r *admissionv1.AdmissionRequest) { r.Resource.Group = "apps" }, "this path does not judge pods.apps"},
		"a subresource with which nothing is done": {func(r *admissionv1.AdmissionRequest) { r.SubResource = "eviction" }, "this path does not judge pods/eviction"},
		"claims in a version with other fields": {func(r *admissionv1.AdmissionRequest) {
			r.Kind = metav1.GroupVersionKind{Group: "resource.k8s.io", Version: "v1beta1", Kind: "ResourceClaim"}
			r.Resource = metav1.GroupVersionResource{Group: "resource.k8s.io", Version: "v1beta1", Resource: "resourceclaims"}
			r.Object.Raw = []byte(`{"spec":{"devices":{"requests":[{"name":"r","tolerations":[{"operator":"Exists"}]}]}}}`)
		}, `request.resource.version of resourceclaims.resource.k8s.io is "v1beta1", want v1`},
		"rules in their beta version": {func(r *admissionv1.AdmissionRequest) {
			r.Kind = metav1.GroupVersionKind{Group: "resource.k8s.io", Version: "v1beta2", Kind: "DeviceTaintRule"}
			r.Resource = metav1.GroupVersionResource{Group: "resource.k8s.io", Version: "v1beta2", Resource: "devicetaintrules"}
			r.Object.Raw = []byte(`{"apiVersion":"resource.k8s.io/v1beta2","kind":"DeviceTaintRule","spec":{"taint":{"key":"k","effect":"None"}}}`)
		}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			asked := podReview(t, admissionv1.Create, simplePod, "")
			tt.change(asked.Request)
			status, text := post(t, url, marshal(t, asked))
			if tt.refusal == "" {
				require.Equal(t, http.StatusOK, status, text)
				return
			}
			require.Equal(t, http.StatusBadRequest, status)
			require.Contains(t, text, tt.refusal)
		})
	}
}

// object has a request create an object, and was update it.
func object(raw string) func(*admissionv1.AdmissionRequest) {
	return func(r *admissionv1.AdmissionRequest) { r.Object.Raw = []byte(raw) }
}

func was(raw string) func(*admissionv1.AdmissionRequest) {
	return func(r *admissionv1.AdmissionRequest) {
		r.Operation, r.OldObject.Raw = admissionv1.Update, []byte(raw)
	}
}

func TestB14APodWithoutANameIsJudgedAsAnyOther(t *testing.T) {
	url := serveEndpoint(t, Validate(testConfig()))
	for name, metadata := range map[string]string{
		"a name that is generated": `{"generateName":"p-"}`, "no name": `{}`, "no metadata": `null`, "an empty name": `{"name":""}`,
	} {
		t.Run(name, func(t *testing.T) {
			for tolerations, allowed := range map[string]bool{`[]`: true, `[{"key":"dedicated","operator":"Exists"}]`: false} {
				asked := podReview(t, admissionv1.Create, `{"metadata":`+metadata+`,"spec":{"tolerations":`+tolerations+`}}`, "")
				asked.Request.Name = ""
				status, text := post(t, url, marshal(t, asked))
				require.Equal(t, http.StatusOK, status, text)
				require.Equal(t, allowed, answerOf(t, text).Response.Allowed)
			}
		})
	}
}

func TestB15ADryRunGetsTheSameVerdict(t *testing.T) {
	config := testConfig()
	url := serveEndpoint(t, Validate(config))
	for _, pod := range []string{simplePod, `{"spec":{"tolerations":[{"operator":"Exists"}]}}`} {
		review := podReview(t, admissionv1.Create, pod, "")
		_, wet := post(t, url, marshal(t, review))
		review.Request.DryRun = new(true)
		_, dry := post(t, url, marshal(t, review))
		require.Equal(t, wet, dry)
	}
	counted, err := config.Metrics.requests.GetMetricWithLabelValues("validate", "pods", "CREATE", "denied", "true")
	require.NoError(t, err)
	require.InDelta(t, 1, valueOf(t, counted), 0)
}

func TestB16OptionsOfAnotherKindChangeNothing(t *testing.T) {
	url := serveEndpoint(t, Validate(testConfig()))
	asked := podReview(t, admissionv1.Create, `{"spec":{"tolerations":[{"key":"dedicated","operator":"Exists"}]}}`, "")
	_, want := post(t, url, marshal(t, asked))
	require.False(t, answerOf(t, want).Response.Allowed)
	for _, options := range []string{
		`null`, `{}`, `[]`, `7`, `"x"`, `{"apiVersion":"meta.k8s.io/v1","kind":"DeleteOptions","gracePeriodSeconds":"soon"}`,
	} {
		asked.Request.Options.Raw = []byte(options)
		status, text := post(t, url, marshal(t, asked))
		require.Equal(t, http.StatusOK, status, text)
		require.Equal(t, want, text, options)
	}
}
