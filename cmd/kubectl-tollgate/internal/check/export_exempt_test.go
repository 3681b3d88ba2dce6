package check

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/policy/vap"
	"github.com/tollgate-dev/tollgate/webhook/handlers"
)

// nobody may do nothing.
var nobody = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionNoOpinion, "", nil
})

func policiesOf(t *testing.T, text string) *policies {
	t.Helper()
	found, err := readFile("-", strings.NewReader(text))
	require.NoError(t, err)
	return &found
}

const closed = "{kind: TolerationPolicy, apiVersion: tollgate.dev/v1alpha1, metadata: {name: closed}, spec: {taints: [{key: dedicated}]}}"

func TestControllersAreLetMakeWhatTheyMakeFromTemplates(t *testing.T) {
	t.Parallel()
	exported := enforce(t, exportAll(t, policiesOf(t, closed)))
	r := podRequest(podOf(1, func(int) string { return "dedicated" }), nil)
	require.True(t, askPolicies(t, exported, r, nobody).denied)
	for _, name := range handlers.DefaultWorkloadControllers() {
		r.UserInfo.Username = name
		require.False(t, askPolicies(t, exported, r, nobody).denied, name)
	}
}

func TestControllersOfTheConfigurationAreLetMakeWhatTheyMakeFromTemplates(t *testing.T) {
	t.Parallel()
	out, _, err := runVAP(t, "-", closed, "--workload-controllers", "maker,other")
	require.NoError(t, err)
	var found []runtime.Object
	for text := range strings.SplitSeq(strings.TrimPrefix(out, "---\n"), "---\n") {
		object, _, err := clientgoscheme.Codecs.UniversalDeserializer().Decode([]byte(text), nil, nil)
		require.NoError(t, err)
		found = append(found, object)
	}
	exported := enforce(t, found)
	r := podRequest(podOf(1, func(int) string { return "dedicated" }), nil)
	for name, denied := range map[string]bool{"maker": false, "other": false, "jane": true, handlers.DefaultWorkloadControllers()[0]: false} {
		r.UserInfo.Username = name
		require.Equal(t, denied, askPolicies(t, exported, r, nobody).denied, name)
	}
}

func TestAMirrorPodIsLetInForItsOwnKubeletAlone(t *testing.T) {
	t.Parallel()
	exported := enforce(t, exportAll(t, policiesOf(t, closed)))
	for sentence, c := range map[string]struct {
		user, node, annotation string
		groups                 []string
		denied                 bool
	}{
		"its kubelet":                 {"system:node:n", "n", corev1.MirrorPodAnnotationKey, []string{"system:nodes"}, false},
		"another kubelet":             {"system:node:m", "n", corev1.MirrorPodAnnotationKey, []string{"system:nodes"}, true},
		"who is only called like one": {"system:node:n", "n", corev1.MirrorPodAnnotationKey, []string{"others"}, true},
		"a pod that is no mirror":     {"system:node:n", "n", "other", []string{"system:nodes"}, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			pod := podOf(1, func(int) string { return "dedicated" })
			pod.Spec.NodeName, pod.Annotations = c.node, map[string]string{c.annotation: "x"}
			r := podRequest(pod, nil)
			r.UserInfo.Username, r.UserInfo.Groups = c.user, c.groups
			require.Equal(t, c.denied, askPolicies(t, exported, r, nobody).denied)
		})
	}
}

func TestTheExemptNamespacesAreThoseOfTheWebhook(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "deploy", "webhooks", "validating.yaml"))
	require.NoError(t, err)
	var configuration admissionregistrationv1.ValidatingWebhookConfiguration
	require.NoError(t, yaml.Unmarshal(data, &configuration))
	require.Equal(t, configuration.Webhooks[0].NamespaceSelector.MatchExpressions[0].Values, vap.DefaultSettings().Exempt)

	exported := enforce(t, exportAll(t, policiesOf(t, closed)))
	r := podRequest(podOf(1, func(int) string { return "dedicated" }), nil)
	r.namespace.Labels[corev1.LabelMetadataName] = metav1.NamespaceSystem
	require.False(t, askPolicies(t, exported, r, nobody).denied)
}

