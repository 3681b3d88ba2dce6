package patches

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/install"
)

// It runs alone, because it replaces the scheduler of all.
func TestWithTheSecondProfileOnlyPodsThatAskForItSeePatches(t *testing.T) {
	require.NoError(t, schedule(t.Context(), secondProfile))
	t.Cleanup(func() { require.NoError(t, schedule(afterwards(t), defaultProfile)) })

	t.Run("each profile goes by what it sees", func(t *testing.T) {
		stock := newSite(t)
		obeying := *stock
		obeying.scheduler = "patched-scheduler"
		stock.publish(t, "p0", gpu("a", 0), gpu("b", 1))
		stock.publish(t, "p1", gpu("c", 2), gpu("d", 3), gpu("e", 4))
		stock.publish(t, "p2", gpu("f", 5))
		stock.patch(t, "p0", `{filter: {driver: DRIVER, pool: p0}, attributes: {DRIVER/model: {string: B}}}`)
		stock.patch(t, "e", `{filter: {driver: DRIVER, device: e}, taints: [{key: example.com/broken, effect: NoSchedule}]}`)
		stock.patch(t, "f", `{filter: {driver: DRIVER, device: f}, attributes: {DRIVER/model: {string: C}}}`)
		obeying.settle(t)
		stock.waitWritten(t, "e")

		stock.run(t, "stock-b", modelB)
		obeying.runOn(t, "e", anything)
		stock.requireWaiting(t, "stock-b")
		obeying.requireWaiting(t, "e")
		obeying.runMany(t, "patched-b", 2, modelB)
		require.Equal(t, []string{"p0/a", "p0/b"}, obeying.requirePods(t, "patched-b", 2, 0))
		obeying.runMany(t, "patched-a", 2, modelA)
		require.Equal(t, []string{"p1/c", "p1/d"}, obeying.requirePods(t, "patched-a", 2, 0))
		stock.run(t, "stock-a", modelA)
		// Taints reach every scheduler, as DeviceTaintRules; what else a patch says does not.
		stock.requireOn(t, "stock-a", "p2/f")
		obeying.stillWaiting(t, "stock-b", "e")
	})

	t.Run("no device is given to both", func(t *testing.T) {
		const pods, rounds = 20, 3
		for round := range rounds {
			stock := newSite(t)
			obeying := *stock
			obeying.scheduler = "patched-scheduler"
			devices := make([]resourcev1.Device, pods)
			var all []string
			for i := range devices {
				devices[i] = gpu("d"+string(rune('a'+i)), int64(i))
				all = append(all, "pool/"+devices[i].Name)
			}
			stock.publish(t, "pool", devices...)
			stock.patch(t, "gold", `{filter: {driver: DRIVER}, attributes: {example.com/tier: {string: gold}}}`)
			obeying.settle(t)
			// Together they ask for all devices and for ten more.
			var group errgroup.Group
			group.SetLimit(parallel)
			for i := range 15 {
				one, other := "pod-stock-"+strconv.Itoa(i), "pod-patched-"+strconv.Itoa(i)
				claim, otherClaim := stock.claim(t, one, modelA), obeying.claim(t, other, gold)
				group.Go(func() error { return stock.create(t.Context(), one, claim) })
				group.Go(func() error { return obeying.create(t.Context(), other, otherClaim) })
			}
			require.NoError(t, group.Wait())
			require.Equal(t, all, stock.requirePods(t, "pod", pods, 10), "round %d", round)
		}
	})
}

// It runs alone, because it kills the scheduler of all.
func TestASchedulerThatIsStartedObeysPatchesFromItsFirstPodOn(t *testing.T) {
	for _, profile := range []string{defaultProfile, secondProfile} {
		t.Run(profile, func(t *testing.T) {
			s := newSite(t)
			if profile == secondProfile {
				s.scheduler = "patched-scheduler"
				require.NoError(t, schedule(t.Context(), profile))
				t.Cleanup(func() { require.NoError(t, schedule(afterwards(t), defaultProfile)) })
			}
			s.publishGPUs(t)
			require.NoError(t, shared.Kill(t.Context(), controlplane.Scheduler))
			s.patch(t, "b", `{filter: {driver: DRIVER, pool: p1}, attributes: {DRIVER/model: {string: B}}}`)
			s.patch(t, "tainted", `{filter: {driver: DRIVER, pool: p0, selectors: [{cel: {expression: 'device.attributes["DRIVER"].index % 2 == 0'}}]}, taints: [{key: example.com/broken, effect: NoSchedule}]}`)
			s.runMany(t, "pod", devicesPerPool/2+1, modelA)
			require.NoError(t, shared.Restart(t.Context(), controlplane.Scheduler))
			require.Equal(t, []string{"p0/d1", "p0/d3", "p0/d5"}, s.requirePods(t, "pod", devicesPerPool/2, 1))
		})
	}
}

// It runs alone, because the patches of all go with their kind.
func TestWithoutTheKindDevicesAreAsPublishedAndOnceItIsBackPatchesAreObeyed(t *testing.T) {
	const kind = "resourceslicepatches.tollgate.dev"
	s := newSite(t)
	s.publish(t, "pool", gpu("a", 0), gpu("b", 1))
	s.patch(t, "all", `{filter: {driver: DRIVER}, attributes: {DRIVER/model: {string: B}}}`)
	s.settle(t)
	s.run(t, "first", modelA)
	s.requireWaiting(t, "first")

	putBack := func(ctx context.Context) {
		t.Helper()
		require.NoError(t, install.Apply(ctx, shared, filepath.Join(programs.Root, "deploy", "crd")))
		require.NoError(t, wait.PollUntilContextTimeout(ctx, interval, patience, true, func(ctx context.Context) (bool, error) {
			return barrier.begin(ctx) == nil, nil
		}))
	}
	t.Cleanup(func() {
		if _, err := install.Kubectl(afterwards(t), shared, "get", "resourceslicepatch", barrier.namespace); err != nil {
			putBack(afterwards(t))
		}
	})
	kubectl(t, "delete", "crd", kind)
	s.requirePods(t, "first", 1, 0)

	putBack(t.Context())
	s.patch(t, "again", `{filter: {driver: DRIVER}, attributes: {DRIVER/model: {string: B}}}`)
	start := time.Now()
	s.settle(t)
	t.Logf("obeyed %.1f s after the kind came back", time.Since(start).Seconds())
	s.run(t, "second", modelB)
	s.requirePods(t, "second", 1, 0)
}

// waitWritten waits until a taint of a patch is written out as a rule, which schedulers
// see that do not apply patches.
func (s *site) waitWritten(t *testing.T, patch string) {
	t.Helper()
	eventually(t, "the rule of the patch is written", func(ctx context.Context) error {
		list, err := s.client.ResourceV1().DeviceTaintRules().List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelPatch})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(list.Items, func(rule resourcev1.DeviceTaintRule) bool {
			return slices.ContainsFunc(rule.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Name == s.patchName(patch) })
		}) {
			return errors.New("there is none")
		}
		return nil
	})
}
