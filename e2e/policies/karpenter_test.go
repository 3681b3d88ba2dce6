package policies

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// Karpenter launches nodes for what the NodePool says. A taint that a policy registers and
// that the NodePool lacks makes it launch nodes that the pods cannot use.
func TestTheNodePoolOfThePageHasTheTaintsThatTheSampleRegisters(t *testing.T) {
	pool := nodePoolOfThePage(t)
	template := pool.Spec.Template
	labels := template.Labels
	require.NotEmpty(t, labels)

	var kept, started []corev1.Taint
	content, err := os.ReadFile(filepath.Join(programs.Root, "deploy", "samples", "autoscalers.yaml"))
	require.NoError(t, err)
	for _, object := range objects(t, string(content)) {
		if object.GetKind() != "TaintPolicy" {
			continue
		}
		encoded, err := object.MarshalJSON()
		require.NoError(t, err)
		var policy v1alpha1.TaintPolicy
		require.NoError(t, json.Unmarshal(encoded, &policy))
		for _, r := range policy.Spec.Register {
			require.NotEmpty(t, r.NodeSelector.MatchLabels)
			require.Empty(t, r.NodeSelector.MatchExpressions)
			for key, value := range r.NodeSelector.MatchLabels {
				require.Equal(t, value, labels[key], "label %s of the nodes", key)
			}
			for _, registered := range r.Taints {
				taint := corev1.Taint{Key: registered.Key, Value: registered.Value, Effect: registered.Effect}
				if r.Reconcile {
					kept = append(kept, taint)
				} else {
					started = append(started, taint)
				}
			}
		}
	}
	require.NotEmpty(t, kept)
	require.NotEmpty(t, started)
	require.ElementsMatch(t, kept, template.Spec.Taints, "taints that stay")
	require.ElementsMatch(t, started, template.Spec.StartupTaints, "taints that are removed when the node has started")
}

// nodePoolOfThePage returns the NodePool of docs/neighbours.md, with no field that
// Karpenter does not have.
func nodePoolOfThePage(t *testing.T) *karpenterv1.NodePool {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(programs.Root, "docs", "neighbours.md"))
	require.NoError(t, err)
	for rest := string(page); ; {
		_, after, found := strings.Cut(rest, "```yaml\n")
		require.True(t, found, "the page has a NodePool")
		block, after, found := strings.Cut(after, "```")
		require.True(t, found)
		if rest = after; !strings.Contains(block, "kind: NodePool\n") {
			continue
		}
		var pool karpenterv1.NodePool
		require.NoError(t, yaml.UnmarshalStrict([]byte(block), &pool))
		require.Equal(t, "karpenter.sh/v1", pool.APIVersion)
		return &pool
	}
}
