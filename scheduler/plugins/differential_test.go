package plugins

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

const (
	// worldsEnv and seedEnv say how many random worlds are scheduled, and which.
	worldsEnv = "TOLLGATE_SCHEDULER_WORLDS"
	seedEnv   = "TOLLGATE_SCHEDULER_SEED"
	worlds    = 100
	rankName  = "Rank"
)

// rank makes one node the best without a doubt: between equal ones the scheduler chooses by
// chance. A higher number is better.
type rank struct{}

func (rank) Name() string { return rankName }

func (rank) ScoreExtensions() fwk.ScoreExtensions { return nil }

func (rank) Score(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	n, err := strconv.ParseInt(node.Node().Labels[rankName], 10, 64)
	return n, fwk.AsStatus(err)
}

// stockRanked and patchedRanked are profiles with it. It outweighs all others together.
const (
	stockRanked = stockProfiles + `
profiles:
  - schedulerName: default-scheduler
    plugins:
      multiPoint:
        enabled: [{name: Rank, weight: 1000}]`
	patchedRanked = profiles + `
          - {name: Rank, weight: 1000}`
)

// Without patches our scheduler does what that of Kubernetes does: for random devices,
// claims and pods, each pod lands on the same node with the same devices, or waits.
func TestWithoutPatchesPodsGetWhatTheyGetFromKubernetes(t *testing.T) {
	t.Parallel()
	count, seed := number(t, worldsEnv, worlds), number(t, seedEnv, rand.Uint64())
	t.Logf("%d worlds, %s=%d", count, seedEnv, seed)
	placed, waiting := 0, 0
	for i := range count {
		w := randomWorld(rand.New(rand.NewPCG(seed, i)))
		stock := w.outcome(t, setup{profiles: stockRanked, unpatched: true})
		ours := w.outcome(t, setup{profiles: patchedRanked, compile: compilePatches})
		require.Equal(t, stock, ours, "world %d of %s=%d", i, seedEnv, seed)
		for _, node := range stock.nodes {
			if node == "" {
				waiting++
			} else {
				placed++
			}
		}
	}
	t.Logf("%d pods were placed, %d wait", placed, waiting)
	// A test in which nothing happens proves nothing.
	require.Greater(t, placed, int(count))
	require.Greater(t, waiting, int(count)/4)
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

// world is what is there from the start, and the pods in the order in which they come.
type world struct {
	objects []runtime.Object
	claims  []string
	pods    []*corev1.Pod
}

// outcome is where pods are, and which devices claims have.
type outcome struct {
	nodes   map[string]string
	devices map[string][]string
}

func (w *world) outcome(t *testing.T, s setup) outcome {
	t.Helper()
	for _, object := range w.objects {
		s.objects = append(s.objects, object.DeepCopyObject())
	}
	s.plugins = frameworkruntime.Registry{rankName: func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
		return rank{}, nil
	}}
	h := ready(t, s)
	defer h.run()()
	out := outcome{nodes: map[string]string{}, devices: map[string][]string{}}
	for _, pod := range w.pods {
		h.create(pod.DeepCopy())
		out.nodes[pod.Name] = h.settled(pod.Name)
	}
	for _, name := range w.claims {
		claim, err := h.client.ResourceV1().ResourceClaims(namespace).Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		devices := []string{}
		if claim.Status.Allocation != nil {
			for _, d := range claim.Status.Allocation.Devices.Results {
				devices = append(devices, fmt.Sprintf("%s: %s/%s/%s", d.Request, d.Driver, d.Pool, d.Device))
			}
		}
		out.devices[name] = devices
	}
	return out
}

// settled waits until the pod has a node, or was found to fit nowhere.
func (h *harness) settled(name string) string {
	h.t.Helper()
	var pod *corev1.Pod
	require.Eventually(h.t, func() bool {
		var err error
		pod, err = h.client.CoreV1().Pods(namespace).Get(h.t.Context(), name, metav1.GetOptions{})
		require.NoError(h.t, err)
		return pod.Spec.NodeName != "" || slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
		})
	}, scheduleTimeout, time.Millisecond, "pod %s is not tried", name)
	return pod.Spec.NodeName
}

// dice make worlds.
type dice struct{ *rand.Rand }

func (d dice) one(of ...string) string { return of[d.IntN(len(of))] }

