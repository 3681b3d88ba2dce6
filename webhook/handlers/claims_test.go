package handlers

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/webhook/review"
)

func TestAClaimIsJudged(t *testing.T) {
	exactly := func(tolerations ...string) string {
		return `[{"name":"r","exactly":{"deviceClassName":"c","tolerations":[` + strings.Join(tolerations, ",") + `]}}]`
	}
	firstAvailable := func(tolerations ...string) string {
		return `[{"name":"q"},{"name":"r","firstAvailable":[{"name":"s"},{"name":"t","tolerations":[` + strings.Join(tolerations, ",") + `]}]}]`
	}
	const fine = `{"key":"example.com/k","operator":"Equal","value":"v","effect":"NoExecute","tolerationSeconds":60}`
	const emptyKey = `{"operator":"Equal","value":"v"}`
	repeat := func(n int) []string { return strings.Split(strings.TrimSuffix(strings.Repeat(fine+";", n), ";"), ";") }
	tests := map[string]struct {
		requests, old string
		denied        string
		warned        string
	}{
		"no requests":                          {requests: `null`},
		"a request without tolerations":        {requests: `[{"name":"r","exactly":{"deviceClassName":"c"}}]`},
		"AV-09 a toleration":                   {requests: exactly(fine)},
		"AV-09 every taint":                    {requests: exactly(`{"operator":"Exists"}`)},
		"AV-09 Exists with a value":            {requests: exactly(`{"key":"k","operator":"Exists","value":"v"}`), denied: ".devices.requests[0].exactly.tolerations[0].value"},
		"AV-09 an operator of a later version": {requests: firstAvailable(`{"key":"k","operator":"Gt","value":"1"}`)},
		"AV-11 16 tolerations":                 {requests: exactly(repeat(16)...)},
		"AV-11 17 tolerations":                 {requests: exactly(repeat(17)...), denied: ".devices.requests[0].exactly.tolerations: Too many: 17: must have at most 16 items"},
		"AV-11 17 in a subrequest":             {requests: firstAvailable(repeat(17)...), denied: ".devices.requests[1].firstAvailable[1].tolerations: Too many: 17"},
		"AV-12 an empty key with Equal":        {requests: exactly(fine, emptyKey), denied: ".devices.requests[0].exactly.tolerations[1].operator: Invalid value"},
		"AV-12 an empty key and no operator":   {requests: firstAvailable(`{"value":"v"}`), denied: ".devices.requests[1].firstAvailable[1].tolerations[0].operator"},
		"AV-13 what stood there":               {requests: exactly(append(repeat(16), emptyKey)...), old: exactly(append(repeat(16), emptyKey)...)},
		"duplicates":                           {requests: exactly(fine, fine)},
		"DE-24 seconds without an effect":      {requests: exactly(`{"key":"k","tolerationSeconds":1}`), warned: ".devices.requests[0].exactly.tolerations[0].tolerationSeconds"},
		"seconds that do not count":            {requests: firstAvailable(`{"key":"k","effect":"NoSchedule","tolerationSeconds":1}`), warned: ".devices.requests[1].firstAvailable[1].tolerations[0].tolerationSeconds"},
	}
	for res, shape := range map[string]struct{ object, path string }{
		"resourceclaims":         {`{"metadata":{"name":"c"},"spec":{"devices":{"requests":%s,"config":[]}}}`, "spec"},
		"resourceclaimtemplates": {`{"metadata":{"name":"c"},"spec":{"metadata":{},"spec":{"devices":{"requests":%s}}}}`, "spec.spec"},
	} {
		for name, tt := range tests {
			t.Run(res+" "+name, func(t *testing.T) {
				old := ""
				if tt.old != "" {
					old = fmt.Sprintf(shape.object, tt.old)
				}
				response := judgeNode(t, Validate(atNoon()), deviceReview(t, res, "v1", fmt.Sprintf(shape.object, tt.requests), old))
				require.Equal(t, tt.denied == "", response.Allowed)
				if tt.denied != "" {
					require.Contains(t, response.Result.Message, shape.path+tt.denied)
				}
				if tt.warned == "" {
					require.Empty(t, response.Warnings)
					return
				}
				require.Len(t, response.Warnings, 1)
				require.Contains(t, response.Warnings[0], shape.path+tt.warned)
			})
		}
	}
}

