package cli

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	noSchedule = `{key: example.com/X, value: a, effect: NoSchedule}`
	noExecute  = `{key: example.com/X, value: a, effect: NoExecute}`
)

// evictionPolicy is one for the taints of the scenario, of nodes and of devices.
func evictionPolicy(spec string) string {
	return "apiVersion: tollgate.dev/v1alpha1\nkind: EvictionPolicy\nmetadata: {name: X}\nspec: {taints: [{key: example.com/X}, {target: Device, key: example.com/X}], " + spec + "}\n"
}

// TestPending makes pods wait for each reason that there is for it.
func TestPending(t *testing.T) {
	t.Parallel()
	one := func(taints, pod string) func(*testing.T, *stage) {
		return func(t *testing.T, s *stage) {
			t.Helper()
			s.node(t, "1", "", taints)
			s.pod(t, "p", pod)
		}
	}
	for name, test := range map[string]struct {
		setUp func(*testing.T, *stage)
		kinds string
		words []string
	}{
		"noschedule": {one(noSchedule, ""), "UntoleratedTaint", []string{"the only node that matches its node selector lane=X has taints that it does not tolerate: example.com/X=a:NoSchedule (node X-1)"}},
		"noexecute":  {one(noExecute, ""), "UntoleratedTaint", []string{"example.com/X=a:NoExecute (node X-1)"}},
		"value": {
			one(noSchedule, `tolerations: [{key: example.com/X, value: b}]`), "UntoleratedTaint",
			[]string{"its toleration example.com/X=b has another value"},
		},
		"effect": {
			one(noSchedule, `tolerations: [{key: example.com/X, operator: Exists, effect: NoExecute}]`), "UntoleratedTaint",
			[]string{"its toleration example.com/X:NoExecute is for the effect NoExecute"},
		},
		"less": {
			one(`{key: example.com/X, value: "700", effect: NoSchedule}`, `tolerations: [{key: example.com/X, operator: Lt, value: "500", effect: NoSchedule}]`),
			"UntoleratedTaint",
			[]string{"example.com/X=700:NoSchedule", "its toleration example.com/X<500:NoSchedule does not hold for the value 700"},
		},
		"two-taints": {
			func(t *testing.T, s *stage) {
				t.Helper()
				s.node(t, "1", "", noSchedule)
				s.node(t, "2", "", noSchedule)
				s.node(t, "3", "", `{key: example.com/other, effect: NoSchedule}`)
				s.pod(t, "p", "")
			},
			"UntoleratedTaint",
			[]string{"all 3 nodes that match its node selector lane=X have taints that it does not tolerate: example.com/X=a:NoSchedule (2 nodes), example.com/other:NoSchedule (node X-3)"},
		},
		"cordon": {
			func(t *testing.T, s *stage) {
				t.Helper()
				s.node(t, "1", "", "")
				node, err := s.nodeNow(t.Context(), "1")
				require.NoError(t, err)
				before := client.MergeFrom(node.DeepCopy())
				node.Spec.Unschedulable = true
				s.keepsOff(t, "", func() { require.NoError(t, s.Patch(t.Context(), node, before)) })
				s.pod(t, "p", "")
			},
			"Cordon",
			[]string{"the only node that matches its node selector lane=X is cordoned (X-1)"},
		},
		"selector": {one("", `affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: none, operator: Exists}]}]}}}`), "NodeSelector", []string{"matches its node selector lane=X and required node affinity"}},
		"gate":     {one(noSchedule, `schedulingGates: [{name: example.com/X}]`), "SchedulingGate", []string{"1 scheduling gate", "example.com/X (no GatePolicy guards it: whoever may update the pod may remove it)"}},
		"two-gates": {
			func(t *testing.T, s *stage) {
				t.Helper()
				s.apply(t, "apiVersion: tollgate.dev/v1alpha1\nkind: GatePolicy\nmetadata: {name: X}\nspec: {gates: [X.example.com/*], owners: [{kind: ServiceAccount, namespace: queue, name: controller}]}\n")
				s.node(t, "1", "", "")
				s.pod(t, "p", `schedulingGates: [{name: X.example.com/queue}, {name: X.other.com/b}]`)
			},
			"SchedulingGate",
			[]string{"2 scheduling gates", "X.example.com/queue (GatePolicy/X: allowed to service account queue/controller)", "X.other.com/b (no GatePolicy guards it"},
		},
		"given-gate": {
			func(t *testing.T, s *stage) {
				t.Helper()
				s.apply(t, "apiVersion: tollgate.dev/v1alpha1\nkind: PlacementPolicy\nmetadata: {name: X}\nspec: {match: {namespaces: [X]}, pod: {schedulingGates: [X.example.com/given]}}\n")
				s.node(t, "1", "", "")
				s.pod(t, "p", "")
			},
			"SchedulingGate",
			[]string{"1 scheduling gate", "X.example.com/given"},
		},
		"spread": {
			func(t *testing.T, s *stage) {
				t.Helper()
				s.node(t, "1", "zone: a", "")
				s.node(t, "2", "zone: b", noSchedule)
				s.pod(t, "first", "")
				s.runs(t, "first")
				s.pod(t, "p", `topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}]`)
			},
			"TopologySpread UntoleratedTaint",
			[]string{
				"topology spread keeps it from 1 node (X-1): one more in zone a (1 pod) would be more than maxSkew 1 ahead of the emptiest, which has 0",
				"it can never go to b, where taints keep it off (example.com/X=a:NoSchedule), and nodeTaintsPolicy: Honor would leave it out",
			},
		},
		"cpu": {one("", `resources: {requests: {cpu: "5000"}}`), "Scheduler", []string{"Insufficient cpu"}},
		"volume": {
			func(t *testing.T, s *stage) {
				t.Helper()
				s.node(t, "1", "", "")
				s.apply(t, "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {accessModes: [ReadWriteOnce], storageClassName: none, resources: {requests: {storage: 1Gi}}}\n")
				s.pod(t, "p", `volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]`)
			},
			"Scheduler",
			[]string{"the scheduler says: pod has unbound immediate PersistentVolumeClaims."},
		},
		"ports": {
			func(t *testing.T, s *stage) {
				t.Helper()
				s.node(t, "1", "", "")
				const port = `hostNetwork: true, initContainers: [{name: i, image: i, restartPolicy: Always, ports: [{containerPort: 80, hostPort: 80}]}]`
				s.pod(t, "first", port)
				s.eventuallyOnNode(t, "first")
				s.pod(t, "p", port)
			},
			"Scheduler",
			[]string{"1 node(s) didn't have free ports for the requested pod ports"},
		},
		"slice-taint": {
			func(t *testing.T, s *stage) {
				t.Helper()
				s.devices(t, noSchedule, "")
				s.pod(t, "p", usesClaim)
			},
			"Claim",
			[]string{"claim gpu cannot be allocated: request r asks for 1 of 1 device (DeviceClass X), of which 1 has taints that it does not tolerate: example.com/X=a:NoSchedule (its driver in ResourceSlice X; 1 device)"},
		},
		"rule-taint": {
			func(t *testing.T, s *stage) {
				t.Helper()
				s.devices(t, "", "")
				s.keepsOff(t, usesClaim, func() { s.apply(t, rule("NoSchedule")) })
				s.pod(t, "p", usesClaim)
			},
			"Claim",
			[]string{"example.com/X=a:NoSchedule (DeviceTaintRule X; 1 device)"},
		},
		"patch-taint": {
			func(t *testing.T, s *stage) {
				t.Helper()
				s.devices(t, "", `tolerations: [{key: example.com/X, value: b}]`)
				s.keepsOff(t, usesClaim, func() {
					s.apply(t, patch("NoSchedule"))
					s.written(t)
				})
				s.pod(t, "p", usesClaim)
			},
			"Claim",
			[]string{"example.com/X=a:NoSchedule (ResourceSlicePatch X, the toleration example.com/X=b has another value; 1 device)"},
		},
		"no-device": {
			func(t *testing.T, s *stage) {
				t.Helper()
				s.devices(t, "", `selectors: [{cel: {expression: "device.driver == 'other'"}}]`)
				s.pod(t, "p", usesClaim)
			},
			"Claim",
			[]string{"no device is what request r asks for (DeviceClass X)"},
		},
		"taken-device": {
			func(t *testing.T, s *stage) {
				t.Helper()
				s.devices(t, "", "")
				s.pod(t, "first", usesClaim)
				s.runs(t, "first")
				s.apply(t, claimOf("other", ""))
				s.pod(t, "p", `resourceClaims: [{name: g, resourceClaimName: other}]`)
			},
			"Claim",
			[]string{"request r asks for 1 of 1 device (DeviceClass X), of which 1 is allocated to other claims"},
		},
		// The scheduler does not even look at it, and says nothing.
		"silent-claim": {one("", `resourceClaims: [{name: g, resourceClaimName: none}]`), "Claim", []string{"claim none does not exist"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "pending-"+name)
			test.setUp(t, s)
			if name != "silent-claim" {
				s.waits(t, "p")
			}
			s.explains(t, "p", "Pending", test.kinds, test.words...)
		})
	}
}

