package app

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// silentAboutGroups is a discovery client that does not answer for PodGroups.
type silentAboutGroups struct{ cluster }

func (s silentAboutGroups) ServerResourcesForGroupVersionWithContext(ctx context.Context, version string) (*metav1.APIResourceList, error) {
	if strings.HasPrefix(version, podGroupResource.Group+"/") {
		return nil, errors.New("no answer")
	}
	return s.cluster.ServerResourcesForGroupVersionWithContext(ctx, version)
}

// TestPodsAreNotCountedWithoutKnowingOfPodGroupsDE09 runs in a synctest bubble, so that timeouts
// pass at once.
func TestPodsAreNotCountedWithoutKnowingOfPodGroupsDE09(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kinds := map[schema.GroupVersionResource]string{informer.RuleResource.WithVersion("v1"): "DeviceTaintRuleList"}
		d := &deviceWatch{rules: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)}
		feed := informer.NewDeviceFeed(tracker.New(), nobody{}, clock.RealClock{})
		all := cluster{"resource.k8s.io/v1": {"resourceclaims", "resourceslices", "devicetaintrules", "devicetaintrules/status"}}
		d.keeper = NewKeeper(KeeperOptions{
			Discovery: silentAboutGroups{all}, Clock: clock.RealClock{}, Metrics: NewResourceMetrics(prometheus.NewPedanticRegistry()),
			Resources: d.resources(fake.NewClientset(), feed, informer.Guarded(nil)),
			Known:     func(known bool) { d.setSynced(known, feed.SetKnown) },
		})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := d.keeper.Start(ctx); err != nil {
				t.Errorf("keeper returned %v", err)
			}
		})
		time.Sleep(10 * time.Minute)
		require.True(t, d.synced.Load(), "evictions do not wait for the answer")
		require.True(t, d.keeper.Watched(claimResource))
		require.False(t, d.claimsSynced(), "a pod of a group would be passed over")
		stop()
		running.Wait()
	})
}
