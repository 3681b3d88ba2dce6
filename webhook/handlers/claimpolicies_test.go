package handlers

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/policy"
)

// guardedGPUs is a policy under which only alice tolerates the taints of GPUs.
func guardedGPUs(t *testing.T, more string) holding {
	t.Helper()
	return granting(t, map[string]string{
		"gpus": `{taints: [{target: Device, key: "gpu.example.com/*"` + more + `}], grants: [{subjects: [{kind: User, name: alice}]}]}`,
	})
}

const unhealthy = `{"key":"gpu.example.com/unhealthy","operator":"Exists","effect":"NoExecute"}`

// claimOf returns a claim, or a template of claims, with requests.
func claimOf(template bool, requests string) string {
	spec := `{"devices":{"requests":[` + requests + `]}}`
	if template {
		return `{"metadata":{"name":"c"},"spec":{"metadata":{"labels":{"app":"web"}},"spec":` + spec + `}}`
	}
	return `{"metadata":{"name":"c","labels":{"app":"web"}},"spec":` + spec + `}`
}

func TestTolerationsOfClaimsAreJudgedByDeviceClass(t *testing.T) {
	exactly := func(class, tolerations string) string {
		return fmt.Sprintf(`{"name":"r","exactly":{"deviceClassName":%q,"tolerations":[%s]}}`, class, tolerations)
	}
	tests := map[string]struct {
		who      authenticationv1.UserInfo
		guards   string
		requests string
		at       string
	}{
		"a guarded taint":                        {named("mallory"), "", exactly("gpu", unhealthy), "[0].exactly.tolerations[0]"},
		"C17 every taint":                        {named("mallory"), "", exactly("gpu", `{"operator":"Exists"}`), "[0].exactly.tolerations[0]"},
		"a taint that nobody guards":             {named("mallory"), "", exactly("gpu", `{"key":"other","operator":"Exists"}`), ""},
		"who may":                                {named("alice"), "", exactly("gpu", unhealthy), ""},
		"the class that is guarded":              {named("mallory"), `, deviceClasses: [gpu]`, exactly("gpu", unhealthy), "[0].exactly.tolerations[0]"},
		"another class":                          {named("mallory"), `, deviceClasses: [gpu]`, exactly("nic", unhealthy), ""},
		"a later request":                        {named("mallory"), "", exactly("gpu", "") + "," + exactly("gpu", unhealthy), "[1].exactly.tolerations[0]"},
		"an alternative":                         {named("mallory"), "", `{"name":"r","firstAvailable":[{"name":"a","deviceClassName":"gpu"},{"name":"b","deviceClassName":"gpu","tolerations":[` + unhealthy + `]}]}`, "[0].firstAvailable[1].tolerations[0]"},
		"an alternative of another class":        {named("mallory"), `, deviceClasses: [gpu]`, `{"name":"r","firstAvailable":[{"name":"a","deviceClassName":"nic","tolerations":[` + unhealthy + `]}]}`, ""},
		"admin access exempts from nothing":      {named("mallory"), "", `{"name":"r","exactly":{"deviceClassName":"gpu","adminAccess":true,"tolerations":[` + unhealthy + `]}}`, "[0].exactly.tolerations[0]"},
		"C27 what the scheduler makes for a pod": {named("system:kube-scheduler"), "", exactly("gpu", ""), ""},
		"C27 what is made like the scheduler":    {named("mallory"), "", exactly("gpu", unhealthy), "[0].exactly.tolerations[0]"},
	}
	for name, tt := range tests {
		for res, template := range map[string]bool{"resourceclaims": false, "resourceclaimtemplates": true} {
			t.Run(res+" "+name, func(t *testing.T) {
				config := testConfig()
				config.Policies = guardedGPUs(t, tt.guards)
				object := claimOf(template, tt.requests)
				response := judgePod(t, config, asked(t, "resource.k8s.io/"+res, "", tt.who, object, nil))
				if tt.at == "" {
					require.True(t, response.Allowed)
					return
				}
				path := map[bool]string{false: "spec", true: "spec.spec"}[template] + ".devices.requests"
				requireRefused(t, response, policy.TolerationNotGranted, path+tt.at, "TolerationPolicy/gpus")
				require.True(t, judgePod(t, config, asked(t, "resource.k8s.io/"+res, "", tt.who, object, object)).Allowed, "C28 it stood there")
				config.DeviceTaintAdmission = false
				requireRefused(t, judgePod(t, config, asked(t, "resource.k8s.io/"+res, "", tt.who, object, nil)), policy.TolerationNotGranted, path+tt.at)
			})
		}
	}
}

