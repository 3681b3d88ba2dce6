package nodetaints

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// policiesWithWindow returns policies with a window for node taints with these keys, and a
// TaintPolicy that registers the taint kept:NoSchedule.
func policiesWithWindow(keys ...string) *policyset.Set {
	var list []v1alpha1.EvictionPolicy
	for i, key := range keys {
		list = append(list, v1alpha1.EvictionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i), UID: types.UID(key)},
			Spec: v1alpha1.EvictionPolicySpec{
				Taints: []v1alpha1.TaintSelector{{Key: key}}, Inject: &v1alpha1.EvictionInjection{Seconds: 20},
			},
		})
	}
	register := v1alpha1.TaintPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "register"},
		Spec: v1alpha1.TaintPolicySpec{
			Taints: []v1alpha1.TaintSelector{{Key: "kept"}},
			Register: []v1alpha1.TaintRegistration{{
				NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}},
				Taints:       []v1alpha1.RegisteredTaint{{Key: "kept", Value: "v", Effect: corev1.TaintEffectNoSchedule}},
			}},
		},
	}
	return policyset.None().WithEvictions(list).WithTaints([]v1alpha1.TaintPolicy{register})
}

// taints parses "key=value:effect".
func taints(t *testing.T, texts ...string) []corev1.Taint {
	t.Helper()
	var list []corev1.Taint
	for _, text := range texts {
		what, effect, ok := strings.Cut(text, ":")
		require.True(t, ok, text)
		key, value, _ := strings.Cut(what, "=")
		list = append(list, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}
	return list
}

// settle applies the patch for a node as the API server does, and checks that the patched
// node needs none.
func settle(t *testing.T, policies *policyset.Set, window bool, node *corev1.Node) *corev1.Node {
	t.Helper()
	_, operations := planFor(policies, window, node)
	if operations == nil {
		return node
	}
	body, err := json.Marshal(operations)
	require.NoError(t, err)
	patched, err := apply(node, body)
	require.NoError(t, err, string(body))
	_, operations = planFor(policies, window, patched)
	require.Empty(t, operations, "then there is nothing more to do: %v", taintTexts(patched))
	return patched
}

func TestWhatIsPlannedForANode(t *testing.T) {
	tests := map[string]struct {
		taints   []string
		recorded string
		replace  bool // another mode
		want     []string
		twins    string
	}{
		"a taint with a window gets a twin": {
			taints: []string{"rack=7:NoExecute"}, want: []string{"rack=7:NoExecute", "rack=7:NoSchedule"}, twins: "rack=7",
		},
		"a taint without a value gets one without": {
			taints: []string{"rack:NoExecute"}, want: []string{"rack:NoExecute", "rack:NoSchedule"}, twins: "rack=",
		},
		"a taint without a window gets none": {taints: []string{"other:NoExecute"}, want: []string{"other:NoExecute"}},
		"nor does one of another effect":     {taints: []string{"rack:NoSchedule"}, want: []string{"rack:NoSchedule"}},
		"nor one in another mode":            {taints: []string{"rack:NoExecute"}, replace: true, want: []string{"rack:NoExecute"}},
		"the node lifecycle controller has its own": {
			taints: []string{"node.kubernetes.io/not-ready:NoExecute", "node.kubernetes.io/unreachable:NoExecute"},
			want:   []string{"node.kubernetes.io/not-ready:NoExecute", "node.kubernetes.io/unreachable:NoExecute"},
		},
		"an admin's NoSchedule taint does as well, and is not ours": {
			taints: []string{"rack=7:NoExecute", "rack=7:NoSchedule"}, want: []string{"rack=7:NoExecute", "rack=7:NoSchedule"},
		},
		"of whatever value": {
			taints: []string{"rack=7:NoExecute", "rack=no:NoSchedule"}, want: []string{"rack=7:NoExecute", "rack=no:NoSchedule"},
		},
		"what stands stays": {
			taints: []string{"rack=7:NoExecute", "rack=7:NoSchedule"}, recorded: "rack=7",
			want: []string{"rack=7:NoExecute", "rack=7:NoSchedule"}, twins: "rack=7",
		},
		"a twin follows the value": {
			taints: []string{"rack=7:NoSchedule", "rack=8:NoExecute"}, recorded: "rack=7",
			want: []string{"rack=8:NoSchedule", "rack=8:NoExecute"}, twins: "rack=8",
		},
		"a twin that was removed comes back": {
			taints: []string{"rack=7:NoExecute"}, recorded: "rack=7", want: []string{"rack=7:NoExecute", "rack=7:NoSchedule"}, twins: "rack=7",
		},
		"a twin goes with its taint":               {taints: []string{"rack=7:NoSchedule", "other:NoExecute"}, recorded: "rack=7", want: []string{"other:NoExecute"}},
		"a twin goes with the mode":                {taints: []string{"rack:NoExecute", "rack:NoSchedule"}, recorded: "rack=", replace: true, want: []string{"rack:NoExecute"}},
		"a twin goes with the window":              {taints: []string{"other:NoExecute", "other:NoSchedule"}, recorded: "other=", want: []string{"other:NoExecute"}},
		"a taint that nobody added here stays":     {taints: []string{"rack=7:NoSchedule"}, want: []string{"rack=7:NoSchedule"}},
		"so does one that somebody changed":        {taints: []string{"rack=8:NoSchedule"}, recorded: "rack=7", want: []string{"rack=8:NoSchedule"}},
		"also beside the taint that it stands by":  {taints: []string{"rack=7:NoExecute", "rack=8:NoSchedule"}, recorded: "rack=7", want: []string{"rack=7:NoExecute", "rack=8:NoSchedule"}},
		"so does one that a policy registers":      {taints: []string{"kept=v:NoSchedule"}, recorded: "kept=v", want: []string{"kept=v:NoSchedule"}},
		"a record of what is gone goes":            {recorded: "rack=7", want: []string{}},
		"a record that cannot be read goes":        {recorded: "rack", taints: []string{"rack:NoSchedule"}, want: []string{"rack:NoSchedule"}},
		"several at once, in whatever order":       {taints: []string{"gone:NoSchedule", "tor=1:NoExecute", "x:NoSchedule", "rack=8:NoExecute", "rack=7:NoSchedule"}, recorded: "gone=,rack=7,x=", want: []string{"tor=1:NoExecute", "rack=8:NoExecute", "rack=8:NoSchedule", "tor=1:NoSchedule"}, twins: "rack=8,tor=1"},
		"both of two taints of one key and effect": {taints: []string{"tor=1:NoExecute", "rack=1:NoExecute"}, want: []string{"tor=1:NoExecute", "rack=1:NoExecute", "rack=1:NoSchedule", "tor=1:NoSchedule"}, twins: "rack=1,tor=1"},
	}
	policies := policiesWithWindow("rack", "tor", "kept", corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable)
	for sentence, tt := range tests {
		t.Run(sentence, func(t *testing.T) {
			for _, annotations := range []map[string]string{nil, {"mine": "1"}} {
				node := &corev1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n", ResourceVersion: "1", Labels: map[string]string{"pool": "a"}, Annotations: annotations},
					Spec:       corev1.NodeSpec{Taints: taints(t, tt.taints...)},
				}
				if tt.recorded != "" {
					metav1.SetMetaDataAnnotation(&node.ObjectMeta, v1alpha1.AnnotationTwins, "n:"+tt.recorded)
				}
				after := settle(t, policies, !tt.replace, node)
				require.Equal(t, tt.want, taintTexts(after))
				if tt.twins == "" {
					require.NotContains(t, after.Annotations, v1alpha1.AnnotationTwins)
				} else {
					require.Equal(t, "n:"+tt.twins, after.Annotations[v1alpha1.AnnotationTwins])
				}
				if annotations != nil {
					require.Equal(t, "1", after.Annotations["mine"])
				}
				delete(annotations, v1alpha1.AnnotationTwins)
			}
		})
	}
}