// TestOnANode has pods on nodes and devices with taints, and policies that hold them.
func TestOnANode(t *testing.T) {
	t.Parallel()
	// Each runs a pod, and then something happens to its node.
	tainted := func(pod string, then func(*testing.T, *stage)) func(*testing.T, *stage) {
		return func(t *testing.T, s *stage) {
			t.Helper()
			s.node(t, "1", "", "")
			s.pod(t, "p", pod)
			s.runs(t, "p")
			if then != nil {
				then(t, s)
			}
			s.taint(t, "1", "a", corev1.TaintEffectNoExecute)
		}
	}
	policy := func(spec string) func(*testing.T, *stage) {
		return func(t *testing.T, s *stage) { t.Helper(); s.apply(t, evictionPolicy(spec)) }
	}
	const forAWhile = `tolerations: [{key: example.com/X, operator: Exists, effect: NoExecute, tolerationSeconds: 600}]`
	for name, test := range map[string]struct {
		setUp        func(*testing.T, *stage)
		state, kinds string
		words        []string
	}{
		"untainted": {
			func(t *testing.T, s *stage) {
				t.Helper()
				s.node(t, "1", "", "")
				s.pod(t, "p", "")
			},
			"Staying", "Untainted",
			[]string{"Stays on node X-1: no taint with effect NoExecute holds for it"},
		},
		"kept-off": {
			func(t *testing.T, s *stage) {
				t.Helper()
				s.node(t, "1", "", "")
				s.pod(t, "p", "")
				s.runs(t, "p")
				s.taint(t, "1", "a", corev1.TaintEffectNoSchedule)
			},
			"Staying", "Untainted", nil,
		},
		"spread-honor": {
			func(t *testing.T, s *stage) {
				t.Helper()
				s.node(t, "1", "zone: a", "")
				s.node(t, "2", "zone: b", noSchedule)
				s.pod(t, "first", "")
				s.runs(t, "first")
				s.pod(t, "p", `topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, nodeTaintsPolicy: Honor, labelSelector: {matchLabels: {app: web}}}]`)
			},
			"Staying", "Untainted",
			[]string{"Stays on node X-1"},
		},
		"for-ever":    {tainted(`tolerations: [{key: example.com/X, operator: Exists}]`, nil), "Staying", "Tolerated", []string{"example.com/X=a:NoExecute of its node (toleration example.com/X)"}},
		"for-a-while": {tainted(forAWhile, nil), "Leaving", "NodeTaint", []string{"Has to leave node X-1 in ", "is tolerated for a while, which ends then (toleration example.com/X:NoExecute for 600s)"}},
		"expired": {
			tainted(`tolerations: [{key: example.com/X, operator: Exists, effect: NoExecute, tolerationSeconds: 1}]`, policy("paused: true")), "Held", "Paused NodeTaint",
			[]string{"EvictionPolicy/X is paused", "was tolerated for a while, which is over (toleration example.com/X:NoExecute for 1s)"},
		},
		"value-held": {
			tainted(`tolerations: [{key: example.com/X, value: b}]`, policy("paused: true")), "Held", "Paused NodeTaint",
			[]string{"taint example.com/X=a:NoExecute of node X-1 is not tolerated (its toleration example.com/X=b has another value)"},
		},
		"protected": {tainted("", policy("protect: {podSelector: {matchLabels: {app: web}}}")), "Held", "Protected", []string{"EvictionPolicy/X protects it from taint example.com/X=a:NoExecute of node X-1"}},
		"budget": {
			tainted("", func(t *testing.T, s *stage) {
				t.Helper()
				s.apply(t, evictionPolicy("method: Evict"))
				s.apply(t, "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web}\nspec: {minAvailable: 1, selector: {matchLabels: {app: web}}}\n")
			}),
			"Held", "Budget NodeTaint",
			[]string{"PodDisruptionBudget web lets none of its pods go at the moment, and EvictionPolicy/X evicts with the method Evict"},
		},
		"breaker": {
			func(t *testing.T, s *stage) {
				t.Helper()
				s.apply(t, evictionPolicy("breaker: {maxPods: 1, window: 10m}"))
				s.node(t, "1", "", "")
				// The two others are due first: of them one goes.
				s.pod(t, "a", "")
				s.pod(t, "b", "")
				s.pod(t, "p", `tolerations: [{key: example.com/X, operator: Exists, effect: NoExecute, tolerationSeconds: 3}]`)
				for _, pod := range []string{"a", "b", "p"} {
					s.runs(t, pod)
				}
				s.taint(t, "1", "a", corev1.TaintEffectNoExecute)
				s.holds(t, s.lane, 2)
			},
			"Held", "Breaker NodeTaint",
			[]string{"the breaker of EvictionPolicy/X has let as many pods go as it may"},
		},
		"device-for-ever": {
			func(t *testing.T, s *stage) {
				t.Helper()
				s.devices(t, noExecute, `tolerations: [{key: example.com/X, operator: Exists}]`)
				s.pod(t, "p", usesClaim)
			},
			"Staying", "Tolerated",
			[]string{"example.com/X=a:NoExecute of device X.example.com/pool/gpu-0 (its driver in ResourceSlice X; toleration example.com/X of claim gpu)"},
		},
		"device-for-a-while": {
			func(t *testing.T, s *stage) {
				t.Helper()
				s.devices(t, "", `tolerations: [{key: example.com/X, operator: Exists, effect: NoExecute, tolerationSeconds: 600}]`)
				s.pod(t, "p", usesClaim)
				s.runs(t, "p")
				s.apply(t, patch("NoExecute"))
			},
			"Leaving", "DeviceTaint",
			[]string{"taint example.com/X=a:NoExecute of device X.example.com/pool/gpu-0, from ResourceSlicePatch X is tolerated for a while", "for 600s of claim gpu"},
		},
		"device-paused": {
			func(t *testing.T, s *stage) {
				t.Helper()
				s.apply(t, evictionPolicy("paused: true"))
				s.devices(t, "", "")
				s.pod(t, "p", usesClaim)
				s.runs(t, "p")
				s.apply(t, rule("NoExecute"))
			},
			"Held", "Paused DeviceTaint",
			[]string{"from DeviceTaintRule X is not tolerated"},
		},
		"leaving-finalizer": {
			tainted("", func(t *testing.T, s *stage) { t.Helper(); s.keep(t, "p") }), "Terminating", "NodeTaint",
			[]string{"it was evicted: taint example.com/X=a:NoExecute of node X-1 is not tolerated"},
		},
		"deleted-by-hand": {
			func(t *testing.T, s *stage) {
				t.Helper()
				s.node(t, "1", "", "")
				s.pod(t, "p", "")
				s.runs(t, "p")
				s.keep(t, "p")
				pod, err := s.podNow(t.Context(), "p")
				require.NoError(t, err)
				require.NoError(t, s.Delete(t.Context(), pod))
			},
			"Terminating", "Deleted",
			[]string{"somebody deleted it, and no taint did"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "on-"+name)
			test.setUp(t, s)
			s.explains(t, "p", test.state, test.kinds, test.words...)
		})
	}
}

