package handlers

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

var noon = time.Date(2026, time.November, 20, 12, 0, 0, 987_654_321, time.UTC)

func nodeReview(t *testing.T, operation admissionv1.Operation, object, old string) admissionv1.AdmissionReview {
	t.Helper()
	review := podReview(t, operation, object, old)
	review.Request.Kind = metav1.GroupVersionKind{Version: "v1", Kind: "Node"}
	review.Request.Resource = metav1.GroupVersionResource{Version: "v1", Resource: "nodes"}
	review.Request.Namespace = ""
	return review
}

func judgeNode(t *testing.T, endpoint *Endpoint, review admissionv1.AdmissionReview) admission.Response {
	t.Helper()
	req, err := readRequest(marshal(t, review))
	require.NoError(t, err)
	response, err := answer(t.Context(), endpoint.Review, req)
	require.NoError(t, err)
	return response
}

func atNoon() Config {
	config := testConfig()
	config.ServerClock = clocktesting.NewFakePassiveClock(noon)
	return config
}

// stamped applies the response's patch as an API server does.
func stamped(t *testing.T, object string, response admission.Response) []corev1.Taint {
	t.Helper()
	require.True(t, response.Allowed, "the mutator never refuses")
	patched := []byte(object)
	if len(response.Patches) > 0 {
		patch, err := jsonpatch.DecodePatch(marshal(t, response.Patches))
		require.NoError(t, err)
		patched, err = patch.Apply(patched)
		require.NoError(t, err)
	}
	var node corev1.Node
	require.NoError(t, json.Unmarshal(patched, &node))
	return node.Spec.Taints
}

func TestTaintsGetTheTimeFromWhichTheyCount(t *testing.T) {
	wholeNoon := metav1.NewTime(noon.Truncate(time.Second))
	bare := `{"spec":{"taints":[{"key":"a","effect":"NoSchedule","timeAdded":"2026-11-01T00:00:00Z"},{"key":"b","effect":"NoExecute"}]}}`
	for name, review := range map[string]admissionv1.AdmissionReview{
		"of a node that registers":   nodeReview(t, admissionv1.Create, bare, ""),
		"of a node that is tainted":  nodeReview(t, admissionv1.Update, bare, `{"spec":{"taints":[{"key":"a","effect":"NoSchedule","timeAdded":"2026-11-01T00:00:00Z"}]}}`),
		"of a node with no taints":   nodeReview(t, admissionv1.Update, bare, `{}`),
		"of a node with null taints": nodeReview(t, admissionv1.Update, bare, `{"spec":{"taints":null}}`),
	} {
		t.Run(name, func(t *testing.T) {
			endpoint := Mutate(atNoon())
			taints := stamped(t, bare, judgeNode(t, endpoint, review))
			require.Len(t, taints, 2)
			require.True(t, taints[1].TimeAdded.Equal(&wholeNoon), "%v", taints[1].TimeAdded)
			require.Equal(t, 2026, taints[0].TimeAdded.Year())

			again := nodeReview(t, review.Request.Operation, string(marshal(t, corev1.Node{Spec: corev1.NodeSpec{Taints: taints}})), string(review.Request.OldObject.Raw))
			require.Empty(t, judgeNode(t, endpoint, again).Patches, "a second round changes nothing")
		})
	}
}

func TestTP18AKubeletsUpdateThatChangesNoTaintIsNotPatched(t *testing.T) {
	node := `{"spec":{"taints":[{"key":"a","effect":"NoExecute"}]}}`
	require.Empty(t, judgeNode(t, Mutate(atNoon()), nodeReview(t, admissionv1.Update, node, node)).Patches)
}

func TestAStampIsLeftOutWhereTheCapabilityIsOff(t *testing.T) {
	config := atNoon()
	config.NodeTaintTimestamps = false
	node := `{"spec":{"taints":[{"key":"a","effect":"NoExecute"}]}}`
	require.Empty(t, judgeNode(t, Mutate(config), nodeReview(t, admissionv1.Create, node, "")).Patches)
}

