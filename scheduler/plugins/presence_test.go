package plugins

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/policy/slicepatch"
)

// office is where an announcer runs, with a fake API server.
type office struct {
	*announcer

	t      *testing.T
	client *fake.Clientset

	mutex   sync.Mutex
	leading bool
	broken  error
	end     context.CancelFunc
}

// announcing runs an announcer. It is for use in a bubble.
func announcing(t *testing.T, holder string, client *fake.Clientset) *office {
	t.Helper()
	o := &office{t: t, client: client, leading: true}
	o.announcer = newAnnouncer(client.CoordinationV1(), func() []string { return []string{"default-scheduler"} })
	o.holder = holder
	o.clock = clock.RealClock{} // That of the bubble.
	o.leads = func() bool {
		o.mutex.Lock()
		defer o.mutex.Unlock()
		return o.leading
	}
	client.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		o.mutex.Lock()
		defer o.mutex.Unlock()
		return o.broken != nil, nil, o.broken
	})
	ctx, cancel := context.WithCancel(t.Context())
	o.end = cancel
	go o.run(ctx)
	t.Cleanup(func() {
		cancel()
		synctest.Wait()
	})
	return o
}

func (o *office) set(change func(o *office)) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	change(o)
}

// lease is nil if there is none.
func (o *office) lease() *coordinationv1.Lease {
	o.t.Helper()
	synctest.Wait()
	found, err := o.client.Tracker().Get(coordinationv1.SchemeGroupVersion.WithResource("leases"), slicepatch.PresenceNamespace, slicepatch.Name)
	if err != nil {
		return nil
	}
	return found.(*coordinationv1.Lease) //nolint:forcetypeassert // The tracker keeps leases as such.
}

// holder is who obeys patches now.
func (o *office) nowHeldBy() string {
	o.t.Helper()
	found, _ := slicepatch.SchedulerOf(o.lease(), time.Now())
	return found.Holder
}

func TestPresence(t *testing.T) {
	t.Parallel()
	tests := map[string]func(o *office){
		"begins after an interval, and is renewed": func(o *office) {
			require.Nil(o.t, o.lease())
			time.Sleep(slicepatch.RenewInterval)
			require.Equal(o.t, "one", o.nowHeldBy())
			require.Equal(o.t, "default-scheduler", o.lease().Annotations[slicepatch.AnnotationProfiles])
			acquired := o.lease().Spec.AcquireTime
			time.Sleep(time.Hour)
			require.Equal(o.t, "one", o.nowHeldBy())
			require.Equal(o.t, acquired, o.lease().Spec.AcquireTime)
		},
		"is one request for each renewal": func(o *office) {
			time.Sleep(slicepatch.RenewInterval)
			synctest.Wait()
			o.client.ClearActions()
			time.Sleep(10 * slicepatch.RenewInterval)
			synctest.Wait()
			require.Len(o.t, o.client.Actions(), 10)
		},
		"is not said by one that does not lead": func(o *office) {
			o.set(func(o *office) { o.leading = false })
			time.Sleep(time.Hour)
			require.Nil(o.t, o.lease())
			o.set(func(o *office) { o.leading = true })
			time.Sleep(slicepatch.RenewInterval)
			require.Equal(o.t, "one", o.nowHeldBy())
		},
		"ends with the process": func(o *office) {
			time.Sleep(slicepatch.RenewInterval)
			require.Equal(o.t, "one", o.nowHeldBy())
			o.end()
			require.Empty(o.t, o.nowHeldBy())
			require.Empty(o.t, *o.lease().Spec.HolderIdentity)
		},
		"is not taken from a successor when the process ends": func(o *office) {
			time.Sleep(slicepatch.RenewInterval)
			next := slicepatch.ClaimPresence(o.lease(), slicepatch.Scheduler{Holder: "two"}, time.Now())
			next.ResourceVersion = "2"
			require.NoError(o.t, o.client.Tracker().Update(coordinationv1.SchemeGroupVersion.WithResource("leases"), next, slicepatch.PresenceNamespace))
			o.client.PrependReactor("update", "leases", conflict(o))
			o.end()
			require.Equal(o.t, "two", o.nowHeldBy())
		},
		"is taken over from one that is gone": func(o *office) {
			require.NoError(o.t, o.client.Tracker().Add(slicepatch.ClaimPresence(nil, slicepatch.Scheduler{Holder: "gone"}, time.Now().Add(-time.Hour))))
			time.Sleep(slicepatch.RenewInterval)
			require.Equal(o.t, "one", o.nowHeldBy())
		},
		"comes again when the lease was deleted": func(o *office) {
			time.Sleep(slicepatch.RenewInterval)
			require.NotNil(o.t, o.lease())
			require.NoError(o.t, o.client.Tracker().Delete(coordinationv1.SchemeGroupVersion.WithResource("leases"), slicepatch.PresenceNamespace, slicepatch.Name))
			time.Sleep(slicepatch.RenewInterval)
			require.Equal(o.t, "one", o.nowHeldBy())
		},
		"goes on trying when it fails": func(o *office) {
			time.Sleep(slicepatch.RenewInterval)
			require.Equal(o.t, "one", o.nowHeldBy(), "it breaks later")
			o.set(func(o *office) { o.broken = errors.New("broken") })
			time.Sleep(slicepatch.Duration + slicepatch.RenewInterval)
			require.Empty(o.t, o.nowHeldBy(), "it runs out")
			o.set(func(o *office) { o.broken = nil })
			time.Sleep(slicepatch.RenewInterval)
			require.Equal(o.t, "one", o.nowHeldBy())
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(announcing(t, "one", fake.NewClientset())) })
		})
	}
}