// TestGone has pods leave, and asks about them when they are gone.
func TestGone(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		setUp func(*testing.T, *stage)
		kind  string
		words []string
	}{
		"node": {
			func(t *testing.T, s *stage) {
				t.Helper()
				s.node(t, "1", "", "")
				s.pod(t, "p", "")
				s.runs(t, "p")
				s.taint(t, "1", "a", corev1.TaintEffectNoExecute)
			},
			"NodeTaint",
			[]string{"it was evicted because of taint example.com/X=a:NoExecute of Node X-1"},
		},
		"policy": {
			func(t *testing.T, s *stage) {
				t.Helper()
				s.apply(t, evictionPolicy("method: Evict"))
				s.node(t, "1", "", "")
				s.pod(t, "p", "")
				s.runs(t, "p")
				s.taint(t, "1", "a", corev1.TaintEffectNoExecute)
			},
			"NodeTaint",
			[]string{"it was evicted because of taint example.com/X=a:NoExecute of Node X-1 (as EvictionPolicy X says)"},
		},
		"rule": {
			func(t *testing.T, s *stage) {
				t.Helper()
				s.devices(t, "", "")
				s.pod(t, "p", usesClaim)
				s.runs(t, "p")
				s.apply(t, rule("NoExecute"))
			},
			"DeviceTaint",
			[]string{"taint example.com/X=a:NoExecute of DeviceTaintRule X"},
		},
		"patch": {
			func(t *testing.T, s *stage) {
				t.Helper()
				s.devices(t, "", "")
				s.pod(t, "p", usesClaim)
				s.runs(t, "p")
				s.apply(t, patch("NoExecute"))
			},
			"DeviceTaint",
			[]string{"taint example.com/X=a:NoExecute of ResourceSlicePatch X"},
		},
		"deleted": {
			func(t *testing.T, s *stage) {
				t.Helper()
				s.node(t, "1", "", "")
				s.pod(t, "p", "")
				s.runs(t, "p")
				pod, err := s.podNow(t.Context(), "p")
				require.NoError(t, err)
				require.NoError(t, s.Delete(t.Context(), pod))
			},
			"Deleted",
			[]string{"no event says that a taint made it leave"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "gone-"+name)
			test.setUp(t, s)
			s.leaves(t, "p")
			s.explains(t, "p", "Gone", test.kind, test.words...)
		})
	}
}

