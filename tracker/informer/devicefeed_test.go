package informer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

var gpu = device.ID{Driver: "gpu.example.com", Pool: "pool", Name: "gpu-0"}

func deviceTaint(key string) resourcev1.DeviceTaint {
	return resourcev1.DeviceTaint{Key: key, Effect: resourcev1.DeviceTaintEffectNoExecute, TimeAdded: new(metav1.NewTime(start))}
}

func slice(uid, version string, taints ...resourcev1.DeviceTaint) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "slice", UID: types.UID(uid), ResourceVersion: version},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: gpu.Driver, Pool: resourcev1.ResourcePool{Name: gpu.Pool, Generation: 1, ResourceSliceCount: 1},
			Devices: []resourcev1.Device{{Name: gpu.Name, Taints: taints}},
		},
	}
}

func rule(uid, version, key string) *resourcev1.DeviceTaintRule {
	return &resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: "rule", UID: types.UID(uid), ResourceVersion: version},
		Spec:       resourcev1.DeviceTaintRuleSpec{DeviceSelector: &resourcev1.DeviceTaintSelector{}, Taint: deviceTaint(key)},
	}
}

func claim(uid, version string) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim", UID: types.UID(uid), ResourceVersion: version},
		Status: resourcev1.ResourceClaimStatus{
			ReservedFor: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: "1"}},
			Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
				{Request: "r", Driver: gpu.Driver, Pool: gpu.Pool, Device: gpu.Name},
			}}},
		},
	}
}

func claimant() *corev1.Pod {
	p := pod("1", "1")
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimName: new("claim")}}
	return p
}

// devices is a feed with a pod that uses the device.
type devices struct {
	tracker  *tracker.Tracker
	listener *listener
	feed     *informer.DeviceFeed
}

func newDevices(t *testing.T) devices {
	t.Helper()
	d := devices{tracker: tracker.New(), listener: &listener{}}
	d.tracker.SetPod(tracker.PodOf(claimant()))
	d.feed = informer.NewDeviceFeed(d.tracker, d.listener, clocktesting.NewFakePassiveClock(start))
	return d
}

// keys returns the keys of the taints that hold for the pod.
func (d devices) keys(t *testing.T) []string {
	t.Helper()
	situation, ok := d.tracker.Lookup(tracker.Key{Namespace: "ns", Name: "p", UID: "1"})
	require.True(t, ok)
	var keys []string
	for _, dev := range situation.Devices {
		for _, taint := range dev.Taints {
			keys = append(keys, taint.Key)
		}
	}
	return keys
}

