package handlers

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// placing are policies of placement that do not change.
type placing struct{ policies *policyset.Set }

func (p placing) Current() *policyset.Set { return p.policies }

func placements(policies ...v1alpha1.PlacementPolicy) placing {
	return placing{(*policyset.Set)(nil).WithPlacement(policies)}
}

// givingPods is a policy that gives something to the pods of banana.
func givingPods(name string, given v1alpha1.PodPlacement) v1alpha1.PlacementPolicy {
	return v1alpha1.PlacementPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.PlacementPolicySpec{Match: v1alpha1.PlacementMatch{Namespaces: []string{"banana"}}, Pod: &given},
	}
}

func everythingForPods() v1alpha1.PlacementPolicy {
	return givingPods("all", v1alpha1.PodPlacement{
		Tolerations:     []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "banana"}},
		NodeSelector:    map[string]string{"example.com/dedicated": "banana"},
		NodeAffinity:    []corev1.NodeSelectorRequirement{{Key: "gpu", Operator: corev1.NodeSelectorOpExists}},
		TopologySpread:  &v1alpha1.TopologySpreadDefaults{NodeTaintsPolicy: new(corev1.NodeInclusionPolicyHonor)},
		SchedulingGates: []string{"example.com/queue"},
	})
}

// fixedClasses are the classes of all pods with claims or extended resources.
type fixedClasses []string

func (f fixedClasses) OfPod(_ context.Context, _ string, claims []corev1.PodResourceClaim, resources []string) ([]string, error) {
	if len(claims) == 0 && len(extended(resources)) == 0 {
		return nil, nil
	}
	if len(f) == 0 {
		return nil, io.ErrUnexpectedEOF
	}
	return f, nil
}

func testPlacer(classes ...string) *reviewer {
	return newReviewer(Config{
		Readers: Readers{
			Namespaces: fixedNamespaces{"apple": nil, "banana": {"team": "banana"}}, DeviceClasses: fixedClasses(classes),
		},
		Authorizers: Authorizers{Authorizer: permitting()},
	})
}

// by returns a reviewer by other policies.
func by(r *reviewer, policies policySource) *reviewer {
	r.Policies = policies
	return r
}

// creating is the request that creates an object in banana.
func creating(object string) *review.Request {
	req, err := review.Of(&admissionv1.AdmissionRequest{
		UID: "1", Operation: admissionv1.Create, Namespace: "banana",
		UserInfo: authenticationv1.UserInfo{Username: "alice"}, Object: runtime.RawExtension{Raw: []byte(object)},
	})
	if err != nil {
		panic(err)
	}
	return req
}

// ofTemplates returns a handler of requests that are about templates of claims.
func ofTemplates(handle Handler) Handler {
	return func(ctx context.Context, req *review.Request) (Result, error) {
		req.Resource.Resource = "resourceclaimtemplates"
		return handle(ctx, req)
	}
}

// misplaced returns what policies find about the pod that a request creates.
func misplaced(ctx context.Context, r *reviewer, policies *policyset.Set, req *review.Request) ([]policy.Finding, error) {
	found, err := request{r, req, policies}.misplacedPod(ctx)
	return found, cmp.Or(req.Err(), err)
}

// placedBy applies what a handler answers to the object, as the API server does.
func placedBy(t *testing.T, handle Handler, object string) string {
	t.Helper()
	response, err := answer(t.Context(), handle, creating(object))
	require.NoError(t, err)
	require.True(t, response.Allowed)
	require.Empty(t, response.Warnings)
	if len(response.Patches) == 0 {
		return object
	}
	text, err := json.Marshal(response.Patches)
	require.NoError(t, err)
	patch, err := jsonpatch.DecodePatch(text)
	require.NoError(t, err)
	out, err := patch.Apply([]byte(object))
	require.NoError(t, err, string(text))
	return string(out)
}