func TestAClaimFromATemplateThatWasStoredBeforeIsLetIn(t *testing.T) {
	const controller, manager = "system:serviceaccount:kube-system:resource-claim-controller", "system:kube-controller-manager"
	const pod = `{"apiVersion":"v1","kind":"Pod","name":"p","uid":"1","controller":true}`
	const group = `{"apiVersion":"scheduling.k8s.io/v1beta1","kind":"PodGroup","name":"g","uid":"1","controller":true}`
	seventeen := `[{"operator":"Equal","value":"v"}` + strings.Repeat(`,{"key":"k"}`, 16) + `]`
	tests := map[string]struct {
		user, owners, tolerations string
		warned, denied            string
	}{
		"AV-11 17 tolerations":             {user: controller, owners: pod, tolerations: seventeen, warned: "exactly.tolerations: Too many: 17: must have at most 16 items; the claim is let in because its template was stored before this was checked"},
		"AV-12 an empty key with Equal":    {user: controller, owners: pod, tolerations: `[{"value":"v"}]`, warned: "exactly.tolerations[0].operator: Invalid value"},
		"AV-11 for a group":                {user: controller, owners: group, tolerations: seventeen, warned: "Too many: 17"},
		"AV-11 by the manager":             {user: manager, owners: `{"apiVersion":"v1","kind":"Node","name":"n","uid":"2"},` + pod, tolerations: seventeen, warned: "Too many: 17"},
		"AV-11 by somebody":                {user: "alice", owners: pod, tolerations: seventeen, denied: "Too many: 17"},
		"AV-12 by another controller":      {user: "system:serviceaccount:apple:resource-claim-controller", owners: pod, tolerations: `[{"value":"v"}]`, denied: "exactly.tolerations[0].operator"},
		"AV-11 for nobody":                 {user: controller, tolerations: seventeen, denied: "Too many: 17"},
		"AV-11 for an owner":               {user: controller, owners: strings.Replace(pod, "true", "false", 1), tolerations: seventeen, denied: "Too many: 17"},
		"AV-11 for something else":         {user: controller, owners: strings.Replace(pod, `"Pod"`, `"Node"`, 1), tolerations: seventeen, denied: "Too many: 17"},
		"AV-11 for a pod of another group": {user: controller, owners: strings.Replace(pod, `"v1"`, `"example.com/v1"`, 1), tolerations: seventeen, denied: "Too many: 17"},
		"AV-11 for a group of another API": {user: controller, owners: strings.Replace(group, "scheduling.k8s.io", "example.com", 1), tolerations: seventeen, denied: "Too many: 17"},
		"AV-09 a rule of Kubernetes holds": {user: controller, owners: pod, tolerations: `[{"key":"no key"}]`, denied: "exactly.tolerations[0].key: Invalid value"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			spec := `{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c","tolerations":` + tt.tolerations + `}}]}}`
			claim := `{"metadata":{"name":"c","ownerReferences":[` + tt.owners + `]},"spec":` + spec + `}`
			review := deviceReview(t, "resourceclaims", "v1", claim, "")
			review.Request.UserInfo.Username = tt.user
			response := judgeNode(t, Validate(atNoon()), review)
			require.Equal(t, tt.denied == "", response.Allowed)
			if tt.denied != "" {
				require.Contains(t, response.Result.Message, tt.denied)
				require.Empty(t, response.Warnings)
				return
			}
			require.Len(t, response.Warnings, 1)
			require.Contains(t, response.Warnings[0], tt.warned)
		})
	}
	t.Run("AV-11 a template is refused, whoever stores it", func(t *testing.T) {
		template := `{"metadata":{"name":"c","ownerReferences":[` + pod + `]},"spec":{"spec":{"devices":{"requests":[{"exactly":{"tolerations":` + seventeen + `}}]}}}}`
		review := deviceReview(t, "resourceclaimtemplates", "v1", template, "")
		review.Request.UserInfo.Username = controller
		require.False(t, judgeNode(t, Validate(atNoon()), review).Allowed)
	})
	t.Run("owners that no API server would send are not read", func(t *testing.T) {
		for _, metadata := range []string{`1`, `{"ownerReferences":{}}`, `{"ownerReferences":[{"controller":"yes"}]}`} {
			review := deviceReview(t, "resourceclaims", "v1", `{"metadata":`+metadata+`,"spec":{"devices":{"requests":[{"exactly":{"tolerations":`+seventeen+`}}]}}}`, "")
			review.Request.UserInfo.Username = controller
			req, err := readRequest(marshal(t, review))
			require.NoError(t, err)
			_, err = answer(t.Context(), Validate(atNoon()).Review, req)
			var bad *badReviewError
			require.ErrorAs(t, err, &bad, metadata)
		}
	})
}

