package evictions

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

var update = flag.Bool("update", false, "write the golden files anew")

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// world returns the cluster that documents of YAML describe. The UID of an object is its
// name.
func world(tb testing.TB, mode configv1alpha1.EvictionMode, documents ...string) *Cluster {
	tb.Helper()
	terms := settings.DefaultEviction()
	terms.Mode = mode
	c := &Cluster{Tracker: tracker.New(), Terms: terms, Namespaces: func(name string) (labels.Labels, bool) {
		return labels.Set{corev1.LabelMetadataName: name}, name != "unknown"
	}}
	for text := range strings.SplitSeq(strings.Join(documents, "\n---\n"), "\n---\n") {
		add(tb, c, text)
	}
	c.Tracker.SetDevicesKnown(true)
	c.Set = eviction.Compile(c.Policies)
	return c
}

func add(tb testing.TB, c *Cluster, text string) {
	tb.Helper()
	switch kind := decoded[metav1.PartialObjectMetadata](tb, text).Kind; kind {
	case "Node":
		object := decoded[corev1.Node](tb, text)
		object.UID = types.UID(object.Name)
		c.Tracker.SetNode(tracker.NodeOf(object), noon)
	case "Pod":
		object := decoded[corev1.Pod](tb, text)
		object.UID = types.UID(object.Name)
		c.Tracker.SetPod(tracker.PodOf(object))
	case "PodDisruptionBudget":
		c.Tracker.SetBudget(tracker.BudgetOf(decoded[policyv1.PodDisruptionBudget](tb, text)))
	case "ResourceSlice":
		c.Tracker.SetSlice(tracker.SliceOf(decoded[resourcev1.ResourceSlice](tb, text)), noon)
	case "DeviceTaintRule":
		c.Tracker.SetRule(tracker.RuleOf(decoded[resourcev1.DeviceTaintRule](tb, text)), noon)
	case "ResourceClaim":
		c.Tracker.SetClaim(tracker.ClaimOf(decoded[resourcev1.ResourceClaim](tb, text)))
	case "EvictionPolicy":
		object := decoded[v1alpha1.EvictionPolicy](tb, text)
		object.UID = types.UID(object.Name)
		c.Policies = append(c.Policies, *object)
	case "Event":
		c.Events.Add(decoded[corev1.Event](tb, text))
	default:
		require.Fail(tb, "unknown kind "+kind, text)
	}
}

func decoded[T any](tb testing.TB, text string) *T {
	tb.Helper()
	object := new(T)
	require.NoError(tb, yaml.Unmarshal([]byte(text), object), text)
	return object
}

// stamped returns an offset from noon as the API has times, in quotes.
func stamped(offset time.Duration) string { return `"` + noon.Add(offset).Format(time.RFC3339) + `"` }

// node returns node n1 with taints of keys that came there some time after noon.
func node(since time.Duration, keys ...string) string {
	var taints []string
	for _, key := range keys {
		taints = append(taints, "{key: "+key+", effect: NoExecute, timeAdded: "+stamped(since)+"}")
	}
	return "kind: Node\nmetadata: {name: n1}\nspec: {taints: [" + strings.Join(taints, ", ") + "]}"
}

// pod returns pod p on node n1, with the label app, that tolerates some keys for a while.
func pod(name, app string, tolerations ...string) string {
	return "kind: Pod\nmetadata: {namespace: web, name: " + name + ", labels: {app: " + app + "}, creationTimestamp: " + stamped(-24*time.Hour) +
		"}\nspec: {nodeName: n1, tolerations: [" + strings.Join(tolerations, ", ") + "]}"
}

// tolerated tolerates a key for some seconds.
func tolerated(key, seconds string) string {
	return "{key: " + key + ", operator: Exists, effect: NoExecute, tolerationSeconds: " + seconds + "}"
}

// policy returns an EvictionPolicy of taints with a key.
func policy(name, key string, lines ...string) string {
	return "kind: EvictionPolicy\nmetadata: {name: " + name + "}\nspec:\n  taints: [{key: " + key + "}]\n  " + strings.Join(lines, "\n  ")
}

// budget returns a PodDisruptionBudget of the pods of an app.
func budget(name, app string, allowed string) string {
	return "kind: PodDisruptionBudget\nmetadata: {namespace: web, name: " + name + "}\nspec: {selector: {matchLabels: {app: " + app +
		"}}}\nstatus: {disruptionsAllowed: " + allowed + "}"
}

// event returns an event about an object.
func event(kind, name, reason, message string, offset time.Duration) string {
	return "kind: Event\ninvolvedObject: {kind: " + kind + ", name: " + name + ", uid: " + name + "}\nreason: " + reason + "\nmessage: '" + message +
		"'\nlastTimestamp: " + stamped(offset)
}

// heldEvent returns the event by which Tollgate tells that pods are held because of a taint of a node, or no longer.
func heldEvent(node, eventReason, taint, reason string, offset time.Duration) string {
	return event("Node", node, eventReason, "told in words", offset) +
		"\nmetadata: {annotations: {tollgate.dev/held-taint: '" + taint + "', tollgate.dev/held-reason: " + reason + "}}"
}

// heldUp returns the event by which Tollgate tells why the API server does not let a pod go.
func heldUp(pod, why string, offset time.Duration) string {
	return event("Pod", pod, "TaintManagerEvictionHeldUp", "told in words: "+why, offset) +
		"\nmetadata: {annotations: {tollgate.dev/held-up-because: '" + why + "'}}"
}

// golden compares text with a file, or writes it.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), text)
}