func TestPodsAreGivenWhatPoliciesHaveForThem(t *testing.T) {
	giver := by(testPlacer(), placements(everythingForPods())).mutating(request.mutatePod)
	toleration := `{"key":"dedicated","operator":"Equal","value":"banana"}`
	gpu := `{"key":"gpu","operator":"Exists"}`
	required := `"requiredDuringSchedulingIgnoredDuringExecution"`
	tests := []struct{ name, spec, want string }{
		{
			"a bare pod",
			`{}`,
			`{"tolerations":[` + toleration + `],"nodeSelector":{"example.com/dedicated":"banana"},"schedulingGates":[{"name":"example.com/queue"}],
			  "affinity":{"nodeAffinity":{` + required + `:{"nodeSelectorTerms":[{"matchExpressions":[` + gpu + `]}]}}}}`,
		},
		{
			"empty and null fields",
			`{"tolerations":null,"nodeSelector":{},"schedulingGates":[],"affinity":null}`,
			`{"tolerations":[` + toleration + `],"nodeSelector":{"example.com/dedicated":"banana"},"schedulingGates":[{"name":"example.com/queue"}],
			  "affinity":{"nodeAffinity":{` + required + `:{"nodeSelectorTerms":[{"matchExpressions":[` + gpu + `]}]}}}}`,
		},
		{
			"a pod with something in each field",
			`{"tolerations":[{"key":"x","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],"nodeSelector":{"a~b/c":"d"},"schedulingGates":[{"name":"x"}],
			  "affinity":{"podAffinity":{},"nodeAffinity":{` + required + `:{"nodeSelectorTerms":[{"matchExpressions":[{"key":"k","operator":"In","values":["v"]}]},{"matchFields":[{"key":"metadata.name","operator":"In","values":["n"]}]},{}]}}},
			  "topologySpreadConstraints":[{"topologyKey":"zone"},{"nodeTaintsPolicy":"Ignore"}]}`,
			`{"tolerations":[{"key":"x","operator":"Exists","effect":"NoExecute","tolerationSeconds":300},` + toleration + `],
			  "nodeSelector":{"a~b/c":"d","example.com/dedicated":"banana"},"schedulingGates":[{"name":"x"},{"name":"example.com/queue"}],
			  "affinity":{"podAffinity":{},"nodeAffinity":{` + required + `:{"nodeSelectorTerms":[{"matchExpressions":[{"key":"k","operator":"In","values":["v"]},` + gpu + `]},{"matchFields":[{"key":"metadata.name","operator":"In","values":["n"]}],"matchExpressions":[` + gpu + `]},{}]}}},
			  "topologySpreadConstraints":[{"topologyKey":"zone","nodeTaintsPolicy":"Honor"},{"nodeTaintsPolicy":"Ignore"}]}`,
		},
		{
			"affinity of another kind",
			`{"affinity":{"podAffinity":{}},"tolerations":[{"operator":"Exists"}],"schedulingGates":[{"name":"example.com/queue"}]}`,
			`{"affinity":{"podAffinity":{},"nodeAffinity":{` + required + `:{"nodeSelectorTerms":[{"matchExpressions":[` + gpu + `]}]}}},"nodeSelector":{"example.com/dedicated":"banana"},
			  "tolerations":[{"operator":"Exists"}],"schedulingGates":[{"name":"example.com/queue"}]}`,
		},
		{
			"a preference",
			`{"affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[]}},"nodeName":"n"}`,
			`{"affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[],` + required + `:{"nodeSelectorTerms":[{"matchExpressions":[` + gpu + `]}]}}},"nodeName":"n",
			  "tolerations":[` + toleration + `],"nodeSelector":{"example.com/dedicated":"banana"}}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, metadata := range []string{`{"name":"p"}`, `{"generateName":"p-"}`, `{}`} {
				object := `{"metadata":` + metadata + `,"spec":` + tt.spec + `}`
				once := placedBy(t, giver, object)
				require.JSONEq(t, `{"metadata":`+metadata+`,"spec":`+tt.want+`}`, once)
				require.JSONEq(t, once, placedBy(t, giver, once), "D08 a second round changes nothing")
			}
		})
	}
}

func TestPatchesTouchOnlyWhatIsDeclared(t *testing.T) {
	giver := by(testPlacer(), placements(everythingForPods())).mutating(request.mutatePod)
	response, err := answer(t.Context(), giver, creating(`{"metadata":{"name":"p"},"spec":{"topologySpreadConstraints":[{}]}}`))
	require.NoError(t, err)
	declared := []string{tolerationsPointer, gatesPointer, selectorPointer, affinityPointer, spreadPointer}
	for _, operation := range response.Patches {
		if operation.Operation == "test" {
			continue
		}
		require.Equal(t, "add", operation.Operation)
		declaredPath := false
		for _, pointer := range declared {
			declaredPath = declaredPath || operation.Path == pointer || strings.HasPrefix(operation.Path, pointer+"/")
		}
		require.True(t, declaredPath, operation.Path)
	}
}

func TestAPatchForAnotherPodFails(t *testing.T) {
	giver := by(testPlacer(), placements(everythingForPods())).mutating(request.mutatePod)
	object := `{"metadata":{"name":"p"},"spec":{"tolerations":[{"key":"x","operator":"Exists"}]}}`
	response, err := answer(t.Context(), giver, creating(object))
	require.NoError(t, err)
	text, err := json.Marshal(response.Patches)
	require.NoError(t, err)
	patch, err := jsonpatch.DecodePatch(text)
	require.NoError(t, err)
	_, err = patch.Apply([]byte(object))
	require.NoError(t, err)
	for _, other := range []string{
		`{"metadata":{"name":"q"},"spec":{"tolerations":[{"key":"x","operator":"Exists"}]}}`,
		`{"metadata":{"name":"p"},"spec":{"tolerations":[{"key":"y","operator":"Exists"}]}}`,
	} {
		_, err := patch.Apply([]byte(other))
		require.Error(t, err)
	}
}

func TestWhoIsGivenNothing(t *testing.T) {
	giver := by(testPlacer(), placements(everythingForPods())).mutating(request.mutatePod)
	pod := `{"metadata":{"name":"p","annotations":{"kubernetes.io/config.mirror":"x"}},"spec":{"nodeName":"n1"}}`
	given := func(change func(*review.Request)) bool {
		req := creating(pod)
		change(req)
		response, err := answer(t.Context(), giver, req)
		require.NoError(t, err)
		require.True(t, response.Allowed)
		return len(response.Patches) > 0
	}
	require.True(t, given(func(*review.Request) {}), "C14 the annotation alone makes no mirror")
	require.False(t, given(func(req *review.Request) {
		req.UserInfo = authenticationv1.UserInfo{Username: "system:node:n1", Groups: []string{"system:nodes"}}
	}), "C13 a mirror of a static pod")
	require.False(t, given(func(req *review.Request) { req.Namespace = "apple" }), "a pod elsewhere")
	require.False(t, given(func(req *review.Request) {
		req.Operation, req.OldObject.Raw = admissionv1.Update, []byte(pod)
	}), "a pod that is there")
}

func TestPodsOfADaemonSetAreNotSteered(t *testing.T) {
	giver := by(testPlacer(), placements(everythingForPods())).mutating(request.mutatePod)
	req := creating(`{"metadata":{"name":"p"},"spec":{}}`)
	req.UserInfo.Username = daemonSetControllers[0]
	response, err := answer(t.Context(), giver, req)
	require.NoError(t, err)
	text, err := json.Marshal(response.Patches)
	require.NoError(t, err)
	require.Contains(t, string(text), tolerationsPointer)
	require.NotContains(t, string(text), selectorPointer)
	require.NotContains(t, string(text), affinityPointer)
}

func TestNothingIsGivenBlindly(t *testing.T) {
	giver := by(testPlacer(), placing{}).mutating(request.mutatePod)
	_, err := answer(t.Context(), giver, creating(`{}`))
	require.ErrorIs(t, err, errNoPolicies)
	_, err = answer(t.Context(), by(testPlacer(), placing{}).mutating(request.mutateClaim), creating(`{}`))
	require.ErrorIs(t, err, errNoPolicies)

	giver = by(testPlacer(), placements(everythingForPods())).mutating(request.mutatePod)
	req := creating(`{}`)
	req.Namespace = "unknown"
	_, err = answer(t.Context(), giver, req)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)

	for _, broken := range []string{
		`[]`, `{"metadata":[]}`, `{"metadata":{"labels":[]}}`, `{"metadata":{"name":1}}`, `{"spec":{"tolerations":{}}}`, `{"spec":{"nodeName":[]}}`,
		`{"spec":{"affinity":[]}}`, `{"spec":{"tolerations":[],"tolerations":[]}}`, `{"spec":{"nodeSelector":[]}}`,
	} {
		_, err = answer(t.Context(), giver, creating(broken))
		require.ErrorAs(t, err, new(*badReviewError), broken)
	}
}

func TestPodsAreMatchedByWhatTheyRequest(t *testing.T) {
	byResource := givingPods("r", v1alpha1.PodPlacement{NodeSelector: map[string]string{"gpu": "true"}})
	byResource.Spec.Match = v1alpha1.PlacementMatch{Resources: []string{"example.com/gpu"}}
	byClass := givingPods("c", v1alpha1.PodPlacement{NodeSelector: map[string]string{"class": "true"}})
	byClass.Spec.Match = v1alpha1.PlacementMatch{DeviceClasses: []string{"gpu.example.com"}}
	giver := by(testPlacer("gpu.example.com"), placements(byResource, byClass)).mutating(request.mutatePod)
	tests := []struct{ name, spec, want string }{
		{"nothing", `"containers":[{"resources":{"requests":{"cpu":"1"}}}]`, ``},
		{"a container", `"containers":[{},{"resources":{"requests":{"cpu":1,"example.com/gpu":"1"}}}]`, `"nodeSelector":{"class":"true","gpu":"true"}`},
		{"C02 an init container or sidecar", `"initContainers":[{"restartPolicy":"Always","resources":{"requests":{"example.com/gpu":1}}}]`, `"nodeSelector":{"class":"true","gpu":"true"}`},
		{"the pod as a whole", `"resources":{"requests":{"example.com/gpu":"2"}}`, `"nodeSelector":{"class":"true","gpu":"true"}`},
		{"none of it", `"containers":[{"resources":{"requests":{"example.com/gpu":"0"}}}]`, ``},
		{"a claim", `"resourceClaims":[{"name":"gpu","resourceClaimTemplateName":"t"}]`, `"nodeSelector":{"class":"true"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := tt.spec
			if tt.want != "" {
				want += "," + tt.want
			}
			require.JSONEq(t, `{"spec":{`+want+`}}`, placedBy(t, giver, `{"spec":{`+tt.spec+`}}`))
		})
	}
	t.Run("a fault is no verdict", func(t *testing.T) {
		broken := by(testPlacer(), placements(byClass)).mutating(request.mutatePod)
		_, err := answer(t.Context(), broken, creating(`{"spec":{"resourceClaims":[{"name":"x"}]}}`))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		_, err = answer(t.Context(), broken, creating(`{"spec":{"resourceClaims":{}}}`))
		require.ErrorAs(t, err, new(*badReviewError))
		_, err = answer(t.Context(), by(testPlacer(), placements(byResource)).mutating(request.mutatePod), creating(`{"spec":{"containers":{}}}`))
		require.ErrorAs(t, err, new(*badReviewError))
	})
}

