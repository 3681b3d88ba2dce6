package spread

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/policy/spread"
)

const (
	// worldsEnv and seedEnv say how many random clusters pods are scheduled on, and which.
	worldsEnv = "TOLLGATE_SPREAD_WORLDS"
	seedEnv   = "TOLLGATE_SPREAD_SEED"
	worlds    = 20
	podsEach  = 8
)

// The keys of labels and taints of the nodes.
const (
	zoneKey = "spread.example.com/zone"
	rackKey = "spread.example.com/rack"
	diskKey = "spread.example.com/disk"
	gpu     = "spread.example.com/gpu"
	level   = "spread.example.com/level"
)

// On random clusters the scheduler places pods one after the other. Each goes to a node
// that Filter lets pass, and one that stays pending is let to none that it could use. The
// scheduler's message has the numbers of nodes that Filter counts.
func TestTS07PodsGoWhereSpreadLetsThem(t *testing.T) {
	count, seed := number(t, worldsEnv, worlds), number(t, seedEnv, rand.Uint64())
	t.Logf("%d worlds, %s=%d", count, seedEnv, seed)
	placed, waiting := 0, 0
	for i := range count {
		t.Run(fmt.Sprint("world ", i), func(t *testing.T) {
			w := &world{dice: dice{rand.New(rand.NewPCG(seed, i))}, client: admin(t), namespace: namespaceOf(t)}
			w.constraints = w.dice.constraints()
			w.nodes = dress(t, w.namespace, w.dice.look)
			for n := range podsEach {
				if w.place(t, n) {
					placed++
				} else {
					waiting++
				}
			}
		})
	}
	t.Logf("%d pods were placed, %d could not be", placed, waiting)
	if os.Getenv(worldsEnv) != "" || os.Getenv(seedEnv) != "" {
		return // Some worlds that were asked for need not have everything in them.
	}
	// A test in which nothing happens proves nothing.
	require.Greater(t, placed, int(count))
	require.Positive(t, waiting)
}

func number(t *testing.T, env string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(env)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, "%s is %q, want a number", env, text)
	return n
}

// world is a cluster in which pods with the same constraints are created.
type world struct {
	dice        dice
	client      administrator
	namespace   string
	nodes       []corev1.Node
	constraints []corev1.TopologySpreadConstraint
}

// messages are what the scheduler says of nodes with a code.
var messages = map[spread.Code]string{
	spread.Unschedulable:                "node(s) didn't match pod topology spread constraints",
	spread.UnschedulableAndUnresolvable: "node(s) didn't match pod topology spread constraints (missing required label)",
}

// place creates a pod and holds what becomes of it against Filter. It is false for one
// that stays pending, which is gone then, so that it is not placed later.
func (w *world) place(t *testing.T, n int) bool {
	t.Helper()
	before := w.cluster(t)
	made := web(fmt.Sprint("pod-", n), w.constraints...)
	w.dice.change(made)
	created, err := w.client.CoreV1().Pods(w.namespace).Create(t.Context(), made, metav1.CreateOptions{})
	require.NoError(t, err)
	asked, err := spread.Read(created, spread.Options{})
	require.NoError(t, err)
	verdicts := asked.Filter(before).Verdicts
	pod := tried(t, w.client, created)
	if pod.Spec.NodeName != "" {
		at := slices.IndexFunc(w.nodes, func(n corev1.Node) bool { return n.Name == pod.Spec.NodeName })
		require.True(t, usable(created, &w.nodes[at]), "the scheduler chose %s", pod.Spec.NodeName)
		require.Equal(t, spread.Success, verdicts[at].Code(), "%s: %+v\n%s", pod.Spec.NodeName, verdicts[at], w.describe(created))
		return true
	}
	codes := map[spread.Code]int{}
	for i := range w.nodes {
		if usable(created, &w.nodes[i]) {
			codes[verdicts[i].Code()]++
		}
	}
	require.Zero(t, codes[spread.Success], "%s\n%s", refusal(pod), w.describe(created))
	for code, n := range codes {
		// One message is the beginning of the other, so the end counts.
		require.Regexp(t, regexp.QuoteMeta(fmt.Sprintf("%d %s", n, messages[code]))+"[,.]", refusal(pod), w.describe(created))
	}
	remove(t, w.client, pod)
	return false
}