func TestWhatPoliciesGiveNodesIsNobodysChoice(t *testing.T) {
	t.Parallel()
	found := policiesOf(t, `
apiVersion: tollgate.dev/v1alpha1
kind: TaintPolicy
metadata: {name: a}
spec:
  taints: [{key: unrelated}]
  register:
  - nodeSelector: {matchLabels: {pool: a}}
    taints: [{key: dedicated, value: a, effect: NoSchedule}]
    reconcile: true
  - nodeSelector: {matchLabels: {app: x}}
    taints: [{key: dedicated, value: b, effect: NoSchedule}, {key: other, effect: NoSchedule}]
---
apiVersion: tollgate.dev/v1alpha1
kind: TaintPolicy
metadata: {name: b}
spec: {taints: [{key: dedicated}, {key: other}]}
`)
	exported := enforce(t, exportAllPartial(t, found))
	tollgate := tollgate(found, nil, nobody)
	taints := func(pairs ...string) []corev1.Taint {
		var list []corev1.Taint
		for i := 0; i < len(pairs); i += 2 {
			list = append(list, corev1.Taint{Key: pairs[i], Value: pairs[i+1], Effect: corev1.TaintEffectNoSchedule})
		}
		return list
	}
	both, pool := map[string]string{"pool": "a", "app": "x"}, map[string]string{"pool": "a"}
	for sentence, c := range map[string]struct {
		labels   map[string]string
		now, old []corev1.Taint
		update   bool
		denied   bool
	}{
		"a node comes with what it is given":             {labels: pool, now: taints("dedicated", "a")},
		"of one kind it is given the first":              {labels: both, now: taints("dedicated", "a", "other", "")},
		"what is kept may be put back":                   {labels: pool, now: taints("dedicated", "a"), update: true},
		"what is not kept may not":                       {labels: both, now: taints("dedicated", "a", "other", ""), old: taints("dedicated", "a"), update: true, denied: true},
		"what is given to other nodes is like any other": {labels: map[string]string{"pool": "c"}, now: taints("dedicated", "a"), denied: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			meta := metav1.ObjectMeta{Name: "x", Labels: c.labels}
			now := &corev1.Node{ObjectMeta: meta, Spec: corev1.NodeSpec{Taints: c.now}}
			r := diceOf(1).about(requestKind{"", "nodes", "Node"}, admissionv1.Create, nil, now, nil)
			if c.update {
				r = diceOf(1).about(requestKind{"", "nodes", "Node"}, admissionv1.Update, nil, now, &corev1.Node{ObjectMeta: meta, Spec: corev1.NodeSpec{Taints: c.old}})
			}
			r.UserInfo.Username = "jane"
			got, want := askPolicies(t, exported, r, nobody), judge(t, tollgate, r)
			require.Equal(t, c.denied, got.denied, &got)
			require.Equal(t, want.denied, c.denied, &want)
		})
	}
}

func TestARefusalNamesPolicyFieldAndValue(t *testing.T) {
	t.Parallel()
	exported := enforce(t, exportAll(t, policiesOf(t, `
apiVersion: tollgate.dev/v1alpha1
kind: TolerationPolicy
metadata: {name: gpus}
spec:
  taints: [{key: gpu}]
  grants: [{namespaces: [banana]}]
  messageExpression: "'leave ' + toleration.key + ' to others'"
`)))
	r := podRequest(podOf(2, func(int) string { return "gpu" }), nil)
	got := askPolicies(t, exported, r, nobody)
	require.Equal(t, []string{"TolerationPolicy/gpus: spec.tolerations[0] (operator=Exists key=gpu effect=NoSchedule) and 1 more: " +
		"could tolerate what the policy guards, which is not granted to user jane in namespace apple; allowed in namespaces banana: leave gpu to others"}, got.messages)
}

// Messages cannot ask what is authorized, so they do not say which toleration it is.
func TestARefusalNamesNoTolerationThatRBACMayGrant(t *testing.T) {
	t.Parallel()
	exported := enforce(t, exportAll(t, policiesOf(t, `
apiVersion: tollgate.dev/v1alpha1
kind: TolerationPolicy
metadata: {name: some}
spec:
  taints: [{key: dedicated}, {key: other}]
  grants: [{rbac: true}]
  message: ask the team
`)))
	r := podRequest(podOf(2, func(i int) string { return []string{"dedicated", "other"}[i] }), nil)
	got := askPolicies(t, exported, r, authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetName() == "dedicated" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}))
	require.True(t, got.denied)
	require.Len(t, got.messages, 1)
	require.NotContains(t, got.messages[0], "dedicated")
	require.Contains(t, got.messages[0], "TolerationPolicy/some: a toleration is not granted; ")
	require.Contains(t, got.messages[0], ": ask the team")
}
