package plugins

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2" //nolint:depguard // The scheduler logs with it, and its contexts carry no logger.
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

func twoNodes() []runtime.Object {
	return []runtime.Object{deviceClass(), node("one"), node("two"), sliceOf("one", "A100"), sliceOf("two", "A100")}
}

func TestSchedulerAllocatesByPatchedSlices(t *testing.T) {
	t.Parallel()

	t.Run("a pod goes where a patch makes devices what it asks for", func(t *testing.T) {
		t.Parallel()
		h := start(t, setup{objects: twoNodes()})
		h.createWanting("pod", "H100")
		h.requireParked("pod")
		h.patches.Add(modelPatch("two", "H100", 1))
		h.requireOn("two", "pod")
	})

	t.Run("a patch that changes wakes pods", func(t *testing.T) {
		t.Parallel()
		h := start(t, setup{objects: twoNodes()})
		h.patches.Add(modelPatch("two", "V100", 1))
		h.createWanting("pod", "H100")
		h.requireParked("pod")
		h.patches.Modify(modelPatch("two", "H100", 2))
		h.requireOn("two", "pod")
	})

	t.Run("a patch that goes gives back what the driver published", func(t *testing.T) {
		t.Parallel()
		h := start(t, setup{objects: twoNodes()})
		h.patches.Add(modelPatch("one", "V100", 1))
		h.patches.Add(modelPatch("two", "V100", 1))
		h.requireView("V100", "V100")
		h.createWanting("pod", "A100")
		h.requireParked("pod")
		h.patches.Delete(modelPatch("two", "V100", 1))
		h.requireOn("two", "pod")
	})

	t.Run("a slice that comes is patched when it wakes pods", func(t *testing.T) {
		t.Parallel()
		h := start(t, setup{objects: []runtime.Object{deviceClass(), node("one")}})
		h.patches.Add(modelPatch("one", "H100", 1))
		h.createWanting("pod", "H100")
		h.requireParked("pod")
		h.create(sliceOf("one", "A100"))
		h.requireOn("one", "pod")
	})

	t.Run("a class that goes takes its patches with it, and wakes pods", func(t *testing.T) {
		t.Parallel()
		other := deviceClass()
		other.Name = "other"
		h := start(t, setup{objects: append(twoNodes(), other)})
		for _, pool := range []string{"one", "two"} {
			patch := modelPatch(pool, "V100", 1)
			patch.Spec.Devices.Filter.DeviceClassName = &other.Name
			h.patches.Add(patch)
		}
		h.requireView("V100", "V100")
		h.createWanting("pod", "A100")
		h.requireParked("pod")
		require.NoError(t, h.client.ResourceV1().DeviceClasses().Delete(t.Context(), other.Name, metav1.DeleteOptions{}))
		require.Eventually(t, func() bool { return h.node("pod") != "" }, scheduleTimeout, 10*time.Millisecond)
	})
}

// slow is a set that is slow to come: the one with the model waits.
type slow struct {
	model    string
	waiting  chan struct{}
	proceed  chan struct{}
	announce sync.Once
}

func newSlow(model string) *slow {
	return &slow{model: model, waiting: make(chan struct{}), proceed: make(chan struct{})}
}

func (s *slow) compile(patches []*v1alpha1.ResourceSlicePatch, class findClass, previous patchSet) patchSet {
	set := compileForTest(patches, class, previous)
	for _, model := range set.(models) { //nolint:forcetypeassert // It is what compileForTest returns.
		if model == s.model {
			s.announce.Do(func() { close(s.waiting) })
			<-s.proceed
		}
	}
	return set
}

func TestNoPodIsLeftWaiting(t *testing.T) {
	t.Parallel()

	t.Run("that was judged on patches from before the last", func(t *testing.T) {
		t.Parallel()
		late := newSlow("H100")
		h := start(t, setup{objects: twoNodes(), compile: late.compile})
		h.patches.Add(modelPatch("two", "H100", 1))
		<-late.waiting
		h.createWanting("pod", "H100")
		h.requireParked("pod")
		close(late.proceed)
		h.requireOn("two", "pod")
	})

	t.Run("and would be, were it not woken", func(t *testing.T) {
		t.Parallel()
		late := newSlow("H100")
		h := start(t, setup{objects: twoNodes(), compile: late.compile, handle: func(stock fwk.Handle) fwk.Handle {
			return &spiedHandle{Handle: stock, asleep: true}
		}})
		h.patches.Add(modelPatch("two", "H100", 1))
		<-late.waiting
		h.createWanting("pod", "H100")
		h.requireParked("pod")
		close(late.proceed)
		require.Never(t, func() bool { return h.node("pod") != "" }, 3*time.Second, 100*time.Millisecond)
	})

	t.Run("that was in flight when the patches changed", func(t *testing.T) {
		t.Parallel()
		late := newSlow("H100")
		judged, proceed := make(chan string, 10), make(chan struct{})
		activated := make(chan struct{}, 10)
		h := start(t, setup{
			objects: twoNodes(), compile: late.compile,
			profiles: profiles + `
          - {name: Holding}`,
			plugins: frameworkruntime.Registry{"Holding": func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
				return &holding{judged: judged, proceed: proceed}, nil
			}},
			handle: func(stock fwk.Handle) fwk.Handle { return &spiedHandle{Handle: stock, activated: activated} },
		})
		h.patches.Add(modelPatch("two", "H100", 1))
		<-late.waiting
		h.createWanting("pod", "H100")
		require.Equal(t, "pod", <-judged, "the pod has its slices, and is held")
		close(late.proceed)
		<-activated
		close(proceed)
		h.requireOn("two", "pod")
	})
}

// spiedHandle tells when pods are woken, or does not wake them.
type spiedHandle struct {
	fwk.Handle
	asleep    bool
	activated chan struct{}
}

func (s *spiedHandle) Activate(logger klog.Logger, pods map[string]*corev1.Pod) {
	if s.asleep {
		return
	}
	s.Handle.Activate(logger, pods)
	if s.activated != nil {
		s.activated <- struct{}{}
	}
}

// holding holds pods after DynamicResources has listed the slices.
type holding struct {
	judged  chan<- string
	proceed <-chan struct{}
}

func (*holding) Name() string { return "Holding" }

func (p *holding) PreFilter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	p.judged <- pod.Name
	<-p.proceed
	return nil, nil
}

func (*holding) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

func (*holding) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return nil, nil
}