// cluster returns what spread is computed from.
func (w *world) cluster(t *testing.T) *spread.Cluster {
	t.Helper()
	list, err := w.client.CoreV1().Pods(w.namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	all, placed := make([]spread.Node, len(w.nodes)), []spread.Placed{}
	for i := range w.nodes {
		all[i] = spread.NodeOf(&w.nodes[i])
	}
	for i := range list.Items {
		if p, ok := spread.PlacedOf(&list.Items[i]); ok {
			placed = append(placed, p)
		}
	}
	return spread.NewCluster(all, placed)
}

// usable reports whether a pod may go to a node but for spread.
func usable(pod *corev1.Pod, node *corev1.Node) bool {
	tolerated := func(taint corev1.Taint) bool {
		return taint.Effect == corev1.TaintEffectPreferNoSchedule || slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
			return t.Key == taint.Key && (t.Effect == "" || t.Effect == taint.Effect)
		})
	}
	return labels.SelectorFromSet(pod.Spec.NodeSelector).Matches(labels.Set(node.Labels)) &&
		!slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return !tolerated(taint) })
}

func (w *world) describe(pod *corev1.Pod) string {
	var text strings.Builder
	fmt.Fprintf(&text, "constraints %+v\ntolerations %+v\nselector %v labels %v\n",
		pod.Spec.TopologySpreadConstraints, pod.Spec.Tolerations, pod.Spec.NodeSelector, pod.Labels)
	for i := range w.nodes {
		fmt.Fprintf(&text, "node %s %v %v\n", w.nodes[i].Name, w.nodes[i].Labels, w.nodes[i].Spec.Taints)
	}
	return text.String()
}

// dice make worlds.
type dice struct{ *rand.Rand }

func pick[T any](d dice, of ...T) T { return of[d.IntN(len(of))] }

func (d dice) oneIn(n int) bool { return d.IntN(n) == 0 }

// look returns what a node has. Effects keep pods from coming, and none from staying.
func (d dice) look(int) look {
	l := look{labels: map[string]*string{
		zoneKey: pick(d, nil, new("a"), new("a"), new("b"), new("b"), new("c")),
		rackKey: pick(d, nil, new("1"), new("2"), new("3"), new("4")),
		diskKey: pick(d, nil, new("ssd"), new("ssd")),
	}}
	for _, key := range []string{gpu, level} {
		if d.oneIn(4) {
			l.taints = append(l.taints, corev1.Taint{Key: key, Effect: pick(d, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule)})
		}
	}
	return l
}

func (d dice) constraints() []corev1.TopologySpreadConstraint {
	var list []corev1.TopologySpreadConstraint
	for _, key := range []string{zoneKey, rackKey, corev1.LabelHostname} {
		if len(list) > 0 && d.oneIn(2) {
			continue
		}
		policies := []*corev1.NodeInclusionPolicy{nil, new(corev1.NodeInclusionPolicyHonor), new(corev1.NodeInclusionPolicyIgnore)}
		c := corev1.TopologySpreadConstraint{
			TopologyKey: key, WhenUnsatisfiable: pick(d, corev1.DoNotSchedule, corev1.DoNotSchedule, corev1.ScheduleAnyway), MaxSkew: 1 + d.Int32N(2),
			LabelSelector:    &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			NodeTaintsPolicy: pick(d, policies...), NodeAffinityPolicy: pick(d, policies...),
		}
		if c.WhenUnsatisfiable == corev1.DoNotSchedule && d.oneIn(3) {
			c.MinDomains = new(1 + d.Int32N(4))
		}
		if d.oneIn(4) {
			c.MatchLabelKeys = []string{"hash"}
		}
		list = append(list, c)
	}
	return list
}

// change makes pods of a world differ.
func (d dice) change(pod *corev1.Pod) {
	pod.Labels["hash"] = pick(d, "1", "1", "2")
	if d.oneIn(6) {
		pod.Labels["app"] = "db"
	}
	for _, key := range []string{gpu, level} {
		if d.oneIn(3) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
				Key: key, Operator: corev1.TolerationOpExists, Effect: pick(d, "", corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute),
			})
		}
	}
	if d.oneIn(4) {
		pod.Spec.NodeSelector = map[string]string{diskKey: "ssd"}
	}
}