func TestTheMutatorDoesNotRefuseWhatTheAPIServerWill(t *testing.T) {
	for _, node := range []string{
		`{"spec":{"taints":[{}]}}`,
		`{"spec":{"taints":[{"key":"a","effect":"NoExecute"},{"key":"a","effect":"NoExecute"}]}}`,
		`{"spec":{"taints":[{"key":"a/b/c","effect":"Unknown","timeAdded":null}]}}`,
	} {
		stamped(t, node, judgeNode(t, Mutate(atNoon()), nodeReview(t, admissionv1.Create, node, "")))
	}
}

func TestH01ATimeFarAheadIsRefused(t *testing.T) {
	tests := map[string]struct {
		time string
		want bool
	}{
		"a minute ahead":           {"2026-11-20T12:01:00Z", true},
		"more than a minute ahead": {"2026-11-20T12:01:05Z", false},
		"ten years ahead":          {"2036-11-20T12:00:00Z", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			node := `{"spec":{"taints":[{"key":"a","effect":"NoExecute","timeAdded":"` + tt.time + `"}]}}`
			response := judgeNode(t, Validate(atNoon()), nodeReview(t, admissionv1.Update, node, `{}`))
			require.Equal(t, tt.want, response.Allowed)
			if !tt.want {
				require.Contains(t, response.Result.Message, "spec.taints[0].timeAdded")
			}
			require.True(t, judgeNode(t, Validate(atNoon()), nodeReview(t, admissionv1.Update, node, node)).Allowed, "it stood there before")
		})
	}
}

func TestTheNodeLifecycleControllerIsNeverRefusedItsOwnKeys(t *testing.T) {
	node := `{"spec":{"taints":[{"key":"node.kubernetes.io/not-ready","effect":"NoExecute","timeAdded":"2026-11-20T13:00:00Z"}]}}`
	review := nodeReview(t, admissionv1.Update, node, `{}`)
	require.False(t, judgeNode(t, Validate(atNoon()), review).Allowed)
	for _, controller := range nodeLifecycleControllers {
		review.Request.UserInfo.Username = controller
		require.True(t, judgeNode(t, Validate(atNoon()), review).Allowed, controller)
		taints := stamped(t, node, judgeNode(t, Mutate(atNoon()), review))
		require.True(t, taints[0].TimeAdded.Time.Equal(noon.Truncate(time.Second)), "a time ahead is put right")
	}
}

func TestH02ATimeInThePastIsAllowedWithAWarning(t *testing.T) {
	node := `{"spec":{"taints":[{"key":"a","effect":"NoExecute","timeAdded":"2026-11-20T11:00:00Z"}]}}`
	response := judgeNode(t, Validate(atNoon()), nodeReview(t, admissionv1.Update, node, `{}`))
	require.True(t, response.Allowed)
	require.Len(t, response.Warnings, 1)
}

func TestAV21DuplicatesAreRefused(t *testing.T) {
	node := `{"spec":{"taints":[{"key":"a","effect":"NoExecute"},{"key":"a","value":"x","effect":"NoExecute"}]}}`
	response := judgeNode(t, Validate(atNoon()), nodeReview(t, admissionv1.Create, node, ""))
	require.False(t, response.Allowed)
	require.Contains(t, response.Result.Message, "spec.taints[1]")
}

func TestANodeWithTooManyTaintsIsRefused(t *testing.T) {
	many := make([]corev1.Taint, 1001)
	for i := range many {
		many[i] = corev1.Taint{Key: fmt.Sprintf("key-%d", i), Effect: corev1.TaintEffectNoSchedule}
	}
	one := asUser(nodeReview(t, admissionv1.Update, nodeJSON(t, nil, many[:1000]...), nodeJSON(t, nil, many...)), "carol")
	require.True(t, judgePod(t, testConfig(), one).Allowed, "one is taken away")

	more := nodeReview(t, admissionv1.Update, nodeJSON(t, nil, many...), nodeJSON(t, nil, many[:1000]...))
	response := judgePod(t, testConfig(), asUser(more, "carol"))
	require.False(t, response.Allowed)
	require.Contains(t, response.Result.Message, "spec.taints: Too many: 1001: must have at most 1000 items")
	for _, controller := range nodeLifecycleControllers {
		require.True(t, judgePod(t, testConfig(), asUser(more, controller)).Allowed, "a node that fails is tainted")
	}
}
