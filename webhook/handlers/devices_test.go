package handlers

import (
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/tracker"
)

// deviceReview returns the review of an object of resource.k8s.io; a resource may be
// followed by its subresource, as in resourceclaims/status.
func deviceReview(t *testing.T, res, version, object, old string) admissionv1.AdmissionReview {
	t.Helper()
	operation := admissionv1.Create
	if old != "" {
		operation = admissionv1.Update
	}
	review := podReview(t, operation, object, old)
	review.Request.Resource = metav1.GroupVersionResource{Group: "resource.k8s.io", Version: version, Resource: res}
	if res == "resourceclaims/status" {
		review.Request.Resource.Resource, review.Request.SubResource = "resourceclaims", "status"
	}
	return review
}

// patched returns object with the patch of the response, as an API server has it.
func patched(t *testing.T, object string, response admission.Response) string {
	t.Helper()
	require.True(t, response.Allowed, "the mutator never refuses")
	if len(response.Patches) == 0 {
		return object
	}
	patch, err := jsonpatch.DecodePatch(marshal(t, response.Patches))
	require.NoError(t, err)
	out, err := patch.Apply([]byte(object))
	require.NoError(t, err)
	return string(out)
}

// obstacles are taints that do not change.
type obstacles struct {
	found   []tracker.Obstacle
	unknown bool
	asked   *[]tracker.AllocatedDevice
}

func (o obstacles) Untolerated(devices []tracker.AllocatedDevice, _ time.Time) ([]tracker.Obstacle, bool) {
	if o.asked != nil {
		*o.asked = devices
	}
	return o.found, !o.unknown
}

// deviceWrites has one write of each resource that is refused and one that is stamped.
func deviceWrites() map[string]string {
	return map[string]string{
		"resourceslices":         `{"spec":{"devices":[{"name":"a","taints":[{"key":"no key","effect":"NoSchedule"}]}]}}`,
		"devicetaintrules":       `{"spec":{"taint":{"key":"no key","effect":"NoSchedule"}}}`,
		"resourceclaims":         `{"spec":{"devices":{"requests":[{"exactly":{"tolerations":[{"operator":"Equal"}]}}]}}}`,
		"resourceclaimtemplates": `{"spec":{"spec":{"devices":{"requests":[{"exactly":{"tolerations":[{"operator":"Equal"}]}}]}}}}`,
		"resourceclaims/status":  `{"status":{"reservedFor":[{"resource":"pods","name":"p","uid":"1"}]}}`,
	}
}

func TestTheAdmissionOfDevicesCanBeSwitchedOff(t *testing.T) {
	config := atNoon()
	config.DeviceTaints = obstacles{found: []tracker.Obstacle{{}}}
	off := config
	off.DeviceTaintAdmission = false
	for res, object := range deviceWrites() {
		t.Run(res, func(t *testing.T) {
			old := ""
			if res == "resourceclaims/status" {
				old = `{"status":{"allocation":{}}}`
			}
			review := deviceReview(t, res, "v1", object, old)
			require.False(t, judgeNode(t, Validate(config), review).Allowed)
			require.True(t, judgeNode(t, Validate(off), review).Allowed)
			require.Empty(t, judgeNode(t, Mutate(off), review).Patches)
			require.Equal(t, res == "resourceslices" || res == "devicetaintrules", len(judgeNode(t, Mutate(config), review).Patches) > 0)
		})
	}
}

func TestOnlyTheStatusOfClaimsIsASubresourceThatIsJudged(t *testing.T) {
	for _, endpoint := range []*Endpoint{Mutate(testConfig()), Validate(testConfig())} {
		for _, res := range []string{"resourceslices", "devicetaintrules", "resourceclaimtemplates", "nodes", "pods"} {
			review := deviceReview(t, res, "v1", `{}`, `{}`)
			review.Request.SubResource = "status"
			req, err := readRequest(marshal(t, review))
			require.NoError(t, err)
			_, err = answer(t.Context(), endpoint.Review, req)
			var bad *badReviewError
			require.ErrorAs(t, err, &bad, res)
		}
	}
}
