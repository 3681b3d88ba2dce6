package webhook

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// gamble makes up policies and pods that have something to do with each other.
type gamble struct{ *rand.Rand }

// pick returns one of choices.
func pick[T any](g gamble, choices ...T) T { return choices[g.IntN(len(choices))] }

func (g gamble) namespace() string { return pick(g, "apple", "banana", "cherry") }

func (g gamble) key() string {
	return pick(g, "dedicated", "example.com/spot", "example.com/broken", "gpu")
}

func (g gamble) value() string { return pick(g, "banana", "apple", "shared") }

func (g gamble) seconds() *int64 {
	return pick(g, nil, new(int64(0)), new(int64(60)), new(int64(3600)))
}

func (g gamble) toleration() corev1.Toleration {
	t := corev1.Toleration{
		Key: g.key(), Operator: pick(g, corev1.TolerationOpEqual, corev1.TolerationOpExists),
		Effect: pick(g, "", corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute),
	}
	if t.Operator == corev1.TolerationOpEqual {
		t.Value = g.value()
	}
	if t.Operator == corev1.TolerationOpExists && g.IntN(4) == 0 {
		t.Key = ""
	}
	if t.Effect == corev1.TaintEffectNoExecute {
		t.TolerationSeconds = g.seconds()
	}
	return t
}

func (g gamble) actions() []v1alpha1.ValidationAction {
	return pick(g, nil, []v1alpha1.ValidationAction{v1alpha1.Warn}, []v1alpha1.ValidationAction{v1alpha1.Deny, v1alpha1.Audit})
}

func (g gamble) tolerationPolicy(name string) v1alpha1.TolerationPolicy {
	p := v1alpha1.TolerationPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Taints = []v1alpha1.TaintSelector{{Key: pick(g, g.key(), "*", "example.com/*")}}
	if g.IntN(2) == 0 {
		p.Spec.Taints[0].Values = []string{g.value()}
	}
	p.Spec.ValidationActions = g.actions()
	p.Spec.Message = pick(g, "", "ask platform")
	for range g.IntN(3) {
		p.Spec.Grants = append(p.Spec.Grants, pick(g,
			v1alpha1.TolerationGrant{Namespaces: []string{g.namespace()}, MaxTolerationSeconds: g.seconds()},
			v1alpha1.TolerationGrant{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "system"}}},
			v1alpha1.TolerationGrant{RBAC: true},
			v1alpha1.TolerationGrant{Expression: pick(g, "toleration.effect == 'NoSchedule'", "pod.metadata.labels.absent == 'x'", "pod.metadata.?labels[?'app'].orValue('') == 'web'")},
		))
	}
	return p
}

func (g gamble) placementPolicy(name string) v1alpha1.PlacementPolicy {
	p := v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Match.Namespaces = []string{g.namespace()}
	p.Spec.Pod = &v1alpha1.PodPlacement{
		NodeSelector:    map[string]string{g.key(): g.value()},
		SchedulingGates: pick(g, nil, []string{"example.com/queue"}),
		TopologySpread:  pick(g, nil, &v1alpha1.TopologySpreadDefaults{NodeTaintsPolicy: new(corev1.NodeInclusionPolicyHonor)}),
	}
	for range g.IntN(3) {
		p.Spec.Pod.Tolerations = append(p.Spec.Pod.Tolerations, g.toleration())
	}
	if g.IntN(3) == 0 {
		p.Spec.Pod.NodeAffinity = []corev1.NodeSelectorRequirement{{Key: g.key(), Operator: corev1.NodeSelectorOpIn, Values: []string{g.value(), "other"}}}
	}
	return p
}

func (g gamble) pod() *corev1.Pod {
	pod := typicalPod()
	pod.Namespace = g.namespace()
	pod.Labels = pick(g, nil, map[string]string{"app": "web"})
	pod.Spec.Tolerations = nil
	for range g.IntN(4) {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, g.toleration())
	}
	pod.Spec.NodeSelector = pick(g, nil, map[string]string{g.key(): g.value()})
	pod.Spec.TopologySpreadConstraints = pick(g, nil, []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule}})
	return pod
}

// world is policies of all kinds that pods come under.
type world struct {
	tolerations []v1alpha1.TolerationPolicy
	placements  []v1alpha1.PlacementPolicy
}

