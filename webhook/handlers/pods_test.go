package handlers

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/policy/toleration"
)

// judgePod returns what the pods' judge answers.
func judgePod(t *testing.T, config Config, review admissionv1.AdmissionReview) admission.Response {
	t.Helper()
	req, err := readRequest(marshal(t, review))
	require.NoError(t, err)
	response, err := answer(t.Context(), Validate(config).Review, req)
	require.NoError(t, err)
	return response
}

const (
	simplePod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[]}}`
	tolerant  = `{"spec":{"tolerations":[{"key":"dedicated","operator":"Exists","effect":"NoSchedule"}]}}`
	wildcard  = `{"spec":{"tolerations":[{"operator":"Exists"}]}}`
	defaulted = `{"spec":{"tolerations":[
		{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300},
		{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}]}}`
)

func TestPodsAreJudgedByTheTolerationsThatTheyBring(t *testing.T) {
	tests := map[string]struct {
		namespace   string
		operation   admissionv1.Operation
		object, old string
		want        bool
	}{
		"no toleration":                           {"apple", admissionv1.Create, simplePod, "", true},
		"a guarded one where it is not granted":   {"apple", admissionv1.Create, tolerant, "", false},
		"a wildcard where it is not granted":      {"apple", admissionv1.Create, wildcard, "", false},
		"a guarded one where the name is granted": {"banana", admissionv1.Create, tolerant, "", true},
		"a wildcard where the name is granted":    {"banana", admissionv1.Create, wildcard, "", true},
		"a guarded one where labels are granted":  {"cherry", admissionv1.Create, tolerant, "", true},
		"what the API server adds":                {"apple", admissionv1.Create, defaulted, "", true},
		"one that was there before (C28)":         {"apple", admissionv1.Update, tolerant, tolerant, true},
		"one that is added later (C06)":           {"apple", admissionv1.Update, tolerant, simplePod, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			review := podReview(t, tt.operation, tt.object, tt.old)
			review.Request.Namespace = tt.namespace
			response := judgePod(t, testConfig(), review)
			require.Equal(t, tt.want, response.Allowed)
			if !tt.want {
				require.Equal(t, int32(http.StatusForbidden), response.Result.Code)
				for _, part := range []string{"TolerationPolicy/dedicated", "spec.tolerations[0]", "Exists", "banana"} {
					require.Contains(t, response.Result.Message, part)
				}
			}
		})
	}
}

func TestC07ATerminatingPodIsJudgedToo(t *testing.T) {
	object := `{"metadata":{"deletionTimestamp":"2026-11-20T12:00:00Z"},"spec":{"tolerations":[{"key":"dedicated","operator":"Exists"}]}}`
	require.False(t, judgePod(t, testConfig(), podReview(t, admissionv1.Update, object, simplePod)).Allowed)
}

func TestC10ANamespaceThatIsNotKnownIsNoVerdict(t *testing.T) {
	review := podReview(t, admissionv1.Create, tolerant, "")
	review.Request.Namespace = "unknown"
	req, err := readRequest(marshal(t, review))
	require.NoError(t, err)
	_, err = answer(t.Context(), Validate(testConfig()).Review, req)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

func TestC13OnlyAKubeletsMirrorPodIsAuditedInstead(t *testing.T) {
	object := `{"metadata":{"annotations":{"kubernetes.io/config.mirror":"x"}},"spec":{"nodeName":"n1","tolerations":[{"operator":"Exists"}]}}`
	kubelet := authenticationv1.UserInfo{Username: "system:node:n1", Groups: []string{"system:nodes"}}
	tests := map[string]struct {
		user authenticationv1.UserInfo
		want bool
	}{
		"the kubelet of the node":                             {kubelet, true},
		"a user with the annotation (C14)":                    {authenticationv1.UserInfo{Username: "alice"}, false},
		"the kubelet of another node":                         {authenticationv1.UserInfo{Username: "system:node:n2", Groups: kubelet.Groups}, false},
		"a user with a kubelet's name, not its group (C18)":   {authenticationv1.UserInfo{Username: kubelet.Username}, false},
		"a user whose name begins like a kubelet's, no group": {authenticationv1.UserInfo{Username: "system:node:"}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			review := podReview(t, admissionv1.Create, object, "")
			review.Request.UserInfo = tt.user
			response := judgePod(t, testConfig(), review)
			require.Equal(t, tt.want, response.Allowed)
			if tt.want {
				require.Contains(t, response.AuditAnnotations["violations"], "TolerationPolicy/dedicated")
				require.Empty(t, response.Warnings)
			}
		})
	}
}

func TestC16WhatTheDaemonSetControllerAddsIsNobodysChoice(t *testing.T) {
	config := testConfig()
	config.Policies = fixedPolicies{guarding(t, "node.kubernetes.io/*")}
	forever := `{"spec":{"tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute"}]}}`
	review := podReview(t, admissionv1.Create, forever, "")
	require.False(t, judgePod(t, config, review).Allowed, "a user's own choice")
	for _, controller := range daemonSetControllers {
		review.Request.UserInfo.Username = controller
		require.True(t, judgePod(t, config, review).Allowed, controller)
	}
	require.True(t, judgePod(t, config, podReview(t, admissionv1.Create, defaulted, "")).Allowed, "the API server's default")
}

func TestGatedPodsAreOnlyTightened(t *testing.T) {
	gated := `{"spec":{"schedulingGates":[{"name":"example.com/g"}],"nodeSelector":{"zone":"a"}}}`
	tests := map[string]struct {
		object string
		want   bool
	}{
		"SD-06 a key is added":          {`{"spec":{"schedulingGates":[{"name":"example.com/g"}],"nodeSelector":{"zone":"a","disk":"ssd"}}}`, true},
		"SD-06 a value is changed":      {`{"spec":{"schedulingGates":[{"name":"example.com/g"}],"nodeSelector":{"zone":"b"}}}`, false},
		"SD-04 let go and tightened":    {`{"spec":{"nodeSelector":{"zone":"a","disk":"ssd"}}}`, true},
		"SD-02 another gate is added":   {`{"spec":{"schedulingGates":[{"name":"example.com/g"},{"name":"example.com/h"}],"nodeSelector":{"zone":"a"}}}`, false},
		"SD-06 the selector is removed": {`{"spec":{"schedulingGates":[{"name":"example.com/g"}]}}`, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			config := testConfig()
			review := podReview(t, admissionv1.Update, tt.object, gated)
			require.Equal(t, tt.want, judgePod(t, config, review).Allowed)
			config.SchedulingDirectives = false
			require.True(t, judgePod(t, config, review).Allowed, "switched off")
		})
	}
}

func TestWithoutPoliciesNoNamespaceIsRead(t *testing.T) {
	config := testConfig()
	config.Policies = fixedPolicies{toleration.Compile(nil)}
	config.Namespaces = fixedNamespaces{}
	require.True(t, judgePod(t, config, podReview(t, admissionv1.Create, wildcard, "")).Allowed)
}

func TestTP19WhatARuntimeClassBringsIsNobodysChoice(t *testing.T) {
	pod := func(class string) admissionv1.AdmissionReview {
		return podReview(t, admissionv1.Create, `{"spec":{"runtimeClassName":"`+class+`","tolerations":[{"key":"dedicated","operator":"Exists"}]}}`, "")
	}
	require.True(t, judgePod(t, testConfig(), pod("gpu")).Allowed)
	require.False(t, judgePod(t, testConfig(), pod("other")).Allowed, "another class")
	require.False(t, judgePod(t, testConfig(), pod("")).Allowed, "no class")

	req, err := readRequest(marshal(t, pod("broken")))
	require.NoError(t, err)
	_, err = answer(t.Context(), Validate(testConfig()).Review, req)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF, "a class that cannot be read is no verdict")
}

func TestTP16WhatTheAPIServerAddsForExtendedResourcesIsNobodysChoice(t *testing.T) {
	config := testConfig()
	config.Policies = fixedPolicies{guarding(t, "*")}
	pod := func(resource, toleration string) admissionv1.AdmissionReview {
		return podReview(t, admissionv1.Create, `{"spec":{"initContainers":[{"resources":{"requests":{"`+resource+`":"1"}}}],
			"containers":[{"name":"c"}],"tolerations":[`+toleration+`]}}`, "")
	}
	const added = `{"key":"example.com/gpu","operator":"Exists","effect":"NoSchedule"}`
	require.False(t, judgePod(t, config, pod("example.com/gpu", added)).Allowed, "the API server does not run the plugin")
	config.ExtendedResourceToleration = true
	require.True(t, judgePod(t, config, pod("example.com/gpu", added)).Allowed)
	require.False(t, judgePod(t, config, pod("example.com/other", added)).Allowed, "another resource")
	require.False(t, judgePod(t, config, pod("example.com/gpu", `{"key":"example.com/gpu","operator":"Exists"}`)).Allowed, "more than is added")
	require.False(t, judgePod(t, config, pod("cpu", `{"key":"cpu","operator":"Exists","effect":"NoSchedule"}`)).Allowed, "not an extended resource")
}

func TestE07BeforeThePoliciesAreReadThereIsNoVerdict(t *testing.T) {
	config := testConfig()
	config.Policies = fixedPolicies{}
	req, err := readRequest(marshal(t, podReview(t, admissionv1.Create, wildcard, "")))
	require.NoError(t, err)
	_, err = Validate(config).Review(t.Context(), req)
	require.ErrorIs(t, err, errNoPolicies)
}

func TestTP03MemoryPressureIsAChoiceUnlessThePluginAddsIt(t *testing.T) {
	config := testConfig()
	config.Policies = fixedPolicies{guarding(t, "node.kubernetes.io/*")}
	review := podReview(t, admissionv1.Create, `{"spec":{"tolerations":[{"key":"node.kubernetes.io/memory-pressure","operator":"Exists","effect":"NoSchedule"}]}}`, "")
	require.False(t, judgePod(t, config, review).Allowed)
	config.PodTolerationRestriction = true
	require.True(t, judgePod(t, config, review).Allowed)
	config.Policies = fixedPolicies{guarding(t, "dedicated")}
	byDefault := podReview(t, admissionv1.Create, tolerant, "")
	require.False(t, judgePod(t, config, byDefault).Allowed, "what else the plugin adds by default cannot be told from a choice")
}
