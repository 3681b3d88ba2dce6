package policies

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// terminate ends Tollgate, and starts it again when the test is over unless the test
// has.
func terminate(t *testing.T) {
	t.Helper()
	require.NoError(t, tollgate.Terminate(t.Context()))
	t.Cleanup(func() {
		if !tollgate.Alive() {
			require.NoError(t, tollgate.Start(afterwards(t)))
		}
	})
}

// registration is a policy that gives nodes of a pool a taint at birth, and does
// nothing to nodes that are there.
const registration = `
apiVersion: tollgate.dev/v1alpha1
kind: TaintPolicy
metadata: {name: outage}
spec:
  taints: [{key: outage.example.com/*}]
  setters: [{subjects: [{kind: Group, name: sre}]}]
  register:
  - nodeSelector: {matchLabels: {outage.example.com/pool: banana}}
    taints: [{key: outage.example.com/dedicated, value: banana, effect: NoSchedule}]
`

const outageKey = "outage.example.com/dedicated"

var outagePool = map[string]string{"outage.example.com/pool": "banana"}

// waitingFor returns a pod that goes to a node as soon as it is there, if nothing keeps
// it away.
func waitingFor(node string) *corev1.Pod {
	pod := podNamed("waits-for-" + node)
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	return pod
}

func TestNodesThatRegisterWhileTollgateIsAwayGetTheirTaintsFromTheLeader(t *testing.T) {
	const name = "outage-bare"
	namespaces(t, "outage")
	enforce(t, registration)
	tenant(t, "alice").createPod(t, "outage", waitingFor(name))
	waitUnschedulable(t, "outage", "waits-for-"+name)
	terminate(t)

	createNode(t, kubelet(t, name), name, outagePool)
	require.Nil(t, taintOf(nodeNow(t, name), outageKey, corev1.TaintEffectNoSchedule), "nobody was there to give it")
	require.Equal(t, name, waitRuns(t, "outage", "waits-for-"+name), "so somebody has slipped in")

	require.NoError(t, tollgate.Start(t.Context()))
	eventually(t, "the leader restores the taint", func(ctx context.Context) error {
		found, err := admin(t).CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err == nil && taintOf(found, outageKey, corev1.TaintEffectNoSchedule) == nil {
			err = fmt.Errorf("taints %v", found.Spec.Taints)
		}
		return err
	})
	eventually(t, "an event on the node counts who slipped in", func(ctx context.Context) error {
		list, err := admin(t).CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.kind=Node,involvedObject.name=" + name,
		})
		if err != nil {
			return err
		}
		var told []string
		for _, event := range list.Items {
			if strings.Contains(event.Message, outageKey) && strings.Contains(event.Message, "do not tolerate it: 1") {
				return nil
			}
			told = append(told, event.Message)
		}
		return fmt.Errorf("events %q", told)
	})
	t.Run("what somebody with the right takes off stays off", func(t *testing.T) {
		_, err := tenant(t, "sally", "sre").kubectl(t, "taint", "node", name, outageKey+"-")
		require.NoError(t, err)
		// Nodes know the second of their creation, so for two of them who is there
		// now cannot tell whether somebody was.
		created := nodeNow(t, name).CreationTimestamp
		becomes(t, "the node is older than that", func() error {
			if time.Since(created.Time) < 4*time.Second {
				return errStill
			}
			return nil
		})
		require.NoError(t, tollgate.Terminate(t.Context()))
		require.NoError(t, tollgate.Start(t.Context()))
		createNode(t, admin(t), "outage-later", outagePool) // the leader has looked at all nodes once it is done with this one
		waitReady(t, "outage-later")
		require.Nil(t, taintOf(nodeNow(t, name), outageKey, corev1.TaintEffectNoSchedule))
	})
}

func TestAnExportedPolicyHoldsWhileTollgateIsAway(t *testing.T) {
	const name, key = "outage-exported", "exported.example.com/dedicated"
	// Its own pool and key: the API server may go on by the exported policy for a moment
	// after that is deleted, and in the other test nobody is to give nodes their taints.
	governed, pool := strings.ReplaceAll(registration, "outage.example.com", "exported.example.com"), map[string]string{"exported.example.com/pool": "banana"}
	namespaces(t, "outage-exported")
	enforce(t, governed)
	exported := export(t, governed)
	mustKubectl(t, "apply", "-f", exported)
	t.Cleanup(func() { mustKubectl(t, "delete", "-f", exported) })
	tenant(t, "alice").createPod(t, "outage-exported", waitingFor(name))
	terminate(t)

	eventually(t, "the API server has read the exported policy", func(ctx context.Context) error {
		node, err := admin(t).CoreV1().Nodes().Create(ctx, nodeObject("outage-probe", pool), metav1.CreateOptions{DryRun: dryRun})
		if err == nil && taintOf(node, key, corev1.TaintEffectNoSchedule) == nil {
			err = fmt.Errorf("taints %v", node.Spec.Taints)
		}
		return err
	})
	createNode(t, kubelet(t, name), name, pool, noSchedule("own.example.com/x", ""))
	waitReady(t, name)
	born := nodeNow(t, name)
	require.Equal(t, "banana", taintOf(born, key, corev1.TaintEffectNoSchedule).Value)
	require.NotNil(t, taintOf(born, "own.example.com/x", corev1.TaintEffectNoSchedule), "its own taints stay")
	waitUnschedulable(t, "outage-exported", "waits-for-"+name, "untolerated taint")
	t.Run("nodes of other pools are born as they are", func(t *testing.T) {
		node := createNode(t, kubelet(t, "outage-other"), "outage-other", map[string]string{"exported.example.com/pool": "kiwi"})
		require.Nil(t, taintOf(node, key, corev1.TaintEffectNoSchedule))
	})
	t.Run("beside Tollgate it changes nothing", func(t *testing.T) {
		require.NoError(t, tollgate.Start(t.Context()))
		node := createNode(t, kubelet(t, "outage-both"), "outage-both", pool)
		count := 0
		for _, taint := range node.Spec.Taints {
			if taint.Key == key {
				count++
			}
		}
		require.Equal(t, 1, count, "%v", node.Spec.Taints)
	})
}

// export writes a policy to a file, has Tollgate make a MutatingAdmissionPolicy of it,
// and returns the file that holds that.
func export(t *testing.T, policy string) string {
	t.Helper()
	dir := t.TempDir()
	file, exported := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "exported.yaml")
	require.NoError(t, os.WriteFile(file, []byte(policy), 0o600))
	out, err := exec.CommandContext(t.Context(), programs.Plugin(), "export", "map", "-f", file).Output()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.WriteFile(exported, out, 0o600))
	return exported
}
