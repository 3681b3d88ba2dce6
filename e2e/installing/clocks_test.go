package installing

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// tolerated is how long the pods here tolerate a taint. It is about what an upgrade takes,
// so that it runs out under another leader than it began under.
const tolerated = 75 * time.Second

// clockObjects are policies, a patch, and devices with a claim that tolerates their taints.
const clockObjects = `
apiVersion: tollgate.dev/v1alpha1
kind: EvictionPolicy
metadata: {name: installing-gentle}
spec:
  taints: [{key: clock.example.com/*}, {target: Device, key: clock.example.com/*}]
  method: Evict
---
apiVersion: tollgate.dev/v1alpha1
kind: ResourceSlicePatch
metadata: {name: installing-recalled}
spec:
  devices:
    filter: {driver: gpu.example.com}
    taints: [{key: recalled.example.com/gpu, effect: NoSchedule}]
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: installing}
spec:
  selectors: [{cel: {expression: device.driver == "gpu.example.com"}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: installing}
spec:
  driver: gpu.example.com
  pool: {name: pool, generation: 1, resourceSliceCount: 1}
  allNodes: true
  devices: [{name: gpu-0}]
`

const clockPods = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: gpu, namespace: %[1]s}
spec:
  devices:
    requests:
      - name: gpu
        exactly:
          deviceClassName: installing
          tolerations:
            - {key: clock.example.com/fault, operator: Exists, effect: NoExecute, tolerationSeconds: %[3]d}
            - {key: recalled.example.com/gpu, operator: Exists}
---
apiVersion: v1
kind: Pod
metadata: {name: on-device, namespace: %[1]s}
spec:
  nodeSelector: {kubernetes.io/hostname: %[2]s}
  tolerations: [{key: clock.example.com/fault, operator: Exists}]
  containers: [{name: c, image: image, resources: {claims: [{name: gpu}]}}]
  resourceClaims: [{name: gpu, resourceClaimName: gpu}]
---
apiVersion: v1
kind: Pod
metadata: {name: on-node, namespace: %[1]s}
spec:
  nodeName: %[2]s
  containers: [{name: c, image: image}]
  tolerations: [{key: clock.example.com/fault, operator: Exists, effect: NoExecute, tolerationSeconds: %[3]d}]
`

const clockRule = `
apiVersion: resource.k8s.io/v1
kind: DeviceTaintRule
metadata: {name: installing-fault}
spec:
  deviceSelector: {driver: gpu.example.com}
  taint: {key: clock.example.com/fault, effect: NoExecute}
`

// clocks are two pods whose time runs, one on a tainted node and one with a tainted device,
// and what else stands in the cluster through an upgrade.
type clocks struct {
	t         *testing.T
	namespace string
	// began is before the taints were set.
	began time.Time
	// leader led when they were.
	leader string
	// objects are what has to be the same later.
	objects map[string]types.UID
	// gone is sent the names of the pods and when they went.
	gone chan departure
}

type departure struct {
	pod string
	at  time.Time
}

func startClocks(t *testing.T) *clocks {
	t.Helper()
	c := &clocks{t: t, namespace: namespaceOf(t), gone: make(chan departure, 2)}
	node := freeNode(t)
	apply(t, clockObjects)
	t.Cleanup(func() {
		kubectl(t, "delete", "devicetaintrule,deviceclass,resourceslice", "installing", "installing-fault", "--ignore-not-found")
		kubectl(t, "taint", "node", node, "clock.example.com/fault-")
	})
	apply(t, fmt.Sprintf(clockPods, c.namespace, node, int(tolerated.Seconds())))
	kubectl(t, "wait", "--for=condition=Ready", "pod/on-device", "pod/on-node", "-n", c.namespace, "--timeout="+patience.String())
	eventually(t, "the patch is written out as a rule", func() error {
		objects := c.read()
		if len(objects) == 0 {
			return errors.New("there is no rule of the patch")
		}
		c.objects = objects
		return nil
	})
	watching, err := client(t).CoreV1().Pods(c.namespace).Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	go c.watch(watching)

	c.leader, c.began = holder(c.lease()), time.Now()
	kubectl(t, "taint", "node", node, "clock.example.com/fault=:NoExecute")
	apply(t, clockRule)
	return c
}

func (c *clocks) watch(watching watch.Interface) {
	for event := range watching.ResultChan() {
		if event.Type == watch.Deleted {
			c.gone <- departure{pod: event.Object.(metav1.Object).GetName(), at: time.Now()}
		}
	}
}

func (c *clocks) lease() *coordinationv1.Lease {
	c.t.Helper()
	lease, err := client(c.t).CoordinationV1().Leases(system).Get(c.t.Context(), "tollgate", metav1.GetOptions{})
	require.NoError(c.t, err)
	return lease
}

// holder is who leads, or nobody.
func holder(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// read returns the UIDs of the policies, the patch and the rule that the patch was written
// out as; nothing while there is no rule.
func (c *clocks) read() map[string]types.UID {
	c.t.Helper()
	out := map[string]types.UID{}
	const columns = "-o=jsonpath={range .items[*]}{.kind}/{.metadata.name}={.metadata.uid}{'\\n'}{end}"
	rules := kubectl(c.t, "get", "devicetaintrules", "-l", "tollgate.dev/resource-slice-patch", columns)
	if rules == "" {
		return nil
	}
	others := kubectl(c.t, "get", "tolerationpolicies,evictionpolicies,resourceslicepatches", columns)
	for line := range strings.Lines(rules + others) {
		name, uid, _ := strings.Cut(strings.TrimSpace(line), "=")
		out[name] = types.UID(uid)
	}
	return out
}

// requireKept fails the test if an object is another than it was, or if nobody else leads.
func (c *clocks) requireKept(when string) {
	c.t.Helper()
	require.Equal(c.t, c.objects, c.read(), when)
	eventually(c.t, "another replica leads "+when, func() error {
		if now := holder(c.lease()); now == "" || now == c.leader {
			return fmt.Errorf("the leader is %q and was %q", now, c.leader)
		}
		return nil
	})
}

// requireRun fails the test unless both pods go when their time is over, counted from when
// the taints were set and not from when a leader heard of them.
func (c *clocks) requireRun() {
	c.t.Helper()
	acquired := c.lease().Spec.AcquireTime.Time
	for range 2 {
		select {
		case left := <-c.gone:
			c.t.Logf("%s went after %s; the leader leads since %s", left.pod, left.at.Sub(c.began), acquired.Sub(c.began))
			require.False(c.t, left.at.Before(c.began.Add(tolerated)), "%s went too early", left.pod)
			if acquired.Before(left.at) {
				require.True(c.t, left.at.Before(acquired.Add(tolerated)), "%s went as if the time had begun with the leader", left.pod)
			}
		case <-time.After(tolerated + patience):
			require.Fail(c.t, "a pod whose time is over is still there")
		}
	}
}
