package toleration

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

func apple() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "apple", Labels: map[string]string{"tier": "iron"}}}
}

func standing(t *testing.T, tolerates string) Input {
	t.Helper()
	return Input{
		Labels: map[string]string{"app": "web"},
		Asked:  []Asked{{Path: field.NewPath("tolerations"), New: tolerationsOf(t, tolerates)}},
	}
}

// existing returns the namespace of an input, and what is known of it if it exists.
func existing(in Input) (*corev1.Namespace, Input) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: in.Namespace, Labels: in.NamespaceLabels}}
	return namespace, Input{Labels: in.Labels, Asked: []Asked{{Path: field.NewPath("tolerations"), New: in.Asked[0].New}}}
}

func TestC28WhatStandsIsAudited(t *testing.T) {
	tests := map[string]struct {
		spec     string
		violated bool
	}{
		"nobody is granted":                               {`{taints: [{key: dedicated}]}`, true},
		"a policy that only warns":                        {`{taints: [{key: dedicated}], validationActions: [Audit]}`, true},
		"a namespace that is granted":                     {`{taints: [{key: dedicated}], grants: [{namespaces: [apple]}]}`, false},
		"another namespace":                               {`{taints: [{key: dedicated}], grants: [{namespaces: [banana]}]}`, true},
		"labels of the namespace":                         {`{taints: [{key: dedicated}], grants: [{namespaceSelector: {matchLabels: {tier: gold}}}]}`, true},
		"labels of the namespace that match":              {`{taints: [{key: dedicated}], grants: [{namespaceSelector: {matchLabels: {tier: iron}}}]}`, false},
		"labels of the pod":                               {`{taints: [{key: dedicated}], grants: [{namespaces: ["*"], objectSelector: {matchLabels: {app: monitor}}}]}`, true},
		"labels of the pod that match":                    {`{taints: [{key: dedicated}], grants: [{namespaces: ["*"], objectSelector: {matchLabels: {app: web}}}]}`, false},
		"who created it is not known":                     {`{taints: [{key: dedicated}], grants: [{subjects: [{kind: User, name: jane}]}]}`, false},
		"whom RBAC allows is not asked":                   {`{taints: [{key: dedicated}], grants: [{rbac: true}]}`, false},
		"what the pod was is not known":                   {`{taints: [{key: dedicated}], grants: [{expression: "has(pod.spec.hostNetwork)"}]}`, false},
		"what the object was is not known":                {`{taints: [{key: dedicated}], grants: [{expression: "object.spec.nothing == 1"}]}`, false},
		"an expression about what is known":               {`{taints: [{key: dedicated}], grants: [{expression: "request.namespace == 'banana'"}]}`, true},
		"an expression about the toleration":              {`{taints: [{key: dedicated}], grants: [{expression: "toleration.effect == 'NoSchedule'"}]}`, true},
		"an expression about the namespace":               {`{taints: [{key: dedicated}], grants: [{expression: "namespaceObject.metadata.labels.tier == 'iron'"}]}`, false},
		"a grant that is too short":                       {`{taints: [{key: dedicated}], grants: [{rbac: true, maxTolerationSeconds: 60}]}`, true},
		"a condition that does not hold":                  {`{taints: [{key: dedicated}], matchConditions: [{name: a, expression: "request.namespace != 'apple'"}]}`, false},
		"a condition that holds":                          {`{taints: [{key: dedicated}], matchConditions: [{name: a, expression: "request.namespace != 'kube-system'"}]}`, true},
		"a condition about the requester":                 {`{taints: [{key: dedicated}], matchConditions: [{name: a, expression: "request.userInfo.username != 'jane'"}]}`, false},
		"a condition about a requester that is not there": {`{taints: [{key: dedicated}], matchConditions: [{name: a, expression: "!has(request.userInfo.username) || true"}]}`, false},
		"a condition about an object that is not there":   {`{taints: [{key: dedicated}], matchConditions: [{name: a, expression: "object == null"}]}`, false},
		"a condition about the object":                    {`{taints: [{key: dedicated}], matchConditions: [{name: a, expression: "!has(object.metadata.labels)"}]}`, false},
		"a condition about pods":                          {`{taints: [{key: dedicated}], matchConditions: [{name: a, expression: "request.resource.resource == 'pods' && request.resource.version == 'v1'"}]}`, true},
		"a condition about pods, as asked for":            {`{taints: [{key: dedicated}], matchConditions: [{name: a, expression: "request.requestKind.kind == 'Pod' && request.requestResource.resource == 'pods'"}]}`, true},
		"a condition about something else":                {`{taints: [{key: dedicated}], matchConditions: [{name: a, expression: "request.kind.kind == 'Deployment'"}]}`, false},
		"a condition about no subresource":                {`{taints: [{key: dedicated}], matchConditions: [{name: a, expression: "request.?subResource.orValue('') == ''"}]}`, true},
		"a condition about a name":                        {`{taints: [{key: dedicated}], matchConditions: [{name: a, expression: "request.?name.orValue('') == ''"}]}`, false},
		"a condition about a dry run":                     {`{taints: [{key: dedicated}], matchConditions: [{name: a, expression: "!request.?dryRun.orValue(false)"}]}`, false},
		"a grant for pods":                                {`{taints: [{key: dedicated}], grants: [{expression: "request.resource.resource == 'pods'"}]}`, false},
		"a grant for no pods":                             {`{taints: [{key: dedicated}], grants: [{expression: "request.resource.resource != 'pods'"}]}`, true},
		"a grant for a name":                              {`{taints: [{key: dedicated}], grants: [{expression: "request.?name.orValue('x') == 'a'"}]}`, false},
		"a grant for options":                             {`{taints: [{key: dedicated}], grants: [{expression: "request.options.fieldManager == 'a'"}]}`, false},
		"a condition that fails":                          {`{taints: [{key: dedicated}], matchConditions: [{name: a, expression: "namespaceObject.metadata.labels.nothing == 'a'"}]}`, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "p", tt.spec)})
			got, err := set.Audit(t.Context(), apple(), standing(t, dedicatedExists))
			require.NoError(t, err)
			require.Equal(t, tt.violated, len(got) == 1, "%v", got)
		})
	}
}