func TestAPodOfADaemonSetStaysOnACordonedNode(t *testing.T) {
	t.Parallel()
	s := newStage(t, "daemon")
	s.node(t, "1", "", "")
	node, err := s.nodeNow(t.Context(), "1")
	require.NoError(t, err)
	before := client.MergeFrom(node.DeepCopy())
	node.Spec.Unschedulable = true
	require.NoError(t, s.Patch(t.Context(), node, before))
	s.apply(t, `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {nodeSelector: {lane: X}, tolerations: [{key: example.com/X, operator: Exists}], containers: [{name: c, image: image}]}
`)
	var pods corev1.PodList
	eventually(t, "there is a pod", func(ctx context.Context) error {
		if err := s.List(ctx, &pods, client.InNamespace("daemon")); err != nil {
			return err
		}
		if len(pods.Items) != 1 {
			return fmt.Errorf("%d pods", len(pods.Items))
		}
		return nil
	})
	name := pods.Items[0].Name
	s.runs(t, name)
	s.explains(t, name, "Staying", "Untainted", "Stays on node daemon-1")
	s.taint(t, "1", "a", corev1.TaintEffectNoExecute)
	s.explains(t, name, "Staying", "Tolerated", "toleration example.com/daemon")
}

func TestARefusedTemplateIsTheReasonWhyThereIsNoPod(t *testing.T) {
	t.Parallel()
	s := newStage(t, "refused")
	s.apply(t, `
apiVersion: tollgate.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: X}
spec: {match: {namespaces: [X]}, pod: {nodeSelector: {lane: there}}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {nodeSelector: {lane: X}, containers: [{name: c, image: image}]}}
`)
	s.explains(t, "web", "NotCreated", "Refused", "ReplicaSet web could not create it", "PlacementPolicy/X", "contradicts the policy")
	s.explains(t, "nobody", "NotFound", "Unknown", "namespace X has no pod nobody")
}

