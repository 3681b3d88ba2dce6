package patches

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

const (
	// republishInterval is how often the driver publishes something else.
	republishInterval = time.Second
	// podInterval is how often pods ask for devices meanwhile.
	podInterval = 250 * time.Millisecond
	// syncDelay is how soon the driver looks again at what it published after a change
	// of it. It is short here, so that an exchange of updates would be seen.
	syncDelay = 100 * time.Millisecond
)

// republishFor is how long it goes on: TOLLGATE_REPUBLISH says for how long, 10 s
// if it does not.
func republishFor(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("TOLLGATE_REPUBLISH")
	if text == "" {
		return 10 * time.Second
	}
	duration, err := time.ParseDuration(text)
	require.NoError(t, err, "TOLLGATE_REPUBLISH")
	return duration
}

// It runs alone: beside the others there would be few pods, and hence little seen.
func TestTheViewDoesNotFlickerWhileADriverRepublishesEverySecond(t *testing.T) {
	s := newSite(t)
	s.patch(t, "gold", `{filter: {driver: DRIVER, selectors: [{cel: {expression: 'device.attributes["DRIVER"].index >= 32'}}]}, attributes: {DRIVER/model: {string: B}, DRIVER/round: {int: -1}}, capacity: {DRIVER/memory: {value: 40Gi}}}`)
	seen := s.observe(t)
	driver, err := resourceslice.StartController(t.Context(), resourceslice.Options{
		DriverName: s.driver, KubeClient: s.client, Resources: published(0), SyncDelay: new(syncDelay),
		ErrorHandler: func(_ context.Context, err error, msg string) {
			// While it stops, the requests of the driver are cut off.
			if t.Context().Err() == nil {
				t.Errorf("driver: %s: %v", msg, err)
			}
		},
	})
	require.NoError(t, err)
	t.Cleanup(driver.Stop)
	s.settle(t)

	rounds, pods := s.churn(t, driver, republishFor(t))
	eventually(t, "the driver has written its last", func(context.Context) error {
		if round := seen.lastRound(); round != rounds {
			return fmt.Errorf("round %d is published, not %d", round, rounds)
		}
		return nil
	})
	// Whoever answers to its last write has done so, several times over.
	time.Sleep(10 * syncDelay)
	driver.Stop()
	stats := driver.GetStats()
	eventually(t, "the watch has seen all writes and all allocations", func(context.Context) error {
		if writes, allocated := seen.counts(); writes < stats.NumCreates+stats.NumUpdates || allocated < pods {
			return fmt.Errorf("%d writes of %+v, %d allocations of %d", writes, stats, allocated, pods)
		}
		return nil
	})
	seen.require(t, stats)
	require.Positive(t, rounds)
	require.GreaterOrEqual(t, stats.NumUpdates, rounds, "a round of a pool of two slices is two updates, of one slice one")
	t.Logf("%d rounds, %d pods with devices, writes of the driver: %+v", rounds, pods, stats)
}

// published are the devices of a round: a pool of one slice, and one of two, of which the
// helper makes a new generation each time.
func published(round int64) *resourceslice.DriverResources {
	pool := func(first, last int) resourceslice.Slice {
		var slice resourceslice.Slice
		for i := first; i < last; i++ {
			d := gpu("d"+strconv.Itoa(i), int64(i))
			d.Attributes["round"] = resourcev1.DeviceAttribute{IntValue: &round}
			slice.Devices = append(slice.Devices, d)
		}
		return slice
	}
	return &resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
		"one": {AllNodes: true, Slices: []resourceslice.Slice{pool(0, 64)}},
		"two": {AllNodes: true, Slices: []resourceslice.Slice{pool(0, 32), pool(32, 64)}},
	}}
}

// churn has the driver publish anew and pods come and go, and returns how many rounds
// and how many pods there were. All of them must be scheduled.
func (s *site) churn(t *testing.T, driver *resourceslice.Controller, duration time.Duration) (rounds int64, pods int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	var publishing sync.WaitGroup
	publishing.Go(func() {
		ticker := time.NewTicker(republishInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				rounds++
				driver.Update(published(rounds))
			}
		}
	})
	ticker := time.NewTicker(podInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			publishing.Wait()
			s.removePlaced(t, 0)
			return rounds, pods
		case <-ticker.C:
			// The names tell the observer what they ask for.
			s.run(t, "patched-"+strconv.Itoa(pods), modelB)
			s.run(t, "published-"+strconv.Itoa(pods+1), modelA)
			pods += 2
			s.removePlaced(t, pods)
		}
	}
}

