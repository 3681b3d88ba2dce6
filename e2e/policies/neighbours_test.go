package policies

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/tollgate-dev/tollgate/policy"
)

// untaintNode removes the taints with a key from a node, with the rights of a user.
func (p *person) untaintNode(t *testing.T, name, key string) error {
	t.Helper()
	var left []corev1.Taint
	for _, taint := range nodeNow(t, name).Spec.Taints {
		if taint.Key != key {
			left = append(left, taint)
		}
	}
	_, err := p.mergePatch(t.Context(), name, specTaints(left))
	return err
}

func TestSampleOfAutoscalers(t *testing.T) {
	const plain, pooled = "autoscaled-node", "pool-node"
	namespaces(t, "autoscaled")
	sample(t, "autoscalers.yaml")
	node(t, plain, nil)
	clusterAutoscaler, karpenter := serviceAccount(t, "kube-system", "cluster-autoscaler"), serviceAccount(t, "kube-system", "karpenter")
	alice, paula := tenant(t, "alice"), tenant(t, "paula", "platform")

	for name, c := range map[string]struct {
		owner, other *person
		taint        corev1.Taint
		policy       string
	}{
		"Cluster Autoscaler marks a node that it removes": {
			clusterAutoscaler, karpenter, noSchedule("ToBeDeletedByClusterAutoscaler", "1790000000"), "TaintPolicy/cluster-autoscaler",
		},
		"Cluster Autoscaler marks a node that it may remove": {
			clusterAutoscaler, karpenter,
			corev1.Taint{Key: "DeletionCandidateOfClusterAutoscaler", Value: "1790000000", Effect: corev1.TaintEffectPreferNoSchedule},
			"TaintPolicy/cluster-autoscaler",
		},
		"Karpenter marks a node that it removes": {karpenter, clusterAutoscaler, karpenterv1.DisruptedNoScheduleTaint, "TaintPolicy/karpenter"},
	} {
		t.Run(name, func(t *testing.T) {
			requireRefused(t, alice.taintNode(t, plain, c.taint), policy.TaintNotGranted, c.policy)
			requireRefused(t, c.other.taintNode(t, plain, c.taint), policy.TaintNotGranted, c.policy)
			requireRefused(t, paula.taintNode(t, plain, c.taint), policy.TaintNotGranted, c.policy)
			require.NoError(t, c.owner.taintNode(t, plain, c.taint))
			requireRefused(t, alice.untaintNode(t, plain, c.taint.Key), policy.TaintNotGranted, c.policy)
			require.NoError(t, c.owner.untaintNode(t, plain, c.taint.Key))
			require.NoError(t, c.owner.taintNode(t, plain, c.taint))
			require.NoError(t, paula.untaintNode(t, plain, c.taint.Key), "the platform cleans up")
		})
	}
	t.Run("a node of Karpenter registers with the taint that Karpenter removes", func(t *testing.T) {
		const name = "karpenter-node"
		createNode(t, kubelet(t, name), name, nil, karpenterv1.UnregisteredNoExecuteTaint)
		requireRefused(t, alice.untaintNode(t, name, karpenterv1.UnregisteredTaintKey), policy.TaintNotGranted, "TaintPolicy/karpenter")
		require.NoError(t, karpenter.untaintNode(t, name, karpenterv1.UnregisteredTaintKey))
	})
	t.Run("nodes of the pool register with both taints, and one of them goes", func(t *testing.T) {
		pool := nodePoolOfThePage(t).Spec.Template
		createNode(t, kubelet(t, pooled), pooled, pool.Labels)
		for _, taint := range append(pool.Spec.Taints, pool.Spec.StartupTaints...) {
			found := taintOf(nodeNow(t, pooled), taint.Key, taint.Effect)
			require.NotNil(t, found, taint.Key)
			require.Equal(t, taint.Value, found.Value)
		}
		startup, kept := pool.Spec.StartupTaints[0].Key, pool.Spec.Taints[0]
		waitReady(t, pooled)
		requireRefused(t, karpenter.untaintNode(t, pooled, startup), policy.TaintNotGranted, "TaintPolicy/pool-gpu-startup")
		require.NoError(t, serviceAccount(t, "node-agent", "agent").untaintNode(t, pooled, startup))
		requireRefused(t, paula.untaintNode(t, pooled, kept.Key), policy.RegisteredTaintRemoved, "TaintPolicy/pool-gpu")
		require.NotNil(t, taintOf(nodeNow(t, pooled), kept.Key, kept.Effect))
	})
	t.Run("Karpenter adds the taints of its NodePool to a node without them", func(t *testing.T) {
		pool := nodePoolOfThePage(t).Spec.Template
		for _, taint := range append(pool.Spec.Taints, pool.Spec.StartupTaints...) {
			requireRefused(t, alice.taintNode(t, plain, taint), policy.TaintNotGranted)
			require.NoError(t, karpenter.taintNode(t, plain, taint))
		}
	})
	t.Run("the platform tolerates what it runs everywhere, and tenants do not", func(t *testing.T) {
		everything := podWith(exists("", ""))
		requireRefused(t, alice.admit(t, "autoscaled", everything), policy.TolerationNotGranted, "TolerationPolicy/autoscaled-nodes")
		requireRefused(t, alice.admit(t, "autoscaled", podWith(exists(karpenterv1.DisruptedTaintKey, ""))), policy.TolerationNotGranted)
		eventuallyAllowed(t, func() error { return paula.admit(t, "autoscaled", everything) })
	})
}