// TestPlansHoldToTheModel checks plans for random nodes against the invariants of every
// plan.
func TestPlansHoldToTheModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	keys := []string{"rack", "tor", "kept", "free"}
	values := []string{"", "v", "w"}
	policies := policiesWithWindow("rack", "tor", "kept")
	for range 1_000 {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n", ResourceVersion: "1", Labels: map[string]string{"pool": "a"}}}
		recorded := map[string]string{}
		for _, key := range keys {
			for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule} {
				if random.IntN(2) == 0 {
					node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Value: values[random.IntN(3)], Effect: effect})
				}
			}
			if random.IntN(2) == 0 {
				recorded[key] = values[random.IntN(3)]
			}
		}
		random.Shuffle(len(node.Spec.Taints), func(i, j int) {
			node.Spec.Taints[i], node.Spec.Taints[j] = node.Spec.Taints[j], node.Spec.Taints[i]
		})
		if len(recorded) > 0 {
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, v1alpha1.AnnotationTwins, "n:"+v1alpha1.FormatTwins(recorded))
		}
		window := random.IntN(4) > 0
		after := settle(t, policies, window, node)
		requireInvariants(t, window, node, after, recorded)
	}
}

// requireInvariants checks the invariants of a node after its plan was applied.
func requireInvariants(t *testing.T, window bool, before, after *corev1.Node, recorded map[string]string) {
	t.Helper()
	said := []any{"window %t\n%v %v\n%v %v", window, taintTexts(before), recorded, taintTexts(after), after.Annotations}
	has := func(node *corev1.Node, key string, effect corev1.TaintEffect) *corev1.Taint {
		for i := range node.Spec.Taints {
			if node.Spec.Taints[i].Key == key && node.Spec.Taints[i].Effect == effect {
				return &node.Spec.Taints[i]
			}
		}
		return nil
	}
	now := v1alpha1.ParseTwins(strings.TrimPrefix(after.Annotations[v1alpha1.AnnotationTwins], "n:"))
	for _, key := range []string{"rack", "tor", "kept", "free"} {
		require.Equal(t, has(before, key, corev1.TaintEffectNoExecute), has(after, key, corev1.TaintEffectNoExecute), said...)
		require.Equal(t, has(before, key, corev1.TaintEffectPreferNoSchedule), has(after, key, corev1.TaintEffectPreferNoSchedule), said...)
		evicting, old, pairedTaint := has(before, key, corev1.TaintEffectNoExecute), has(before, key, corev1.TaintEffectNoSchedule), has(after, key, corev1.TaintEffectNoSchedule)
		needed := window && key != "free" && evicting != nil
		value, managed := recorded[key]
		managed = managed && old != nil && old.Value == value
		_, claimed := now[key]
		switch {
		case needed:
			require.NotNil(t, pairedTaint, said...)
			require.Equal(t, old == nil || managed, claimed, said...)
			if claimed {
				require.Equal(t, evicting.Value, pairedTaint.Value, said...)
			} else {
				require.Equal(t, old, pairedTaint, said...)
			}
		case managed && (key != "kept" || value != "v"):
			require.Nil(t, pairedTaint, said...)
			require.False(t, claimed, said...)
		default:
			require.Equal(t, old, pairedTaint, said...)
			require.False(t, claimed, said...)
		}
	}
	require.Len(t, slices.CompactFunc(taintTexts(after), func(a, b string) bool { return a == b }), len(after.Spec.Taints), said...)
}