func TestAnAuditNamesEachPolicyOnceWithItsFirstToleration(t *testing.T) {
	set := Compile([]v1alpha1.TolerationPolicy{
		policyOf(t, "z", `{taints: [{key: other}]}`),
		policyOf(t, "a", `{taints: [{key: dedicated}]}`),
		policyOf(t, "b", `{taints: [{key: dedicated, values: [x]}, {key: example.com/*}], grants: [{namespaces: [pear]}], validationActions: [Warn]}`),
	})
	got, err := set.Audit(t.Context(), apple(), standing(t, `
		{key: dedicated, value: blue}
		{key: dedicated, operator: Exists}
		{operator: Exists, effect: NoSchedule}
		{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}`))
	require.NoError(t, err)
	require.Equal(t, []Ruling{
		{Policy: "a", Toleration: "key=dedicated operator=Equal value=blue", Field: "tolerations[0]", Allowed: "nobody is allowed to tolerate it", Denies: true},
		{Policy: "b", Toleration: "key=dedicated operator=Exists", Index: 1, Field: "tolerations[1]", Allowed: "allowed in namespaces pear"},
		{Policy: "z", Toleration: "operator=Exists effect=NoSchedule (every taint of the effect)", Index: 2, Field: "tolerations[2]", Allowed: "nobody is allowed to tolerate it", Denies: true},
	}, got)
}

func TestAnAuditLooksAtTheRequestsOfClaims(t *testing.T) {
	set := Compile([]v1alpha1.TolerationPolicy{
		policyOf(t, "gpus", `{taints: [{target: Device, key: example.com/*, deviceClasses: [gpus]}]}`),
		policyOf(t, "nodes", `{taints: [{key: "*"}]}`),
	})
	given := corev1.Toleration{Key: "example.com/window", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: new(int64(60))}
	in := standing(t, "")
	path := field.NewPath("requests")
	in.Asked = []Asked{
		{Path: path.Index(0), Class: "nics", New: []corev1.Toleration{{Key: "example.com/hot", Operator: "Exists"}}},
		{Path: path.Index(1), Class: "gpus", New: []corev1.Toleration{given, {Key: "example.com/hot", Operator: "Exists"}}},
	}
	in.OfDevices, in.Added = true, []corev1.Toleration{given}
	got, err := set.Audit(t.Context(), apple(), in)
	require.NoError(t, err)
	require.Equal(t, []Ruling{{
		Policy: "gpus", Toleration: "key=example.com/hot operator=Exists", Index: 1, Field: "requests[1][1]", Allowed: "nobody is allowed to tolerate it", Denies: true,
	}}, got)
}

func TestC16AnAuditLeavesOutWhatKubernetesAdds(t *testing.T) {
	const added = `
		{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute}
		{key: node.kubernetes.io/network-unavailable, operator: Exists, effect: NoSchedule}`
	in := standing(t, added)
	in.FromDaemonSetController, in.HostNetwork = true, true
	got, err := everything(t).Audit(t.Context(), apple(), in)
	require.NoError(t, err)
	require.Empty(t, got)

	got, err = everything(t).Audit(t.Context(), apple(), standing(t, added))
	require.NoError(t, err)
	require.Len(t, got, 1)
}

func TestANamespaceWithoutLabelsIsAuditedAsOne(t *testing.T) {
	set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "open", `{taints: [{key: dedicated}], grants: [{namespaceSelector: {matchExpressions: [{key: restricted, operator: DoesNotExist}]}}]}`)})
	in := standing(t, dedicatedExists)
	namespace := apple()
	namespace.Labels = nil
	got, err := set.Audit(t.Context(), namespace, in)
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestLabelsOfPodsMatterToAnAuditOnlyWhereAPolicyAsksForThem(t *testing.T) {
	plain := policyOf(t, "plain", `{taints: [{key: dedicated}], grants: [{namespaces: [a]}]}`)
	selecting := policyOf(t, "selecting", `{taints: [{key: dedicated}], grants: [{namespaces: [a], objectSelector: {matchLabels: {app: web}}}]}`)
	require.False(t, (*Set)(nil).AuditNeedsLabels())
	require.False(t, Compile([]v1alpha1.TolerationPolicy{plain}).AuditNeedsLabels())
	require.True(t, Compile([]v1alpha1.TolerationPolicy{selecting, plain}).AuditNeedsLabels())
}

// What an admission lets pass for somebody must not be a violation afterwards: nobody
// knows who it was.
func TestAnAuditNeverSaysMoreThanTheAdmissionOfAnybodyWould(t *testing.T) {
	d := newDice(t)
	for range 1000 {
		policies, in := d.policies(4), d.input()
		in.Asked[0].Old, in.RequesterUnknown = nil, false
		for i := range policies {
			policies[i].Name = "p" + string(rune('a'+i))
		}
		set := Compile(policies)
		namespace, known := existing(in)
		found, err := set.Audit(t.Context(), namespace, known)
		require.NoError(t, err)
		if judge(t, set, in).Verdict == policy.Allowed {
			require.Empty(t, found)
		}
	}
}