func TestDeviceFeed(t *testing.T) {
	t.Parallel()

	t.Run("DE-53 nothing holds until all is known, in whatever order it comes", func(t *testing.T) {
		t.Parallel()
		d := newDevices(t)
		steps := []func(){
			func() { d.feed.Slices().OnAdd(slice("s", "1", deviceTaint("slice")), true) },
			func() { d.feed.Claims().OnAdd(claim("c", "2"), true) },
			func() { d.feed.Rules().OnAdd(rule("r", "3", "rule"), true) },
		}
		for _, step := range steps {
			step()
			require.Empty(t, d.keys(t))
		}
		told := len(d.listener.pods)
		d.feed.SetKnown(true)
		require.Len(t, d.listener.pods, told+1)
		require.Equal(t, []string{"slice", "rule"}, d.keys(t))
		d.feed.SetKnown(false)
		require.Len(t, d.listener.pods, told+2)
		require.Empty(t, d.keys(t))
	})

	t.Run("events reach the tracker and the listener", func(t *testing.T) {
		t.Parallel()
		d := newDevices(t)
		d.feed.SetKnown(true)
		d.feed.Claims().OnAdd(claim("c", "2"), false)
		require.Empty(t, d.listener.pods)
		d.feed.Slices().OnAdd(slice("s", "3", deviceTaint("slice")), false)
		require.Len(t, d.listener.pods, 1)
		d.feed.Rules().OnAdd(rule("r", "4", "rule"), false)
		require.Len(t, d.listener.pods, 2)
		require.Equal(t, []string{"rule"}, d.listener.rules)
		d.feed.Rules().OnUpdate(rule("r", "4", "rule"), rule("r", "5", "other"))
		require.Equal(t, []string{"slice", "other"}, d.keys(t))
		require.Equal(t, []string{"rule", "rule"}, d.listener.rules)
		d.feed.Rules().OnDelete(rule("r", "6", "other"))
		require.Equal(t, []string{"slice"}, d.keys(t))
		require.Len(t, d.listener.rules, 3)
		d.feed.Slices().OnUpdate(slice("s", "3", deviceTaint("slice")), slice("s", "7"))
		require.Empty(t, d.keys(t))
		d.feed.Slices().OnUpdate(slice("s", "7"), slice("s", "8", deviceTaint("slice")))
		require.Equal(t, []string{"slice"}, d.keys(t))
		told := len(d.listener.pods)
		d.feed.Claims().OnDelete(claim("c", "9"))
		require.Empty(t, d.keys(t))
		require.Len(t, d.listener.pods, told+1)
	})

	t.Run("DE-34 DE-75 what was replaced under its name starts anew", func(t *testing.T) {
		t.Parallel()
		d := newDevices(t)
		d.feed.SetKnown(true)
		d.feed.Claims().OnAdd(claim("c", "1"), true)
		d.feed.Rules().OnAdd(rule("r", "2", "rule"), true)
		d.feed.Slices().OnAdd(slice("s", "3", deviceTaint("slice")), true)
		d.feed.Rules().OnUpdate(rule("r", "2", "rule"), rule("r2", "5", "rule"))
		require.Equal(t, types.UID("r2"), d.tracker.UIDOf(tracker.Source{Kind: tracker.SourceRule, Name: "rule"}))
		taint, ok := d.tracker.RuleTaint("rule")
		require.True(t, ok)
		require.False(t, taint.Witnessed, "the new rule was never seen without its taint")
		d.feed.Slices().OnUpdate(slice("s", "3", deviceTaint("slice")), slice("s2", "6", deviceTaint("slice")))
		require.Equal(t, types.UID("s2"), d.tracker.UIDOf(tracker.Source{Kind: tracker.SourceSlice, Name: "slice"}))
		another := claim("c2", "7")
		another.Status.ReservedFor[0].UID = "another"
		d.feed.Claims().OnUpdate(claim("c", "1"), another)
		require.Empty(t, d.keys(t))
		require.Empty(t, d.tracker.PodsUsing(gpu))
	})

	t.Run("I09 K06 tombstones are deletions, with the last object or without one", func(t *testing.T) {
		t.Parallel()
		d := newDevices(t)
		d.feed.SetKnown(true)
		d.feed.Claims().OnAdd(claim("c", "1"), true)
		d.feed.Slices().OnAdd(slice("s", "2", deviceTaint("slice")), true)
		d.feed.Rules().OnAdd(rule("r", "3", "rule"), true)
		told := len(d.listener.pods)
		d.feed.Slices().OnDelete(toolscache.DeletedFinalStateUnknown{Key: "slice"})
		require.Equal(t, []string{"rule"}, d.keys(t))
		require.Len(t, d.listener.pods, told+1)
		d.feed.Rules().OnDelete(toolscache.DeletedFinalStateUnknown{Key: "rule"})
		require.Empty(t, d.keys(t))
		require.Len(t, d.listener.pods, told+2)
		require.Equal(t, []string{"rule", "rule"}, d.listener.rules)
		d.feed.Claims().OnDelete(toolscache.DeletedFinalStateUnknown{Key: "ns/claim", Obj: claim("c", "1")})
		require.Empty(t, d.tracker.ClaimsOn(gpu))
	})

	t.Run("I09 whatever else comes is let be", func(t *testing.T) {
		t.Parallel()
		d := newDevices(t)
		d.feed.SetKnown(true)
		d.feed.Claims().OnAdd(claim("c", "1"), true)
		d.feed.Slices().OnAdd(slice("s", "2", deviceTaint("slice")), true)
		d.feed.Rules().OnAdd(rule("r", "3", "rule"), true)
		told := len(d.listener.pods)
		for _, handler := range []toolscache.ResourceEventHandler{d.feed.Slices(), d.feed.Claims(), d.feed.Rules()} {
			handler.OnAdd(pod("1", "1"), false)
			handler.OnUpdate(pod("1", "1"), node("1"))
			handler.OnUpdate(nil, nil)
			handler.OnDelete(nil)
			handler.OnDelete(pod("1", "1"))
			handler.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "slice", Obj: pod("1", "1")})
			handler.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "rule", Obj: pod("1", "1")})
			handler.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "unheard-of"})
			handler.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "ns/claim"})
		}
		require.Equal(t, []string{"slice", "rule"}, d.keys(t))
		require.Len(t, d.listener.pods, told)
		require.Len(t, d.listener.rules, 1)
	})

	t.Run("K08 a taint without a time counts from when it was first seen", func(t *testing.T) {
		t.Parallel()
		d := newDevices(t)
		d.feed.SetKnown(true)
		d.feed.Claims().OnAdd(claim("c", "1"), true)
		bare := slice("s", "2", resourcev1.DeviceTaint{Key: "slice", Effect: resourcev1.DeviceTaintEffectNoExecute})
		d.feed.Slices().OnAdd(bare, true)
		untimed := rule("r", "3", "rule")
		untimed.Spec.Taint.TimeAdded = nil
		d.feed.Rules().OnAdd(untimed, true)
		require.Equal(t, []string{"slice", "rule"}, d.keys(t))
		for _, taint := range d.tracker.DeviceTaints(gpu) {
			require.Equal(t, start, taint.TimeAdded)
			require.False(t, taint.Stamped)
		}
	})

	t.Run("DE-08 DE-09 PodGroups count while they are served", func(t *testing.T) {
		t.Parallel()
		d := newDevices(t)
		member := claimant()
		member.ResourceVersion = "2"
		member.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("gang")}
		d.tracker.SetPod(tracker.PodOf(member))
		reserved := claim("c", "3")
		reserved.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "gang", UID: "g"}}
		d.feed.SetKnown(true)
		d.feed.Claims().OnAdd(reserved, true)
		d.feed.Slices().OnAdd(slice("s", "4", deviceTaint("slice")), true)
		require.Empty(t, d.keys(t))
		told := len(d.listener.pods)
		d.feed.SetPodGroups(true)
		require.Equal(t, []string{"slice"}, d.keys(t))
		require.Len(t, d.listener.pods, told+1)
		d.feed.SetPodGroups(false)
		require.Empty(t, d.keys(t))
		require.Len(t, d.listener.pods, told+2)
	})
}

// TestHandlersDoNotWait is what keeps a slow API server from stalling informers
// (U11): with everyone told, nothing but the tracker is touched.
func TestHandlersDoNotWait(t *testing.T) {
	t.Parallel()
	d := newDevices(t)
	d.feed.SetKnown(true)
	d.feed.Claims().OnAdd(claim("c", "1"), true)
	began := time.Now()
	const events = 1000
	for i := range events {
		taints := []resourcev1.DeviceTaint{deviceTaint("slice")}
		if i%2 == 0 {
			taints = nil
		}
		d.feed.Slices().OnAdd(slice("s", "", taints...), false)
	}
	require.Less(t, time.Since(began)/events, 20*time.Millisecond)
	require.Len(t, d.listener.pods, events-1)
}