func TestIsTwin(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: "n"}, Spec: corev1.NodeSpec{Taints: taints(t, "rack=7:NoExecute")}}
	pairedTaint := &taints(t, "rack=7:NoSchedule")[0]
	require.False(t, IsTwin(node, pairedTaint), "nobody says that it was added here")
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, v1alpha1.AnnotationTwins, "rack=7")
	require.False(t, IsTwin(node, pairedTaint), "whoever created the node can have written that")
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, v1alpha1.AnnotationTwins, "n:rack=7")
	require.True(t, IsTwin(node, pairedTaint))
	require.False(t, IsTwin(node, &taints(t, "rack=8:NoSchedule")[0]), "somebody has changed it")
	require.False(t, IsTwin(node, &node.Spec.Taints[0]), "it is what the twin stands beside")
	node.Spec.Taints = nil
	require.False(t, IsTwin(node, pairedTaint), "what it stood beside is gone")
}

func TestARecordOfAnotherNodeIsDroppedAndItsTaintsStay(t *testing.T) {
	for sentence, value := range map[string]string{
		"no UID": "rack=7,free=", "another UID": "m:rack=7,free=", "part of the UID": "n:rack=7,free=", "nothing but the UID": "node:",
	} {
		for _, window := range []bool{true, false} {
			t.Run(sentence, func(t *testing.T) {
				node := &corev1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "node", ResourceVersion: "1", Annotations: map[string]string{v1alpha1.AnnotationTwins: value, "mine": "1"}},
					Spec:       corev1.NodeSpec{Taints: taints(t, "rack=7:NoSchedule", "free:NoSchedule")},
				}
				require.True(t, mayNeedPairing(node))
				after := settle(t, policiesWithWindow("rack"), window, node)
				require.Equal(t, []string{"rack=7:NoSchedule", "free:NoSchedule"}, taintTexts(after))
				require.Equal(t, map[string]string{"mine": "1"}, after.Annotations)
			})
		}
	}
}