func TestExpressionsSeeTheClaim(t *testing.T) {
	config := testConfig()
	config.Policies = granting(t, map[string]string{"gpus": `{taints: [{target: Device, key: "*"}],
		grants: [{expression: "claim.metadata.labels.app == 'web' && size(claim.spec.devices.requests) == 1 && toleration.effect == 'NoExecute'"}]}`})
	request := `{"name":"r","exactly":{"deviceClassName":"gpu","tolerations":[` + unhealthy + `]}}`
	for res, template := range map[string]bool{"resourceclaims": false, "resourceclaimtemplates": true} {
		require.True(t, judgePod(t, config, asked(t, "resource.k8s.io/"+res, "", named("bob"), claimOf(template, request), nil)).Allowed, res)
		require.False(t, judgePod(t, config, asked(t, "resource.k8s.io/"+res, "", named("bob"), claimOf(template, request+","+request), nil)).Allowed, res)
	}
}

func TestAClaimInheritsTheVerdictOnItsTemplate(t *testing.T) {
	tolerating := []resourcev1.DeviceToleration{{Key: "gpu.example.com/unhealthy", Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoExecute}}
	templateOf := func(name string, tolerations []resourcev1.DeviceToleration) *resourcev1.ResourceClaimTemplate {
		template := &resourcev1.ResourceClaimTemplate{ObjectMeta: metaOf(name, name)}
		template.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{
			{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", Tolerations: tolerations}},
			{Name: "s", FirstAvailable: []resourcev1.DeviceSubRequest{{Name: "t", DeviceClassName: "gpu", Tolerations: tolerations}}},
		}
		return template
	}
	pod := &corev1.Pod{ObjectMeta: metaOf("p", "pod"), Spec: corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{
		{Name: "named", ResourceClaimName: new("c")},
		{Name: "gpu", ResourceClaimTemplateName: new("tolerant")},
		{Name: "plain", ResourceClaimTemplateName: new("plain")},
		{Name: "gone", ResourceClaimTemplateName: new("gone")},
	}}}
	group := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup",
		"metadata": map[string]any{"namespace": "apple", "name": "g", "uid": "group"},
		"spec": map[string]any{"resourceClaims": []any{
			map[string]any{"name": "named", "resourceClaimName": "c"},
			map[string]any{"name": "gpu", "resourceClaimTemplateName": "tolerant"},
		}},
	}}
	controller, manager := controllerNamed("resource-claim-controller"), named("system:kube-controller-manager")
	tests := map[string]struct {
		who               authenticationv1.UserInfo
		kind, name, uid   string
		claim, class      string
		wider, controlled bool
		want              bool
	}{
		"of a pod":                              {who: controller, kind: "v1 Pod", name: "p", uid: "pod", claim: "gpu", want: true},
		"by the controller manager itself":      {who: manager, kind: "v1 Pod", name: "p", uid: "pod", claim: "gpu", want: true},
		"C27 of a group of pods":                {who: controller, kind: "scheduling.k8s.io/v1beta1 PodGroup", name: "g", uid: "group", claim: "gpu", want: true},
		"of a pod that a user names":            {who: named("mallory"), kind: "v1 Pod", name: "p", uid: "pod", claim: "gpu"},
		"of a pod with another UID":             {who: controller, kind: "v1 Pod", name: "p", uid: "other", claim: "gpu"},
		"of a pod that is gone":                 {who: controller, kind: "v1 Pod", name: "none", uid: "pod", claim: "gpu"},
		"of a group with another UID":           {who: controller, kind: "scheduling.k8s.io/v1beta1 PodGroup", name: "g", uid: "other", claim: "gpu"},
		"of a group that is gone":               {who: controller, kind: "scheduling.k8s.io/v1beta1 PodGroup", name: "none", uid: "group", claim: "gpu"},
		"of a template without the toleration":  {who: controller, kind: "v1 Pod", name: "p", uid: "pod", claim: "plain"},
		"of a template that is gone":            {who: controller, kind: "v1 Pod", name: "p", uid: "pod", claim: "gone"},
		"of a claim that has no template":       {who: controller, kind: "v1 Pod", name: "p", uid: "pod", claim: "named"},
		"of a claim that the pod does not have": {who: controller, kind: "v1 Pod", name: "p", uid: "pod", claim: "none"},
		"of no claim":                           {who: controller, kind: "v1 Pod", name: "p", uid: "pod"},
		"of another kind":                       {who: controller, kind: "example.com/v1 PodGroup", name: "g", uid: "group", claim: "gpu"},
		"it tolerates more":                     {who: controller, kind: "v1 Pod", name: "p", uid: "pod", claim: "gpu", wider: true},
		"it is for another class":               {who: controller, kind: "v1 Pod", name: "p", uid: "pod", claim: "gpu", class: "nic"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			config := testConfig()
			config.Policies = guardedGPUs(t, "")
			config.Live = storing(pod, group, templateOf("tolerant", tolerating), templateOf("plain", nil))
			class := "gpu"
			if tt.class != "" {
				class = tt.class
			}
			toleration := unhealthy
			if tt.wider {
				toleration = `{"operator":"Exists"}`
			}
			apiVersion, kind, _ := strings.Cut(tt.kind, " ")
			claim := fmt.Sprintf(`{"metadata":{"annotations":{"resource.kubernetes.io/pod-claim-name":%q},
				"ownerReferences":[{"apiVersion":%q,"kind":%q,"name":%q,"uid":%q,"controller":true}]},
				"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":%q,"tolerations":[%s]}},
				{"name":"s","firstAvailable":[{"name":"t","deviceClassName":%q,"tolerations":[%s]}]}]}}}`,
				tt.claim, apiVersion, kind, tt.name, tt.uid, class, toleration, class, toleration)
			response := judgePod(t, config, asked(t, "resource.k8s.io/resourceclaims", "", tt.who, claim, nil))
			if tt.want {
				require.True(t, response.Allowed)
				return
			}
			requireRefused(t, response, policy.TolerationNotGranted, "spec.devices.requests[0].exactly.tolerations[0]")
			requireRefused(t, response, policy.TolerationNotGranted, "spec.devices.requests[1].firstAvailable[0].tolerations[0]")
		})
	}
	t.Run("a pod that cannot be read is no verdict", func(t *testing.T) {
		live := storing()
		live.fault = io.ErrUnexpectedEOF
		config := testConfig()
		config.Policies = guardedGPUs(t, "")
		config.Live = client.Reader(live)
		claim := `{"metadata":{"annotations":{"resource.kubernetes.io/pod-claim-name":"gpu"},"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"pod","controller":true}]},
			"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"gpu","tolerations":[` + unhealthy + `]}}]}}}`
		require.ErrorIs(t, judgeFault(t, config, asked(t, "resource.k8s.io/resourceclaims", "", controller, claim, nil)), io.ErrUnexpectedEOF)
	})
}

func TestTheSyntaxOfClaimsIsJudgedWhereDevicesAre(t *testing.T) {
	config := testConfig()
	config.Policies = guardedGPUs(t, "")
	claim := claimOf(false, `{"name":"r","exactly":{"deviceClassName":"gpu","tolerations":[{"key":"k","operator":"Exists","value":"v"}]}}`)
	review := asked(t, "resource.k8s.io/resourceclaims", "", named("bob"), claim, nil)
	requireRefused(t, judgePod(t, config, review), policy.Invalid, "spec.devices.requests[0].exactly.tolerations[0].value")
	config.DeviceTaintAdmission = false
	require.True(t, judgePod(t, config, review).Allowed)
}