// removePlaced deletes the pods that have devices. With none to come, it waits for those
// that have not.
func (s *site) removePlaced(t *testing.T, coming int) {
	t.Helper()
	remove := func(ctx context.Context) (left int, err error) {
		now, err := s.decisions(ctx, "")
		if err != nil {
			return 0, err
		}
		for pod := range now.placed {
			if err := s.client.CoreV1().Pods(s.namespace).Delete(ctx, pod, metav1.DeleteOptions{}); err != nil {
				return 0, fmt.Errorf("delete pod: %w", err)
			}
			if err := s.client.ResourceV1().ResourceClaims(s.namespace).Delete(ctx, pod, metav1.DeleteOptions{}); err != nil {
				return 0, fmt.Errorf("delete claim: %w", err)
			}
		}
		list, err := s.client.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
		return len(list.Items), err
	}
	if coming > 0 {
		_, err := remove(t.Context())
		require.NoError(t, err)
		return
	}
	eventually(t, "every pod has had a device", func(ctx context.Context) error {
		left, err := remove(ctx)
		if err == nil && left > 0 {
			err = fmt.Errorf("%d pods are left", left)
		}
		return err
	})
}

// observer watches slices and claims, apart from driver and scheduler.
type observer struct {
	driver string

	lock      sync.Mutex // guards what follows
	written   int64
	managers  []string
	rounds    map[string]int64
	allocated map[string]string
	wrong     []string
}

func (s *site) observe(t *testing.T) *observer {
	t.Helper()
	o := &observer{driver: s.driver, rounds: map[string]int64{}, allocated: map[string]string{}}
	slices, err := s.client.ResourceV1().ResourceSlices().Watch(t.Context(), metav1.ListOptions{
		FieldSelector: resourcev1.ResourceSliceSelectorDriver + "=" + s.driver,
	})
	require.NoError(t, err)
	claims, err := s.client.ResourceV1().ResourceClaims(s.namespace).Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var watching sync.WaitGroup
	watching.Go(func() { o.follow(slices) })
	watching.Go(func() { o.follow(claims) })
	t.Cleanup(func() {
		slices.Stop()
		claims.Stop()
		watching.Wait()
	})
	return o
}

func (o *observer) follow(events watch.Interface) {
	for event := range events.ResultChan() {
		o.lock.Lock()
		switch object := event.Object.(type) {
		case *resourcev1.ResourceSlice:
			o.slice(event.Type, object)
		case *resourcev1.ResourceClaim:
			o.claim(object)
		default:
			o.wrong = append(o.wrong, fmt.Sprintf("watch: %v", object))
		}
		o.lock.Unlock()
	}
}

func (o *observer) slice(kind watch.EventType, slice *resourcev1.ResourceSlice) {
	if kind == watch.Deleted {
		return
	}
	o.written++
	for _, entry := range slice.ManagedFields {
		if !slices.Contains(o.managers, entry.Manager) {
			o.managers = append(o.managers, entry.Manager)
		}
	}
	for i := range slice.Spec.Devices {
		// Nobody writes the patched values into them.
		if model := slice.Spec.Devices[i].Attributes["model"].StringValue; model == nil || *model != "A" {
			o.wrong = append(o.wrong, "published: "+slice.Spec.Devices[i].Name)
		}
	}
	o.rounds[slice.Name] = *slice.Spec.Devices[0].Attributes["round"].IntValue
}

// claim holds an allocation against what the claim asks for.
func (o *observer) claim(claim *resourcev1.ResourceClaim) {
	if claim.Status.Allocation == nil || o.allocated[claim.Name] != "" {
		return
	}
	device := claim.Status.Allocation.Devices.Results[0].Device
	o.allocated[claim.Name] = device
	index, err := strconv.Atoi(strings.TrimPrefix(device, "d"))
	if wantsPatched := strings.HasPrefix(claim.Name, "patched-"); err != nil || wantsPatched != (index >= 32) {
		o.wrong = append(o.wrong, claim.Name+" has "+device)
	}
}

// counts are how many writes of slices and how many allocated claims were seen.
func (o *observer) counts() (writes int64, allocated int) {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.written, len(o.allocated)
}

// lastRound is the oldest of the rounds that the slices are of.
func (o *observer) lastRound() int64 {
	o.lock.Lock()
	defer o.lock.Unlock()
	last := int64(-1)
	for _, round := range o.rounds {
		if last < 0 || round < last {
			last = round
		}
	}
	return last
}

// require fails if an allocation did not obey the patch, or if somebody else than the
// driver wrote slices.
func (o *observer) require(t *testing.T, stats resourceslice.Stats) {
	t.Helper()
	o.lock.Lock()
	defer o.lock.Unlock()
	require.Empty(t, o.wrong)
	require.Equal(t, stats.NumCreates+stats.NumUpdates, o.written, "somebody else writes slices, or the driver answers")
	require.Len(t, o.managers, 1)
}
