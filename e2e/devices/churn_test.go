package devices

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tollgate-dev/tollgate/e2e/devices/auditlog"
	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
)

// holders says in which pool each pod was given a device.
type holders struct {
	mu    sync.Mutex
	pools map[string]map[types.UID]string // names of pods by pool and UID
}

func (h *holders) note(obj any) {
	claim, ok := obj.(*resourcev1.ResourceClaim)
	if !ok || claim.Status.Allocation == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	pool := claim.Status.Allocation.Devices.Results[0].Pool
	for _, consumer := range claim.Status.ReservedFor {
		if h.pools[pool] == nil {
			h.pools[pool] = map[types.UID]string{}
		}
		h.pools[pool][consumer.UID] = consumer.Name
	}
}

// in returns the names of the pods that had a device of a pool, by their UIDs.
func (h *holders) in(pool string) map[types.UID]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.pools[pool])
}

// watchHolders follows the claims of the namespace.
func (s *site) watchHolders(t *testing.T) *holders {
	t.Helper()
	h := &holders{pools: map[string]map[types.UID]string{}}
	factory := informers.NewSharedInformerFactoryWithOptions(s.client, 0, informers.WithNamespace(s.namespace))
	registration, err := factory.Resource().V1().ResourceClaims().Informer().AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    h.note,
		UpdateFunc: func(_, obj any) { h.note(obj) },
	})
	require.NoError(t, err)
	factory.Start(t.Context().Done())
	t.Cleanup(factory.Shutdown)
	require.True(t, toolscache.WaitForCacheSync(t.Context().Done(), registration.HasSynced))
	return h
}

// runStatefulSet runs replicas with a device each.
func (s *site) runStatefulSet(t *testing.T, replicas int32) {
	t.Helper()
	template := dra.Template("device", s.driver, "", dra.TolerateFor(key, 1))
	_, err := s.client.ResourceV1().ResourceClaimTemplates(s.namespace).Create(t.Context(), template, metav1.CreateOptions{})
	require.NoError(t, err)
	labels := map[string]string{"app": "churn"}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "churn"},
		Spec: appsv1.StatefulSetSpec{
			Replicas:            &replicas,
			PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector:            &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       dra.FromTemplate(dra.Pod(""), "device").Spec,
			},
		},
	}
	_, err = s.client.AppsV1().StatefulSets(s.namespace).Create(t.Context(), set, metav1.CreateOptions{})
	require.NoError(t, err)
	s.waitReplicas(t, replicas)
}

func (s *site) waitReplicas(t *testing.T, replicas int32) {
	t.Helper()
	eventually(t, "replicas", func(ctx context.Context) error {
		set, err := s.client.AppsV1().StatefulSets(s.namespace).Get(ctx, "churn", metav1.GetOptions{})
		if err == nil && set.Status.ReadyReplicas != replicas {
			err = fmt.Errorf("%d of %d are ready", set.Status.ReadyReplicas, replicas)
		}
		return err
	})
}

func TestStatefulSetChurnG02(t *testing.T) {
	t.Parallel()
	const (
		replicas  = 12
		broken    = 8
		evictions = 150
	)
	s := newSite(t, shared)
	var bad, good []resourcev1.Device
	for i := range broken {
		bad = append(bad, dra.Device(fmt.Sprintf("bad-%d", i)))
	}
	for i := range replicas - broken {
		good = append(good, dra.Device(fmt.Sprintf("good-%d", i)))
	}
	// There are as many devices as replicas: each that leaves a broken device comes
	// back to one, under the same name.
	s.publish(t, "broken", bad...)
	s.publish(t, "well", good...)
	had := s.watchHolders(t)
	s.runStatefulSet(t, replicas)
	s.rule(t, "r", "broken", noExecute)
	// How long all of them take is how long kwok, the scheduler and others do.
	for done := 0; done < evictions; {
		eventually(t, "another eviction", func(context.Context) error {
			n := len(auditlog.Deletions(s.asked(t)))
			if n == done {
				return fmt.Errorf("%d pods have left", n)
			}
			done = n
			return nil
		})
	}
	// No more of them come to a broken device, and then none is left on one.
	s.rule(t, "stop", "broken", resourcev1.DeviceTaintEffectNoSchedule)
	eventually(t, "broken devices left", func(ctx context.Context) error {
		alive, err := s.alive(ctx)
		if err != nil {
			return err
		}
		broken := had.in("broken")
		for name, uid := range alive {
			if _, due := broken[uid]; due {
				return fmt.Errorf("%s is still there", name)
			}
		}
		return nil
	})

	left := map[types.UID]string{}
	for _, deletion := range auditlog.Deletions(s.asked(t)) {
		require.NotEmpty(t, deletion.UID, "it says which pod it means")
		require.NotContains(t, left, deletion.UID, "%s was deleted twice", deletion.Name)
		left[deletion.UID] = deletion.Name
	}
	// Tollgate may have heard of a device before the watch of the test did.
	eventually(t, "who left had a broken device", func(context.Context) error {
		broken := had.in("broken")
		for uid, name := range left {
			if _, due := broken[uid]; !due {
				return fmt.Errorf("%s had none", name)
			}
		}
		return nil
	})
	t.Logf("%d evictions of %d replicas, none of them wrong", len(left), replicas)
}
