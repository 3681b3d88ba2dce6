package plugins

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread"
	plugintesting "k8s.io/kubernetes/pkg/scheduler/framework/plugins/testing"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/tollgate-dev/tollgate/policy/spread"
)

const (
	// spreadWorldsEnv and seedEnv say how many random worlds are looked at, and which.
	spreadWorldsEnv = "TOLLGATE_SPREAD_WORLDS"
	spreadSeedEnv   = "TOLLGATE_SPREAD_SEED"
	spreadWorlds    = 1000
)

// seen counts what happened, so that it can be told whether anything did.
type seen struct {
	verdicts       map[spread.Code]int
	waiting, moved int
}

// For random clusters and pods, every node is judged as the plugin of the scheduler does,
// with the same code and message (TS-01 to TS-11).
func TestTS01ToTS11TheSchedulersVerdictsAreOurs(t *testing.T) {
	t.Parallel()
	count, seed := number(t, spreadWorldsEnv, spreadWorlds), number(t, spreadSeedEnv, rand.Uint64())
	t.Logf("%d worlds, %s=%d", count, spreadSeedEnv, seed)
	metrics.Register()
	total := seen{verdicts: map[spread.Code]int{}}
	for i := range count {
		random := rand.New(rand.NewPCG(seed, i))
		w := spreadRandomWorld(random)
		(&trial{T: t, spreadWorld: w, random: random, seen: &total}).run(fmt.Sprintf("world %d of %s=%d", i, spreadSeedEnv, seed))
	}
	t.Logf("nodes by verdict %v; %d pods that fit nowhere, %d pods added or removed", total.verdicts, total.waiting, total.moved)
	if os.Getenv(spreadWorldsEnv) != "" || os.Getenv(spreadSeedEnv) != "" {
		return // Some worlds that were asked for need not have everything in them.
	}
	// A test in which nothing happens proves nothing.
	for _, code := range []spread.Code{spread.Success, spread.Unschedulable, spread.UnschedulableAndUnresolvable} {
		require.Greater(t, total.verdicts[code], int(count)/4)
	}
	require.Greater(t, total.waiting, int(count)/100)
	require.Greater(t, total.moved, int(count)/4)
}

// trial is one world, looked at by both.
type trial struct {
	*testing.T
	*spreadWorld

	random *rand.Rand
	seen   *seen
}

// run compares, and says which world it was if something differs: what fails ends the test.
func (t *trial) run(name string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("%s:\n%s", name, t.spreadWorld)
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel() // ends the informers
	plugin, snapshot := t.plugin(ctx)
	infos, err := snapshot.NodeInfos().List()
	require.NoError(t, err)
	// The snapshot has them in an order of its own.
	slices.SortFunc(t.nodes, func(a, b *corev1.Node) int { return position(infos, a) - position(infos, b) })
	ours := t.read()
	cluster := clusterOf(t.nodes, t.pods)
	filtered := ours.Filter(cluster)
	state := framework.NewCycleState()
	t.filter(plugin, state, infos, filtered)
	if len(filtered.Counts) > 0 {
		t.move(plugin, state, infos, ours)
	}
}

func position(infos []fwk.NodeInfo, node *corev1.Node) int {
	return slices.IndexFunc(infos, func(info fwk.NodeInfo) bool { return info.Node().Name == node.Name })
}

func (t *trial) plugin(ctx context.Context) (*podtopologyspread.PodTopologySpread, fwk.SharedLister) {
	t.Helper()
	snapshot := cache.NewSnapshot(t.pods, t.nodes)
	args := &schedulerconfig.PodTopologySpreadArgs{DefaultingType: schedulerconfig.ListDefaulting}
	made := plugintesting.SetupPluginWithInformers(ctx, t, func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		return podtopologyspread.New(ctx, args, handle, feature.Features{
			EnableNodeInclusionPolicyInPodTopologySpread: true,
			EnableMatchLabelKeysInPodTopologySpread:      true,
			EnableTaintTolerationComparisonOperators:     t.compares,
		})
	}, args, snapshot, nil)
	plugin, ok := made.(*podtopologyspread.PodTopologySpread)
	require.True(t, ok)
	return plugin, snapshot
}