// conflict refuses what was read before somebody else wrote, as the API server does.
func conflict(o *office) clienttesting.ReactionFunc {
	return func(action clienttesting.Action) (bool, runtime.Object, error) {
		update, ok := action.(clienttesting.UpdateAction)
		if !ok {
			return false, nil, nil
		}
		written, err := o.client.Tracker().Get(coordinationv1.SchemeGroupVersion.WithResource("leases"), slicepatch.PresenceNamespace, slicepatch.Name)
		if err != nil {
			return true, nil, err
		}
		if update.GetObject().(metav1.Object).GetResourceVersion() != written.(metav1.Object).GetResourceVersion() { //nolint:forcetypeassert // All objects are.
			return true, nil, errors.New("somebody else wrote it")
		}
		return false, nil, nil
	}
}

func TestPresenceCountsFailures(t *testing.T) {
	t.Parallel()
	registerPresence()
	before, err := testutil.GetCounterMetricValue(presenceFailures)
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		o := announcing(t, "one", fake.NewClientset())
		o.set(func(o *office) { o.broken = errors.New("broken") })
		time.Sleep(3 * slicepatch.RenewInterval)
		synctest.Wait()
	})
	after, err := testutil.GetCounterMetricValue(presenceFailures)
	require.NoError(t, err)
	// Other tests of this package count there as well.
	require.GreaterOrEqual(t, after-before, 3.0)
}

// Binding pods uses up what the scheduler's own client may ask for.
func TestPresenceDoesNotWaitForTheSchedulersRequests(t *testing.T) {
	t.Parallel()
	used := flowcontrol.NewFakeNeverRateLimiter()
	config := &rest.Config{Host: "https://api.example.com", QPS: 50, Burst: 100, RateLimiter: used}
	leases, err := leasesOf(config)
	require.NoError(t, err)
	limiter := leases.(*coordinationclient.CoordinationV1Client).RESTClient().GetRateLimiter() //nolint:forcetypeassert // It is what the constructor makes.
	for range presenceBurst {
		require.True(t, limiter.TryAccept())
	}
	require.InDelta(t, presenceQPS, limiter.QPS(), 0)
	require.Equal(t, &rest.Config{Host: "https://api.example.com", QPS: 50, Burst: 100, RateLimiter: used}, config, "the scheduler keeps its own")
}

// gathered are metrics.
type gathered []*dto.MetricFamily

func (g gathered) Gather() ([]*dto.MetricFamily, error) { return g, errors.New("some are missing") }

func TestLeads(t *testing.T) {
	t.Parallel()
	election := func(values ...float64) *dto.MetricFamily {
		family := &dto.MetricFamily{Name: new("leader_election_master_status")}
		for _, v := range values {
			family.Metric = append(family.Metric, &dto.Metric{Gauge: &dto.Gauge{Value: &v}})
		}
		return family
	}
	other := &dto.MetricFamily{Name: new("other"), Metric: []*dto.Metric{{}}}
	require.True(t, leads(gathered{other}), "there is no election")
	require.True(t, leads(gathered{other, election()}))
	require.False(t, leads(gathered{election(0), other}))
	require.True(t, leads(gathered{other, election(1)}))
}