func randomWorld(random *rand.Rand) *world {
	d, w := dice{random}, &world{}
	w.objects = append(w.objects, deviceClass())
	nodes := 2 + d.IntN(4)
	for i, rank := range d.Perm(nodes) {
		n := node(fmt.Sprint("node-", i))
		n.Labels[rankName] = strconv.Itoa(10 * rank)
		w.objects = append(w.objects, n)
		for slice := range d.IntN(3) {
			w.objects = append(w.objects, d.slice(n.Name, slice))
		}
	}
	if d.IntN(3) == 0 {
		shared := d.slice("shared", 0)
		shared.Spec.NodeName, shared.Spec.AllNodes = nil, new(true)
		w.objects = append(w.objects, shared)
	}
	if d.IntN(3) == 0 {
		w.objects = append(w.objects, d.rule(nodes))
	}
	for i := range 3 + d.IntN(5) {
		name := fmt.Sprint("pod-", i)
		pod, claim := wanting(name, "")
		claim.Spec.Devices = d.claim()
		w.objects, w.claims = append(w.objects, claim), append(w.claims, name)
		if i > 0 && d.IntN(5) == 0 && len(w.pods[i-1].Spec.ResourceClaims) == 1 {
			// The claim of another pod. That one is woken if it waited and the claim is
			// allocated now: it then has what it needs, and takes nothing from others,
			// whenever that is.
			pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "other", ResourceClaimName: new(fmt.Sprint("pod-", i-1))})
		}
		w.pods = append(w.pods, pod)
	}
	return w
}

// slice has a pool of its own.
func (d dice) slice(node string, number int) *resourcev1.ResourceSlice {
	s := sliceOf(node, "")
	s.Name = fmt.Sprintf("%s-%d", node, number)
	s.Spec.Pool.Name = s.Name
	s.Spec.Devices = nil
	for i := range 1 + d.IntN(4) {
		device := resourcev1.Device{
			Name: fmt.Sprint("gpu-", i),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				"model": {StringValue: new(d.one("A100", "A100", "H100"))}, "numa": {IntValue: new(d.Int64N(2))},
			},
			Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse(d.one("40Gi", "80Gi"))}},
		}
		if d.IntN(5) == 0 {
			device.Taints = []resourcev1.DeviceTaint{{Key: "hot", Effect: resourcev1.DeviceTaintEffect(d.one("NoSchedule", "NoExecute", "None"))}}
		}
		s.Spec.Devices = append(s.Spec.Devices, device)
	}
	return s
}

func (d dice) rule(nodes int) *resourcev1.DeviceTaintRule {
	return &resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: "rule"},
		Spec: resourcev1.DeviceTaintRuleSpec{
			DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: new(driver), Pool: new(fmt.Sprintf("node-%d-0", d.IntN(nodes)))},
			Taint:          resourcev1.DeviceTaint{Key: "hot", Effect: resourcev1.DeviceTaintEffect(d.one("NoSchedule", "NoExecute"))},
		},
	}
}

func (d dice) claim() resourcev1.DeviceClaim {
	var claim resourcev1.DeviceClaim
	var names []string
	for i := range 1 + d.IntN(2) {
		name := fmt.Sprint("r", i)
		names = append(names, name)
		claim.Requests = append(claim.Requests, d.request(name))
	}
	all := slices.ContainsFunc(claim.Requests, func(r resourcev1.DeviceRequest) bool {
		return r.Exactly != nil && r.Exactly.AllocationMode == resourcev1.DeviceAllocationModeAll ||
			len(r.FirstAvailable) > 0 && r.FirstAvailable[1].AllocationMode == resourcev1.DeviceAllocationModeAll
	})
	// All devices with a constraint are an error for Kubernetes, and the pod is tried
	// again when others have come.
	if !all && d.IntN(3) == 0 {
		claim.Constraints = []resourcev1.DeviceConstraint{{Requests: names, MatchAttribute: new(resourcev1.FullyQualifiedName(driver + "/numa"))}}
	}
	return claim
}

func (d dice) request(name string) resourcev1.DeviceRequest {
	exact := resourcev1.ExactDeviceRequest{DeviceClassName: className, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1 + d.Int64N(2)}
	if d.IntN(6) == 0 {
		exact.AllocationMode, exact.Count = resourcev1.DeviceAllocationModeAll, 0
	}
	if d.IntN(2) == 0 {
		exact.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf(d.one(
			`device.attributes[%q].model == "A100"`, `device.attributes[%q].model == "H100"`, `device.attributes[%q].numa == 1`,
			`device.capacity[%q].memory.compareTo(quantity("80Gi")) >= 0`,
		), driver)}}}
	}
	if d.IntN(3) == 0 {
		exact.Tolerations = []resourcev1.DeviceToleration{{Key: "hot", Operator: resourcev1.DeviceTolerationOpExists}}
	}
	if d.IntN(5) > 0 {
		return resourcev1.DeviceRequest{Name: name, Exactly: &exact}
	}
	better := resourcev1.DeviceSubRequest{
		Name: "better", DeviceClassName: className, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 3, Tolerations: exact.Tolerations,
	}
	good := resourcev1.DeviceSubRequest{
		Name: "good", DeviceClassName: className, AllocationMode: exact.AllocationMode, Count: exact.Count, Selectors: exact.Selectors, Tolerations: exact.Tolerations,
	}
	return resourcev1.DeviceRequest{Name: name, FirstAvailable: []resourcev1.DeviceSubRequest{better, good}}
}