func TestSampleOfNodeHealth(t *testing.T) {
	const unhealthy = "unhealthy-node"
	namespaces(t, "unhealthy")
	sample(t, "node-health.yaml")
	node(t, unhealthy, nil)
	quarantine := serviceAccount(t, "nvsentinel", "fault-quarantine")
	readiness := serviceAccount(t, "nrr-system", "nrr-controller-manager")
	alice, gina := tenant(t, "alice"), tenant(t, "gina", "gpu-operators")

	for name, c := range map[string]struct {
		owner, other *person
		taint        corev1.Taint
		policy       string
	}{
		"NVSentinel quarantines a node": {quarantine, readiness, noSchedule("nvidia.com/gpu-error", "fatal"), "TaintPolicy/nvsentinel"},
		"the Node Readiness Controller holds pods off": {
			readiness, quarantine, noSchedule("readiness.k8s.io/kernel", "pending"), "TaintPolicy/node-readiness",
		},
	} {
		t.Run(name, func(t *testing.T) {
			becomes(t, "the limits can be judged", func() error { return c.owner.taintNode(t, unhealthy, c.taint) })
			requireRefused(t, alice.untaintNode(t, unhealthy, c.taint.Key), policy.TaintNotGranted, c.policy)
			require.NoError(t, c.owner.untaintNode(t, unhealthy, c.taint.Key))
			requireRefused(t, alice.taintNode(t, unhealthy, c.taint), policy.TaintNotGranted, c.policy)
			requireRefused(t, c.other.taintNode(t, unhealthy, c.taint), policy.TaintNotGranted, c.policy)
		})
	}
	t.Run("the keys of the driver are for nobody else", func(t *testing.T) {
		rule := ruleObject("gpu-lost", "gpu.nvidia.com", "gpu.nvidia.com/gpu-lost", resourcev1.DeviceTaintEffectNoSchedule)
		requireRefused(t, alice.createRule(t, rule), policy.TaintNotGranted, "TaintPolicy/gpu-nvidia")
		require.NoError(t, gina.createRule(t, rule))
	})
	t.Run("only those who repair tolerate", func(t *testing.T) {
		pod := podWith(exists("nvidia.com/gpu-error", ""))
		requireRefused(t, alice.admit(t, "unhealthy", pod), policy.TolerationNotGranted, "TolerationPolicy/node-health")
		eventuallyAllowed(t, func() error { return gina.admit(t, "unhealthy", pod) })
	})
}
