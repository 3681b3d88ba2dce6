package handlers

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// holding are policies of all kinds.
type holding struct{ policies *policyset.Set }

func (h holding) Current() *policyset.Set { return h.policies }

// granting returns a TolerationPolicy of each spec, by name.
func granting(t *testing.T, specs map[string]string) holding {
	t.Helper()
	var list []v1alpha1.TolerationPolicy
	for name, spec := range specs {
		p := v1alpha1.TolerationPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		require.NoError(t, yaml.UnmarshalStrict([]byte(spec), &p.Spec))
		list = append(list, p)
	}
	policies := (*policyset.Set)(nil).WithTolerations(list)
	require.Empty(t, policies.Tolerations.Problems())
	return holding{policies}
}

// dedicatedTo is a policy under which the taint dedicated may be tolerated by those of
// a grant.
func dedicatedTo(t *testing.T, grants string) holding {
	t.Helper()
	return granting(t, map[string]string{"dedicated": `{taints: [{key: dedicated}], grants: [` + grants + `]}`})
}

const dedicated = `{"key":"dedicated","operator":"Exists","effect":"NoSchedule"}`

// asked returns the review of an object by who.
func asked(t *testing.T, res, subresource string, who authenticationv1.UserInfo, object any, old any) admissionv1.AdmissionReview {
	t.Helper()
	group, name, found := strings.Cut(res, "/")
	if !found {
		group, name = "", res
	}
	review := podReview(t, admissionv1.Create, text(t, object), "")
	review.Request.Resource = metav1.GroupVersionResource{Group: group, Version: "v1", Resource: name}
	review.Request.SubResource = subresource
	review.Request.UserInfo = who
	if old != nil {
		review.Request.Operation = admissionv1.Update
		review.Request.OldObject.Raw = []byte(text(t, old))
	}
	return review
}

func text(t *testing.T, object any) string {
	t.Helper()
	if s, ok := object.(string); ok {
		return s
	}
	data, err := json.Marshal(object)
	require.NoError(t, err)
	return string(data)
}

func named(user string, groups ...string) authenticationv1.UserInfo {
	return authenticationv1.UserInfo{Username: user, Groups: groups}
}

// controllerNamed is a controller of Kubernetes.
func controllerNamed(name string) authenticationv1.UserInfo {
	return named("system:serviceaccount:kube-system:" + name)
}

func judgeFault(t *testing.T, config Config, review admissionv1.AdmissionReview) error {
	t.Helper()
	req, err := readRequest(marshal(t, review))
	require.NoError(t, err)
	_, err = answer(t.Context(), Validate(config).Review, req)
	require.Error(t, err)
	return err
}

// requireRefused checks that a response refuses for a reason, at a field.
func requireRefused(t *testing.T, response admission.Response, reason policy.Reason, field string, parts ...string) {
	t.Helper()
	require.False(t, response.Allowed)
	var causes []string
	for _, cause := range response.Result.Details.Causes {
		causes = append(causes, string(cause.Type)+" "+cause.Field)
	}
	require.Contains(t, causes, string(reason)+" "+field)
	for _, part := range parts {
		require.Contains(t, response.Result.Message, part)
	}
}

func nodeTainted(name string, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Taints: taints}}
}

var forBanana = corev1.Taint{Key: "dedicated", Value: "banana", Effect: corev1.TaintEffectNoSchedule}

func TestGrantsLookAtWhoAsksAndAtTheObject(t *testing.T) {
	pod := func(more string) string {
		return `{"metadata":{"labels":{"app":"web"}},"spec":{` + more + `"tolerations":[` + dedicated + `]}}`
	}
	tests := map[string]struct {
		grants string
		who    authenticationv1.UserInfo
		pod    string
		want   bool
	}{
		"the user":                     {`{subjects: [{kind: User, name: alice}]}`, named("alice"), pod(""), true},
		"another user":                 {`{subjects: [{kind: User, name: alice}]}`, named("bob"), pod(""), false},
		"a group":                      {`{subjects: [{kind: Group, name: sre}]}`, named("bob", "sre"), pod(""), true},
		"C19 whoever is impersonated":  {`{subjects: [{kind: User, name: alice}]}`, authenticationv1.UserInfo{Username: "alice", UID: "x", Groups: []string{"system:authenticated"}}, pod(""), true},
		"C18 no user by a prefix":      {`{subjects: [{kind: User, name: "system:node"}]}`, named("system:node:evil"), pod(""), false},
		"C18 system:masters is nobody": {`{namespaces: [banana]}`, named("root", "system:masters"), pod(""), false},
		"a label of the pod":           {`{namespaces: [apple], objectSelector: {matchLabels: {app: web}}}`, named("bob"), pod(""), true},
		"C12 our own markers, or anybody's, are not looked at": {
			`{namespaces: [banana]}`, named("bob"),
			`{"metadata":{"labels":{"tollgate.dev/granted":"true"},"annotations":{"tollgate.dev/granted":"true","tollgate.dev/placed":"dedicated"}},"spec":{"tolerations":[` + dedicated + `]}}`, false,
		},
		"C01 what is in ephemeral containers makes no difference": {`{namespaces: [banana]}`, named("bob"), pod(`"ephemeralContainers":[{"name":"e"}],`), false},
		"C02 nor in init containers and sidecars":                 {`{namespaces: [banana]}`, named("bob"), pod(`"initContainers":[{"name":"i","restartPolicy":"Always"}],`), false},
		"RBAC lets the user":                                      {`{rbac: true}`, named("carol"), pod(""), true},
		"RBAC lets the service account":                           {`{rbac: true}`, named("bob"), pod(`"serviceAccountName":"trusted",`), true},
		"RBAC lets the default service account":                   {`{rbac: true}`, named("bob"), pod(""), false},
		"an expression about the pod":                             {`{expression: "pod.metadata.labels.app == 'web'"}`, named("bob"), pod(""), true},
		"an expression about the namespace":                       {`{expression: "namespaceObject.metadata.labels['tier'] == 'system'"}`, named("bob"), pod(""), false},
		"an expression about the request":                         {`{expression: "request.userInfo.username == 'bob' && request.operation == 'CREATE'"}`, named("bob"), pod(""), true},
		"an expression about the toleration":                      {`{expression: "toleration.key == 'dedicated'"}`, named("bob"), pod(""), true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			config := testConfig()
			config.Policies = dedicatedTo(t, tt.grants)
			config.Authorizer = permitting("carol tolerate dedicated", "system:serviceaccount:apple:trusted tolerate dedicated")
			response := judgePod(t, config, asked(t, "pods", "", tt.who, tt.pod, nil))
			if tt.want {
				require.True(t, response.Allowed)
				return
			}
			requireRefused(t, response, policy.TolerationNotGranted, "spec.tolerations[0]", "TolerationPolicy/dedicated", "key=dedicated")
		})
	}
}

func TestAFaultOfTheAuthorizerIsNoVerdict(t *testing.T) {
	config := testConfig()
	config.Policies = dedicatedTo(t, `{rbac: true}`)
	config.Authorizer = permitting()
	require.ErrorContains(t, judgeFault(t, config, asked(t, "pods", "", named("broken"), tolerant, nil)), "unexpected EOF")
}

func TestD04TheVersionOfThePoliciesIsInTheAuditLog(t *testing.T) {
	config := testConfig()
	held := dedicatedTo(t, `{namespaces: [apple]}`)
	config.Policies = held
	response := judgePod(t, config, podReview(t, admissionv1.Create, tolerant, ""))
	require.NotEmpty(t, held.policies.Version)
	require.Equal(t, held.policies.Version, response.AuditAnnotations["policies"])
}