// read reads the pod as policy/spread does.
func (t *trial) read() *spread.Spreading {
	t.Helper()
	ours, err := spread.Read(t.pod, spread.Options{ComparisonOperators: t.compares})
	require.NoError(t, err)
	return ours
}

func clusterOf(nodes []*corev1.Node, pods []*corev1.Pod) *spread.Cluster {
	list, placed := make([]spread.Node, len(nodes)), make([]spread.Placed, 0, len(pods))
	for i, node := range nodes {
		list[i] = spread.NodeOf(node)
	}
	for _, pod := range pods {
		if p, ok := spread.PlacedOf(pod); ok {
			placed = append(placed, p)
		}
	}
	return spread.NewCluster(list, placed)
}

func (t *trial) filter(plugin *podtopologyspread.PodTopologySpread, state fwk.CycleState, infos []fwk.NodeInfo, ours *spread.Filtered) {
	t.Helper()
	_, status := plugin.PreFilter(t.Context(), state, t.pod, infos)
	require.Equal(t, len(ours.Counts) == 0, status.IsSkip(), "no constraint with DoNotSchedule")
	require.True(t, status.IsSuccess() || status.IsSkip(), "%v", status)
	fits := 0
	for i, info := range infos {
		verdict := ours.Verdicts[i]
		t.seen.verdicts[verdict.Code()]++
		if verdict.Code() == spread.Success {
			fits++
		}
		if !status.IsSkip() {
			t.same(plugin.Filter(t.Context(), state, t.pod, info), verdict, info)
		}
	}
	if fits == 0 {
		t.seen.waiting++
	}
}

func (t *trial) same(theirs *fwk.Status, ours spread.Verdict, info fwk.NodeInfo) {
	t.Helper()
	require.Equal(t, theirs.Code().String(), string(ours.Code()), "%s: %+v\n%s", info.Node().Name, ours, t.spreadWorld)
}

// move lets the plugin follow a pod that comes to a node, or goes from one, as it does for
// preemption (TS-11). It takes the empty selector for all pods there, unlike where it
// counts from scratch, so pods with one are left out.
func (t *trial) move(plugin *podtopologyspread.PodTopologySpread, state fwk.CycleState, infos []fwk.NodeInfo, ours *spread.Spreading) {
	t.Helper()
	for _, c := range ours.Constraints() {
		if c.Selector.Empty() {
			return
		}
	}
	var pods []*corev1.Pod
	var status *fwk.Status
	if i := t.random.IntN(len(t.pods) + 1); i < len(t.pods) {
		moved := t.pods[i]
		if moved.DeletionTimestamp != nil {
			return
		}
		pods = slices.Delete(slices.Clone(t.pods), i, i+1)
		at := slices.IndexFunc(infos, func(info fwk.NodeInfo) bool { return info.Node().Name == moved.Spec.NodeName })
		status = plugin.RemovePod(t.Context(), state, t.pod, podInfo(t, moved), infos[at])
	} else {
		moved := spreadDice{t.random}.placed("new", t.nodes)
		moved.DeletionTimestamp = nil
		pods = append(slices.Clone(t.pods), moved)
		at := slices.IndexFunc(infos, func(info fwk.NodeInfo) bool { return info.Node().Name == moved.Spec.NodeName })
		status = plugin.AddPod(t.Context(), state, t.pod, podInfo(t, moved), infos[at])
	}
	require.True(t, status.IsSuccess(), "%v", status)
	t.seen.moved++
	for i, verdict := range ours.Filter(clusterOf(t.nodes, pods)).Verdicts {
		t.same(plugin.Filter(t.Context(), state, t.pod, infos[i]), verdict, infos[i])
	}
}

func podInfo(t *trial, pod *corev1.Pod) fwk.PodInfo {
	t.Helper()
	info, err := framework.NewPodInfo(pod)
	require.NoError(t, err)
	return info
}
