package plugins

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
)

const stockProfiles = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
`

// shipped are the profiles in deploy/.
func shipped(tb testing.TB, name string) string {
	tb.Helper()
	content, err := os.ReadFile("../../deploy/scheduler/" + name)
	require.NoError(tb, err)
	return string(content)
}

// Nothing else of the scheduler changes: but for the names, each extension point has the
// plugins and weights of the stock profile, and in its order where that counts.
func TestShippedProfilesAreThoseOfKubernetesElse(t *testing.T) {
	t.Parallel()
	stock := start(t, setup{profiles: stockProfiles, unpatched: true}).scheduler.Profiles["default-scheduler"].ListPlugins()
	for file, profile := range map[string]string{"default-profile.yaml": "default-scheduler", "second-profile.yaml": "patched-scheduler"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			h := start(t, setup{profiles: shipped(t, file)})
			ours := h.scheduler.Profiles[profile].ListPlugins()

			all := map[string]string{"DynamicResources": DynamicResourcesName}
			scoring := map[string]string{
				"DynamicResources": DynamicResourcesName, "NodeResourcesFit": FitName, "NodeResourcesBalancedAllocation": BalancedAllocationName,
			}
			require.ElementsMatch(t, renamed(stock.PreEnqueue, all), ours.PreEnqueue.Enabled)
			require.ElementsMatch(t, renamed(stock.QueueSort, all), ours.QueueSort.Enabled)
			require.ElementsMatch(t, renamed(stock.PreFilter, all), ours.PreFilter.Enabled)
			require.ElementsMatch(t, renamed(stock.Filter, all), ours.Filter.Enabled)
			require.Equal(t, renamed(stock.PostFilter, all), ours.PostFilter.Enabled)
			require.ElementsMatch(t, renamed(stock.PreScore, scoring), ours.PreScore.Enabled)
			require.ElementsMatch(t, renamed(stock.Score, scoring), ours.Score.Enabled)
			require.Equal(t, renamed(stock.Reserve, all), ours.Reserve.Enabled)
			require.Equal(t, renamed(stock.Permit, all), ours.Permit.Enabled)
			require.Equal(t, renamed(stock.PreBind, all), ours.PreBind.Enabled)
			require.Equal(t, renamed(stock.Bind, all), ours.Bind.Enabled)
			require.Equal(t, renamed(stock.PostBind, all), ours.PostBind.Enabled)
			require.Equal(t, renamed(stock.PlacementGenerate, all), ours.PlacementGenerate.Enabled)
			require.ElementsMatch(t, renamed(stock.PlacementScore, all), ours.PlacementScore.Enabled)
			require.Equal(t, renamed(stock.PodGroupPostFilter, all), ours.PodGroupPostFilter.Enabled)
		})
	}
}

func renamed(stock schedulerconfig.PluginSet, names map[string]string) []schedulerconfig.Plugin {
	var plugins []schedulerconfig.Plugin
	for _, plugin := range stock.Enabled {
		if name, ours := names[plugin.Name]; ours {
			plugin.Name = name
		}
		plugins = append(plugins, plugin)
	}
	return plugins
}

func TestProfilesOfOneProcessShareDevices(t *testing.T) {
	t.Parallel()
	h := start(t, setup{profiles: shipped(t, "second-profile.yaml"), objects: twoNodes()})
	h.patches.Add(modelPatch("two", "H100", 1))
	h.requireView("A100", "H100")

	// As published there is no H100.
	pod, claim := wanting("patched", "H100")
	pod.Spec.SchedulerName = "patched-scheduler"
	h.create(claim)
	h.create(pod)
	h.requireOn("two", "patched")

	h.createWanting("stock", "A100")
	h.requireOn("one", "stock")

	h.createWanting("late", "A100")
	h.requireParked("late")
	pod, claim = wanting("later", "A100")
	pod.Spec.SchedulerName = "patched-scheduler"
	h.create(claim)
	h.create(pod)
	h.requireParked("later")
	require.Never(t, func() bool { return h.node("late") != "" || h.node("later") != "" }, time.Second, 100*time.Millisecond,
		"every device is allocated")
}

func TestBothDynamicResourcesInOneProfileAreRefused(t *testing.T) {
	t.Parallel()
	const both = stockProfiles + `
profiles:
  - schedulerName: default-scheduler
    plugins:
      multiPoint:
        enabled: [{name: PatchedDynamicResources, weight: 2}]
`
	_, err := newScheduler(t, setup{profiles: both})
	require.ErrorContains(t, err, "indexer conflict")
}
