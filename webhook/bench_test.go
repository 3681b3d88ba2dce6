package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// typicalPod is a pod as a Deployment makes them; its review is about 2.7 KB.
func typicalPod() *corev1.Pod {
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			GenerateName:    "web-7d4b9c6f5d-",
			Namespace:       "banana",
			Labels:          map[string]string{"app": "web", "pod-template-hash": "7d4b9c6f5d"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-7d4b9c6f5d", UID: "5f1a", Controller: new(true)}},
		},
		Spec: corev1.PodSpec{
			ServiceAccountName: "web",
			Tolerations: []corev1.Toleration{
				{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "banana", Effect: corev1.TaintEffectNoSchedule},
				{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
				{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
			},
		},
	}
	for _, name := range []string{"web", "proxy"} {
		container := corev1.Container{
			Name:  name,
			Image: "registry.example.com/team/" + name + ":v1.2.3",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: quantity.MustParse("100m"), corev1.ResourceMemory: quantity.MustParse("128Mi"),
			}},
			VolumeMounts: []corev1.VolumeMount{{Name: "kube-api-access", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}},
		}
		for i := range 10 {
			container.Env = append(container.Env, corev1.EnvVar{Name: "SETTING_" + string(rune('A'+i)), Value: strings.Repeat("v", 24)})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, container)
	}
	return pod
}

func typicalReview(tb testing.TB) []byte {
	tb.Helper()
	pod, err := json.Marshal(typicalPod())
	require.NoError(tb, err)
	review := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID:       "705ab4f5-6393-11e8-b7cc-42010a800002",
			Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Namespace: "banana",
			Operation: admissionv1.Create,
		},
	}
	review.Request.UserInfo.Username = "system:serviceaccount:kube-system:replicaset-controller"
	review.Request.UserInfo.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"}
	review.Request.Object.Raw = pod
	body, err := json.Marshal(review)
	require.NoError(tb, err)
	return body
}

// discard is a response that nobody reads.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header       { return d.header }
func (*discard) Write(p []byte) (int, error) { return len(p), nil }
func (*discard) WriteHeader(int)             {}

// The server sets deadlines of connections; a writer without them makes an error of each.
func (*discard) SetReadDeadline(time.Time) error  { return nil }
func (*discard) SetWriteDeadline(time.Time) error { return nil }

// benchmarkHandler measures a review without network.
func benchmarkHandler(b *testing.B, handler http.Handler) {
	b.Helper()
	body := typicalReview(b)
	req := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/validate?timeout=3s", http.NoBody)
	req.Header.Set("Content-Type", "application/json")
	req.ContentLength = int64(len(body))
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		req.Body = io.NopCloser(bytes.NewReader(body))
		handler.ServeHTTP(&discard{header: http.Header{}}, req)
	}
}

// BenchmarkReview compares one review of a pod with a policy to
// controller-runtime's handler, which decodes the envelope and allows.
func BenchmarkReview(b *testing.B) {
	b.Run("tollgate", func(b *testing.B) {
		benchmarkHandler(b, Validate(testConfig()))
	})
	b.Run("controller-runtime-empty", func(b *testing.B) {
		benchmarkHandler(b, &admission.Webhook{Handler: admission.HandlerFunc(
			func(context.Context, admission.Request) admission.Response { return admission.Allowed("") })})
	})
	b.Run("controller-runtime-decodes-the-pod", func(b *testing.B) {
		benchmarkHandler(b, &admission.Webhook{Handler: admission.HandlerFunc(
			func(_ context.Context, req admission.Request) admission.Response {
				var pod corev1.Pod
				if err := review.Unmarshal(req.Object.Raw, &pod); err != nil {
					return admission.Errored(http.StatusBadRequest, err)
				}
				return admission.Allowed("")
			})})
	})
}

// TestAReviewAllocatesLittle is the gate on what a review costs. Unlike its
// time, that does not vary with the machine. How many policies there are costs
// nothing, and those that look at the pod cost little (PA5, PA9).
func TestAReviewAllocatesLittle(t *testing.T) {
	const expression = "toleration.key == 'dedicated' && pod.metadata.labels.app == 'web'"
	guarding := func(n int, matches matching, expression string) *policyset.Set {
		return policyset.None().WithTolerations(guardingShare(n, matches, expression))
	}
	body := typicalReview(t)
	for name, tt := range map[string]struct {
		policies *policyset.Set
		endpoint func(Config) *Endpoint
		// most includes what the request costs.
		most float64
	}{
		"a policy that grants by namespace":            {guarding(1, all, ""), Validate, 105},
		"a thousand, of which ten match":               {guarding(1000, onePercent, ""), Validate, 105},
		"a thousand that match":                        {guarding(1000, all, ""), Validate, 105},
		"a policy that grants by expression":           {guarding(1, all, expression), Validate, 155},
		"a thousand that grant by the same expression": {guarding(1000, all, expression), Validate, 155},
		"a policy that gives pods a node selector":     {policyset.None().WithPlacement(givingShare(1, all)), Mutate, 115},
		"a thousand that give pods the same":           {policyset.None().WithPlacement(givingShare(1000, all)), Mutate, 115},
	} {
		t.Run(name, func(t *testing.T) {
			endpoint := tt.endpoint(withPolicies(tt.policies))
			require.LessOrEqual(t, testing.AllocsPerRun(200, func() {
				req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/validate?timeout=3s", bytes.NewReader(body))
				req.Header.Set("Content-Type", "application/json")
				endpoint.ServeHTTP(&discard{header: http.Header{}}, req)
			}), tt.most)
		})
	}
}