func TestWhatAPodWasGivenHasItsSource(t *testing.T) {
	t.Parallel()
	s := newStage(t, "given")
	s.apply(t, `
apiVersion: tollgate.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: X}
spec: {match: {namespaces: [X]}, pod: {tolerations: [{key: example.com/X, operator: Equal, value: a}]}}
---
apiVersion: tollgate.dev/v1alpha1
kind: TolerationPolicy
metadata: {name: X}
# The tests of preview have pods that tolerate everything.
spec: {taints: [{key: example.com/X}], grants: [{namespaces: [X]}, {namespaces: [preview-*]}]}
`)
	s.node(t, "1", "", noExecute)
	s.pod(t, "p", "")
	s.runs(t, "p")
	a := s.explains(t, "p", "Staying", "Tolerated", "toleration example.com/X=a")
	require.Len(t, a.Placement.Gifts, 1)
	require.Equal(t, []string{"given"}, a.Placement.Gifts[0].Policies)
	require.True(t, a.Placement.Gifts[0].Has)
	require.Equal(t, "example.com/given=a", a.Placement.Gifts[0].Value)
	require.Len(t, a.Tolerations, 1)
	require.True(t, a.Tolerations[0].Granted)
}

func TestNodesClaimsAndDevicesExplainThemselves(t *testing.T) {
	t.Parallel()
	s := newStage(t, "others")
	s.devices(t, noExecute, `tolerations: [{key: example.com/X, operator: Exists}]`)
	s.pod(t, "p", usesClaim+`, tolerations: [{key: example.com/X, operator: Exists, effect: NoExecute, tolerationSeconds: 900}]`)
	s.runs(t, "p")
	s.taint(t, "1", "a", corev1.TaintEffectNoExecute)

	node, err := s.ask(t.Context(), "node", "others-1")
	require.NoError(t, err)
	require.Contains(t, node.Answer, "Taint example.com/others=a:NoExecute evicts who does not tolerate it: 1 pod has to leave later, the last in ")
	claim, err := s.ask(t.Context(), "claim", "gpu")
	require.NoError(t, err)
	require.Equal(t, "It has 1 device, and none of them has a taint that it does not tolerate.", claim.Answer)
	device, err := s.ask(t.Context(), "device", "others.example.com/pool/gpu-0")
	require.NoError(t, err)
	require.Contains(t, device.Answer, "Taint example.com/others=a:NoExecute (its driver in ResourceSlice others) evicts who does not tolerate it: 1 pod has to leave later")
	for _, args := range [][]string{{"pod", "p"}, {"node/others-1"}, {"claim", "gpu"}, {"device", "others.example.com/pool/gpu-0"}} {
		text, err := s.run(t.Context(), args...)
		require.NoError(t, err)
		t.Logf("kubectl tollgate explain %v\n%s", args, text)
	}
}