func TestPlacementIsValidated(t *testing.T) {
	policies := placements(everythingForPods()).Current()
	p := testPlacer()
	find := func(object string) policy.Decision {
		found, err := misplaced(t.Context(), p, policies, creating(object))
		require.NoError(t, err)
		return policy.Decide(found)
	}
	decision := find(`{"metadata":{"name":"p"},"spec":{"nodeSelector":{"example.com/dedicated":"kiwi"},"schedulingGates":[{"name":"example.com/queue"}]}}`)
	require.Equal(t, policy.Denied, decision.Verdict)
	require.Equal(t, policy.PlacementContradicted, decision.Findings[0].Reason)

	giver := by(p, placements(everythingForPods())).mutating(request.mutatePod)
	require.Empty(t, find(placedBy(t, giver, `{"metadata":{"name":"p"},"spec":{}}`)).Findings)
	_, err := misplaced(t.Context(), p, policies, creating(`[]`))
	require.ErrorAs(t, err, new(*badReviewError))

	found, err := misplaced(t.Context(), p, policyset.None(), creating(`[]`))
	require.NoError(t, err)
	require.Empty(t, found)
}

// D07: the patch is the same to the byte, whatever the order of the policies.
func TestD07PatchesAreStable(t *testing.T) {
	policies := []v1alpha1.PlacementPolicy{
		everythingForPods(),
		givingPods("b", v1alpha1.PodPlacement{NodeSelector: map[string]string{"example.com/dedicated": "kiwi", "zone": "a", "rack": "7"}}),
		givingPods("c", v1alpha1.PodPlacement{Tolerations: []corev1.Toleration{{Key: "x", Operator: corev1.TolerationOpExists}}}),
		givingPods("d", v1alpha1.PodPlacement{SchedulingGates: []string{"example.com/quota"}}),
	}
	object := `{"metadata":{"name":"p"},"spec":{"nodeSelector":{"k":"v"},"topologySpreadConstraints":[{}]}}`
	answer := func() string {
		response, err := answer(t.Context(), by(testPlacer(), placements(policies...)).mutating(request.mutatePod), creating(object))
		require.NoError(t, err)
		text, err := json.Marshal(response.Patches)
		require.NoError(t, err)
		return string(text)
	}
	want := answer()
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		random.Shuffle(len(policies), func(i, j int) { policies[i], policies[j] = policies[j], policies[i] })
		require.Equal(t, want, answer())
	}
}
