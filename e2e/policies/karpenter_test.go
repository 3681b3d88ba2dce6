package policies

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/install"
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

// The check of manifests and that of a cluster read what Karpenter's own types write.
func TestANodePoolThatLacksARegisteredTaintIsWarnedOf(t *testing.T) {
	samples := filepath.Join(programs.Root, "deploy", "samples", "autoscalers.yaml")
	fits, lacks, differs := nodePoolOfThePage(t), nodePoolOfThePage(t), nodePoolOfThePage(t)
	lacks.Name, lacks.Spec.Template.Spec.Taints, lacks.Spec.Template.Spec.StartupTaints = "lacks", nil, nil
	differs.Name, differs.Spec.Template.Labels = "differs", nil
	differs.Spec.Template.Spec.Requirements = append(differs.Spec.Template.Spec.Requirements, karpenterv1.NodeSelectorRequirementWithMinValues{
		Key: "pool", Operator: corev1.NodeSelectorOpIn, Values: []string{"gpu"},
	})
	differs.Spec.Template.Spec.Taints[0].Effect = corev1.TaintEffectNoExecute

	folder := t.TempDir()
	for _, pool := range []*karpenterv1.NodePool{fits, lacks, differs} {
		text, err := yaml.Marshal(pool)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folder, pool.Name+".yaml"), text, 0o600))
	}
	warns := func(args ...string) {
		t.Helper()
		check := exec.CommandContext(t.Context(), programs.Plugin(), append([]string{"check", "-p", samples, "-o", "wide"}, args...)...)
		out, err := check.CombinedOutput()
		require.NotContains(t, string(out), "undecided", "%v", err)
		require.Contains(t, string(out), "NodePool gpu: allowed\n")
		_, of, _ := strings.Cut(string(out), "NodePool lacks: warned\n")
		require.Contains(t, of, "TaintPolicy/pool-gpu: spec.template.spec.taints\n")
		require.Contains(t, of, "TaintPolicy/pool-gpu-startup: spec.template.spec.taints\n")
		_, of, _ = strings.Cut(string(out), "NodePool differs: warned\n")
		require.Contains(t, of, "TaintPolicy/pool-gpu: spec.template.spec.taints[0]\n    pool.example.com/gpu=true:NoExecute: the policy registers the taint with another")
	}
	warns("-f", folder)

	const crd = "pkg/apis/crds/karpenter.sh_nodepools.yaml"
	require.NoError(t, install.ApplyCRD(t.Context(), shared, "sigs.k8s.io/karpenter", crd))
	t.Cleanup(func() {
		out, err := install.Kubectl(afterwards(t), shared, "delete", "crd/nodepools.karpenter.sh")
		require.NoError(t, err, string(out))
	})
	out, err := install.Kubectl(t.Context(), shared, "apply", "-f", folder)
	require.NoError(t, err, string(out))
	warns("--cluster", "--kubeconfig", shared.Kubeconfig())
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
