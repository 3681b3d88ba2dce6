package eviction

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

func TestAPodGetsTheWindowOfThePolicyThatGoverns(t *testing.T) {
	t.Parallel()
	const node, device = v1alpha1.TaintTargetNode, v1alpha1.TaintTargetDevice
	values := func(p *v1alpha1.EvictionPolicy) { p.Spec.Taints[0].Values = []string{"v"} }
	also := func(key string) func(*v1alpha1.EvictionPolicy) {
		return func(p *v1alpha1.EvictionPolicy) {
			p.Spec.Taints = append(p.Spec.Taints, v1alpha1.TaintSelector{Key: key})
		}
	}
	tests := map[string]struct {
		policies []v1alpha1.EvictionPolicy
		target   v1alpha1.TaintTarget
		want     string
	}{
		"no policy has one":                        {[]v1alpha1.EvictionPolicy{newPolicy("p", "a")}, node, ""},
		"one has":                                  {[]v1alpha1.EvictionPolicy{newPolicy("p", "a", windowed(20))}, node, "a=20"},
		"one has for two keys":                     {[]v1alpha1.EvictionPolicy{newPolicy("p", "b", windowed(20), also("a"), also("b"))}, node, "a=20,b=20"},
		"the default target is the node":           {[]v1alpha1.EvictionPolicy{newPolicy("p", "a", windowed(20))}, "", "a=20"},
		"of devices, one of nodes has not":         {[]v1alpha1.EvictionPolicy{newPolicy("p", "a", windowed(20))}, device, ""},
		"of devices":                               {[]v1alpha1.EvictionPolicy{newPolicy("p", "a", windowed(20), ofDevices())}, device, "a=20"},
		"of other pods":                            {[]v1alpha1.EvictionPolicy{newPolicy("p", "a", windowed(20), onPods(labelled("app", "db")))}, node, ""},
		"of other namespaces":                      {[]v1alpha1.EvictionPolicy{newPolicy("p", "a", windowed(20), inNamespaces(labelled("team", "bank")))}, node, ""},
		"two have, the first governs":              {[]v1alpha1.EvictionPolicy{newPolicy("p", "a", windowed(20)), newPolicy("q", "a", windowed(60), prioritized(1))}, node, "a=60"},
		"the first that governs has none":          {[]v1alpha1.EvictionPolicy{newPolicy("p", "a", windowed(20)), newPolicy("q", "*", prioritized(1))}, node, ""},
		"the first that governs other pods":        {[]v1alpha1.EvictionPolicy{newPolicy("p", "a", windowed(20)), newPolicy("q", "*", prioritized(1), onPods(labelled("app", "db")))}, node, "a=20"},
		"one that governs some values":             {[]v1alpha1.EvictionPolicy{newPolicy("p", "a", windowed(20)), newPolicy("q", "a", prioritized(1), values)}, node, "a=20"},
		"one that governs some drivers":            {[]v1alpha1.EvictionPolicy{newPolicy("p", "a", windowed(20), ofDevices()), newPolicy("q", "a", prioritized(1), ofDevices("x"))}, device, "a=20"},
		"claims know no pods":                      {[]v1alpha1.EvictionPolicy{newPolicy("p", "a", windowed(20), ofDevices()), newPolicy("q", "a", prioritized(1), ofDevices(), onPods(labelled("app", "web")))}, device, "a=20"},
		"one with a window that is not valid":      {[]v1alpha1.EvictionPolicy{newPolicy("p", "*", windowed(20))}, node, ""},
		"a star does not govern keys of system":    {[]v1alpha1.EvictionPolicy{newPolicy("p", corev1.TaintNodeUnreachable, windowed(20)), newPolicy("q", "*", prioritized(1))}, node, "node.kubernetes.io/unreachable=20"},
		"a pattern that covers the key and has no": {[]v1alpha1.EvictionPolicy{newPolicy("p", "example.com/a", windowed(20)), newPolicy("q", "example.com/*", prioritized(1))}, node, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Compile(tt.policies).WindowsFor(tt.target, web())
			require.NoError(t, err)
			require.Equal(t, tt.want, v1alpha1.FormatWindow(got))
			require.Equal(t, v1alpha1.ParseWindow(tt.want), got, "in order, each once")
		})
	}
}

func TestWindowsOfANamespaceThatIsNotKnownAreNotGuessed(t *testing.T) {
	t.Parallel()
	set := Compile([]v1alpha1.EvictionPolicy{newPolicy("p", "a", windowed(20), inNamespaces(labelled("team", "shop")))})
	given, err := set.WindowsFor(v1alpha1.TaintTargetNode, &Subject{Namespace: "shop"})
	var asked *NamespaceUnknownError
	require.ErrorAs(t, err, &asked)
	require.Empty(t, given)
	given, err = set.WindowsFor(v1alpha1.TaintTargetNode, &Subject{Namespace: "shop", NamespaceKnown: true, NamespaceLabels: labels.Set{"team": "shop"}})
	require.NoError(t, err)
	require.Equal(t, []v1alpha1.WindowToleration{{Key: "a", Seconds: 20}}, given)
}

func TestWindowsAreListedByTargetAndKey(t *testing.T) {
	t.Parallel()
	set := Compile([]v1alpha1.EvictionPolicy{
		newPolicy("z", "b", windowed(20)), newPolicy("a", "b", windowed(30)), newPolicy("first", "b", windowed(40), prioritized(1)),
		newPolicy("d", "c", windowed(50), ofDevices()), newPolicy("none", "d"),
	})
	var got []Window
	for _, w := range set.Windows() {
		require.Equal(t, w.Seconds, *w.Policy.WindowSeconds)
		w.Policy = nil
		got = append(got, w)
	}
	require.Equal(t, []Window{
		{Target: v1alpha1.TaintTargetDevice, Key: "c", Seconds: 50},
		{Target: v1alpha1.TaintTargetNode, Key: "b", Seconds: 40},
		{Target: v1alpha1.TaintTargetNode, Key: "b", Seconds: 30},
		{Target: v1alpha1.TaintTargetNode, Key: "b", Seconds: 20},
	}, got)
	require.True(t, set.HasWindow("", "b"))
	require.True(t, set.HasWindow(v1alpha1.TaintTargetDevice, "c"))
	require.False(t, set.HasWindow(v1alpha1.TaintTargetNode, "c"))
	require.False(t, set.HasWindow(v1alpha1.TaintTargetNode, "d"))
}