// largestClaim is a claim with as much of everything in its requests as the API
// allows, and as short as it can be written, which is the most there is to decode.
func largestClaim(t *testing.T) string {
	t.Helper()
	toleration := resourcev1.DeviceToleration{Key: "a", Operator: "Equal", Value: "b", Effect: "NoExecute", TolerationSeconds: new(int64(1))}
	var claim resourcev1.ResourceClaim
	for range resourcev1.DeviceRequestsMaxSize {
		var alternatives []resourcev1.DeviceSubRequest
		for range resourcev1.FirstAvailableDeviceRequestMaxSize {
			sub := resourcev1.DeviceSubRequest{Name: "s"}
			for range resourcev1.DeviceTolerationsMaxLength {
				sub.Tolerations = append(sub.Tolerations, toleration)
			}
			for range resourcev1.DeviceSelectorsMaxSize {
				sub.Selectors = append(sub.Selectors, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: "true"}})
			}
			alternatives = append(alternatives, sub)
		}
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, resourcev1.DeviceRequest{FirstAvailable: alternatives})
	}
	return string(marshal(t, claim))
}

func TestTheLargestClaimIsRead(t *testing.T) {
	response := judgeNode(t, Validate(atNoon()), deviceReview(t, "resourceclaims", "v1", largestClaim(t), ""))
	require.True(t, response.Allowed)
	require.Empty(t, response.Warnings)
}

func TestAClaimThatNoAPIServerWouldSendIsNotJudged(t *testing.T) {
	for _, spec := range []string{
		`1`, `{"devices":[]}`, `{"devices":{"requests":{}}}`, `{"devices":{"requests":[{"exactly":{"tolerations":{}}}]}}`,
		`{"devices":{"requests":[{"exactly":{"tolerations":[{"key":"a","key":"b"}]}}]}}`,
		`{"devices":{"requests":[{"exactly":{"tolerations":[{}` + strings.Repeat(",{}", 60_000) + `]}}]}}`,
		`{"devices":{"requests":[{"exactly":{"tolerations":[{}` + strings.Repeat(`,{"key":"aaaaaaaa"}`, 100_000) + `]}}]}}`,
	} {
		for res, object := range map[string]string{"resourceclaims": `{"spec":` + spec + `}`, "resourceclaimtemplates": `{"spec":{"spec":` + spec + `}}`} {
			for _, old := range []string{"", `{}`} {
				req, err := readRequest(marshal(t, deviceReview(t, res, "v1", object, old)))
				if err != nil {
					require.ErrorContains(t, err, "the text has more than")
					continue
				}
				_, err = answer(t.Context(), Validate(atNoon()).Review, req)
				var bad *badReviewError
				require.ErrorAs(t, err, &bad, spec)
			}
		}
	}
}

func FuzzDecodeClaim(f *testing.F) {
	f.Add(`{"spec":{"devices":{"requests":[{"exactly":{"tolerations":[{"key":"a"}]}}]}}}`, false)
	f.Add(`{"spec":{"spec":{"devices":{"requests":[{"firstAvailable":[{"tolerations":[{"key":"a","tolerationSeconds":1}]}]}]}}}}`, true)
	f.Fuzz(func(t *testing.T, object string, template bool) {
		v, err := review.Parse([]byte(object))
		if err != nil {
			return
		}
		r := request{Request: &review.Request{}}
		if template {
			r.Resource.Resource = "resourceclaimtemplates"
		}
		found := readRequests(&r.Fields, r.claim(v))
		if r.Err() != nil {
			return
		}
		for i := range found {
			if e := found[i].Exactly; e != nil {
				require.LessOrEqual(t, len(e.Tolerations), maxRequestElements+len(object))
			}
		}
	})
}
