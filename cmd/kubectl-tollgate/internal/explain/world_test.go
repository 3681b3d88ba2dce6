package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/devices"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/tracker"
)

// noon is when everything is asked.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// builder puts a world together.
type builder struct {
	*World

	tolerations []v1alpha1.TolerationPolicy
	placement   []v1alpha1.PlacementPolicy
	gates       []v1alpha1.GatePolicy
}

// worldOf returns a world with objects, written as YAML with --- between them. The
// namespace that is asked about is ml.
func worldOf(tb testing.TB, texts ...string) *World {
	tb.Helper()
	known := runtime.NewScheme()
	require.NoError(tb, scheme.AddToScheme(known))
	require.NoError(tb, v1alpha1.AddToScheme(known))
	b := &builder{World: &World{
		Cluster: &state.Cluster{Now: noon, Tracker: tracker.New()}, Classes: map[string]*resourcev1.DeviceClass{}, Inventory: devices.NewTable(devices.Filter{}), Namespace: &corev1.Namespace{},
		Evictions: &evictions.Cluster{
			Terms: settings.DefaultEviction(), Namespaces: func(string) (labels.Labels, bool) { return labels.Set{}, true },
		},
	}}
	b.Evictions.Tracker = b.Tracker
	b.Namespace.Name = "ml"
	for text := range strings.SplitSeq(strings.Join(texts, "\n---\n"), "\n---\n") {
		if strings.TrimSpace(text) == "" {
			continue
		}
		var kind struct{ APIVersion, Kind string }
		require.NoError(tb, yaml.Unmarshal([]byte(text), &kind))
		object, err := known.New(schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind))
		require.NoError(tb, err, text)
		require.NoError(tb, yaml.UnmarshalStrict([]byte(text), object), text)
		b.add(tb, object)
	}
	b.Tracker.SetDevicesKnown(true)
	b.Policies = policyset.None().WithTolerations(b.tolerations).WithPlacement(b.placement).WithGates(b.gates).
		WithTaints(b.TaintPolicies).WithEvictions(b.Evictions.Policies)
	b.Evictions.Set = b.Policies.Evictions
	return b.World
}

func (b *builder) add(tb testing.TB, object runtime.Object) {
	tb.Helper()
	switch o := object.(type) {
	case *corev1.Node:
		b.Nodes = append(b.Nodes, o)
		b.Tracker.SetNode(tracker.NodeOf(o), noon)
	case *corev1.Pod:
		if o.UID == "" {
			o.UID = types.UID(o.Name + "-uid")
		}
		b.Pods = append(b.Pods, o)
		b.Tracker.SetPod(tracker.PodOf(o))
	case *corev1.Event:
		b.Events = append(b.Events, o)
		b.Evictions.Events.Add(o)
	case *policyv1.PodDisruptionBudget:
		b.Tracker.SetBudget(tracker.BudgetOf(o))
	case *resourcev1.ResourceClaim:
		b.Claims = append(b.Claims, o)
		b.Inventory.AddClaim(o)
		b.Tracker.SetClaim(tracker.ClaimOf(o))
	case *resourcev1.ResourceSlice:
		b.Inventory.AddSlice(o)
		b.Tracker.SetSlice(tracker.SliceOf(o), noon)
	case *resourcev1.DeviceClass:
		b.Classes[o.Name] = o
		b.Inventory.AddClass(o)
	case *resourcev1.DeviceTaintRule:
		b.Inventory.AddRule(o, nil)
		b.Tracker.SetRule(tracker.RuleOf(o), noon)
	case *v1alpha1.EvictionPolicy:
		b.Evictions.Policies = append(b.Evictions.Policies, *o)
	case *v1alpha1.TaintPolicy:
		b.TaintPolicies = append(b.TaintPolicies, *o)
	case *v1alpha1.TolerationPolicy:
		b.tolerations = append(b.tolerations, *o)
	case *v1alpha1.PlacementPolicy:
		b.placement = append(b.placement, *o)
	case *v1alpha1.GatePolicy:
		b.gates = append(b.gates, *o)
	default:
		require.Fail(tb, "nobody knows what to do with it", "%T", object)
	}
}
