package app

import (
	"context"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// cluster has the served resources, by group and version.
type cluster map[string][]string

func (c cluster) ServerResourcesForGroupVersionWithContext(_ context.Context, version string) (*metav1.APIResourceList, error) {
	names, ok := c[version]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, version)
	}
	list := &metav1.APIResourceList{GroupVersion: version}
	for _, name := range names {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
	}
	return list, nil
}

// nobody listens.
type nobody struct{}

func (nobody) PodsChanged([]tracker.Key) {}
func (nobody) RuleChanged(string)        {}

func TestWhatIsServedOfDevices(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		serves                          cluster
		claimsSynced, served, writeable bool
		// off turns the feature gate DeviceTaintRules off.
		off bool
	}{
		"DE-01 VS-01 all of Kubernetes 1.37 counts and has a status": {
			cluster{"resource.k8s.io/v1": {"resourceclaims", "resourceslices", "devicetaintrules", "devicetaintrules/status"}}, true, true, true, false,
		},
		"VS-03 the rules of Kubernetes 1.34 count and have no status": {
			cluster{"resource.k8s.io/v1": {"resourceclaims", "resourceslices"}, "resource.k8s.io/v1alpha3": {"devicetaintrules"}}, true, true, false, false,
		},
		"VS-02 pods are not counted where rules are served and claims are not": {
			cluster{"resource.k8s.io/v1beta2": {"devicetaintrules", "devicetaintrules/status"}}, false, true, true, false,
		},
		"where the gate DeviceTaintRules is off, pods are counted and rules are as if they were not served": {
			cluster{"resource.k8s.io/v1": {"resourceclaims", "resourceslices", "devicetaintrules", "devicetaintrules/status"}}, true, false, false, true,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			kinds := map[schema.GroupVersionResource]string{}
			for _, version := range []string{"v1", "v1beta2", "v1alpha3"} {
				kinds[informer.RuleResource.WithVersion(version)] = "DeviceTaintRuleList"
			}
			d := &deviceWatch{rules: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds), withoutRules: c.off}
			feed := informer.NewDeviceFeed(tracker.New(), nobody{}, clock.RealClock{})
			known := make(chan struct{})
			d.keeper = NewKeeper(KeeperOptions{
				Discovery: c.serves, Clock: clock.RealClock{}, Metrics: NewResourceMetrics(prometheus.NewPedanticRegistry()),
				Resources: d.resources(fake.NewClientset(), feed, informer.Guarded(nil)),
				Known: func(all bool) {
					d.setSynced(all, feed.SetKnown)
					close(known)
				},
			})
			require.False(t, d.claimsSynced())
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() {
				if err := d.keeper.Start(ctx); err != nil {
					t.Errorf("keeper returned %v", err)
				}
			})
			<-known
			require.Equal(t, c.claimsSynced, d.claimsSynced())
			_, ok := d.served()
			require.Equal(t, c.served, ok)
			_, ok = d.writable()
			require.Equal(t, c.writeable, ok)
			stop()
			running.Wait()
			d.setSynced(false, feed.SetKnown)
			require.False(t, d.claimsSynced())
		})
	}
}

func TestDevicesAreKnownOnlyWhileTheTrackerAnswers(t *testing.T) {
	t.Parallel()
	d := &deviceWatch{}
	var meanwhile []bool
	tell := func(bool) { meanwhile = append(meanwhile, d.synced.Load()) }
	d.setSynced(true, tell)
	require.True(t, d.synced.Load())
	d.setSynced(false, tell)
	require.False(t, d.synced.Load())
	require.Equal(t, []bool{false, false}, meanwhile)
}