func (g gamble) world() world {
	var w world
	for i := range 1 + g.IntN(6) {
		w.tolerations = append(w.tolerations, g.tolerationPolicy(fmt.Sprintf("t%d", i)))
	}
	for i := range g.IntN(6) {
		w.placements = append(w.placements, g.placementPolicy(fmt.Sprintf("p%d", i)))
	}
	return w
}

// replica returns the endpoints of a replica that got the policies in some order.
func (g gamble) replica(w world) (mutate, validate *Endpoint) {
	tolerations, placements := slices.Clone(w.tolerations), slices.Clone(w.placements)
	g.Shuffle(len(tolerations), func(i, j int) { tolerations[i], tolerations[j] = tolerations[j], tolerations[i] })
	g.Shuffle(len(placements), func(i, j int) { placements[i], placements[j] = placements[j], placements[i] })
	config := withPolicies(policyset.None().WithTolerations(tolerations).WithPlacement(placements))
	config.Handlers.Authorizer = permitting("alice tolerate gpu", "alice tolerate dedicated")
	return Mutate(config), Validate(config)
}

// ask returns the bytes that an endpoint answers.
func ask(t *testing.T, endpoint http.Handler, pod []byte, namespace string) []byte {
	t.Helper()
	review := podReview(t, admissionv1.Create, string(pod), "")
	review.Request.Namespace, review.Request.UserInfo.Username = namespace, "alice"
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(string(marshal(t, review))))
	req.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	endpoint.ServeHTTP(answer, req)
	require.Equal(t, http.StatusOK, answer.Code, answer.Body)
	return answer.Body.Bytes()
}

// afterPatch returns the pod as a response of the mutating webhook leaves it.
func afterPatch(t *testing.T, pod, answer []byte) []byte {
	t.Helper()
	var review struct {
		Response struct {
			Allowed bool   `json:"allowed"`
			Patch   string `json:"patch"`
		} `json:"response"`
	}
	require.NoError(t, json.Unmarshal(answer, &review))
	require.True(t, review.Response.Allowed, "the mutator never refuses")
	if review.Response.Patch == "" {
		return pod
	}
	raw, err := base64.StdEncoding.DecodeString(review.Response.Patch)
	require.NoError(t, err)
	patch, err := jsonpatch.DecodePatch(raw)
	require.NoError(t, err)
	after, err := patch.Apply(pod)
	require.NoError(t, err, "%s", raw)
	return after
}

// TestD07EveryReplicaAnswersWithTheSameBytes asks two replicas, which got the same
// policies in different orders, the same questions several times over. What the
// mutating webhook has given, it gives no second time (INV-7, INV-9, D08).
func TestD07EveryReplicaAnswersWithTheSameBytes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	g := gamble{rand.New(rand.NewPCG(seed, 0))}
	given, refused := 0, 0
	for range 100 {
		w := g.world()
		pods := [][]byte{marshal(t, g.pod()), marshal(t, g.pod()), marshal(t, g.pod())}
		mutate, validate := g.replica(w)
		for _, pod := range pods {
			namespace := namespaceOfPod(t, pod)
			gave := ask(t, mutate, pod, namespace)
			after := afterPatch(t, pod, gave)
			require.NotContains(t, string(ask(t, mutate, after, namespace)), `"patch"`, "given twice: %s", after)
			verdicts := [][]byte{ask(t, validate, pod, namespace), ask(t, validate, after, namespace)}
			for range 5 {
				otherMutate, otherValidate := g.replica(w)
				require.Equal(t, string(gave), string(ask(t, otherMutate, pod, namespace)))
				require.Equal(t, string(verdicts[0]), string(ask(t, otherValidate, pod, namespace)))
				require.Equal(t, string(verdicts[1]), string(ask(t, otherValidate, after, namespace)))
			}
			if strings.Contains(string(gave), `"patch"`) {
				given++
			}
			if strings.Contains(string(verdicts[1]), `"allowed":false`) {
				refused++
			}
		}
	}
	require.Greater(t, given, 50, "policies gave nothing: the test tries nothing")
	require.Greater(t, refused, 50, "policies refused nothing: the test tries nothing")
	require.Less(t, refused, 250, "policies refused everything: the test tries nothing")
}

func namespaceOfPod(t *testing.T, raw []byte) string {
	t.Helper()
	var pod metav1.PartialObjectMetadata
	require.NoError(t, json.Unmarshal(raw, &pod))
	return pod.Namespace
}
