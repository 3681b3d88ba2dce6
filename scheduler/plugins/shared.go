package plugins

import (
	"context"
	"sync"

	"k8s.io/client-go/informers"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2" //nolint:depguard // The scheduler logs with it, and its contexts carry no logger.
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// shared is the state that the plugins of all profiles share.
type shared struct {
	// informer makes the informer of patches one of the scheduler's, which waits for
	// all of them before it schedules.
	informer func(*rest.Config, informers.SharedInformerFactory) (cache.SharedIndexInformer, error)
	// leases makes the client for the Lease that shows that patches are applied.
	leases  func(*rest.Config) (coordinationclient.LeasesGetter, error)
	compile compileFunc

	// making guards the fields below: profiles are made one after another, while the
	// worker of the first runs.
	making sync.Mutex
	view   *view
	// allocating are the handles of the profiles that allocate patched devices.
	allocating []fwk.Handle
}

// handle returns the profile's handle with the patched slices in it. The first call
// makes the view and starts its worker, which ends with the context. The pods of a profile
// that allocates are woken when patches change.
func (s *shared) handle(ctx context.Context, stock fwk.Handle, allocates bool) (fwk.Handle, error) {
	s.making.Lock()
	defer s.making.Unlock()
	if s.view == nil {
		if err := s.start(ctx, stock); err != nil {
			return nil, err
		}
	}
	if allocates {
		s.allocating = append(s.allocating, stock)
	}
	return &handle{Handle: stock, manager: manager{SharedDRAManager: stock.SharedDRAManager(), view: s.view}}, nil
}

func (s *shared) start(ctx context.Context, stock fwk.Handle) error {
	factory := stock.SharedInformerFactory()
	patches, err := s.informer(stock.KubeConfig(), factory)
	if err != nil {
		return err
	}
	leases, err := s.leases(stock.KubeConfig())
	if err != nil {
		return err
	}
	classes := factory.Resource().V1().DeviceClasses().Informer()
	dra := stock.SharedDRAManager()
	rules, err := rulesOf(factory)
	if err != nil {
		return err
	}
	patched := &view{
		slices: dra.ResourceSlices(), classes: dra.DeviceClasses(), rules: rules, compile: s.compile,
		synced: func() bool { return patches.HasSynced() && classes.HasSynced() },
		patches: func() []*v1alpha1.ResourceSlicePatch {
			objects := patches.GetStore().List()
			list := make([]*v1alpha1.ResourceSlicePatch, 0, len(objects))
			for _, object := range objects {
				if patch, ok := object.(*v1alpha1.ResourceSlicePatch); ok {
					list = append(list, patch)
				}
			}
			return list
		},
	}
	work := newWorker(patched.Refresh, s.wake)
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { work.changed() },
		UpdateFunc: func(any, any) { work.changed() },
		DeleteFunc: func(any) { work.changed() },
	}
	for _, informer := range []cache.SharedIndexInformer{patches, classes} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	s.view = patched
	go work.run(ctx)
	go s.announce(ctx, newAnnouncer(leases, s.profiles), factory, patches)
	return nil
}

// announce waits until the scheduler is ready for pods: an election, if there is to be
// one, begins right after that.
func (s *shared) announce(ctx context.Context, a *announcer, factory informers.SharedInformerFactory, patches cache.SharedIndexInformer) {
	if cache.WaitFor(ctx, "", patches.HasSyncedChecker()) {
		factory.WaitForCacheSync(ctx.Done())
		a.run(ctx)
	}
}

// profiles returns the names of those that apply patches.
func (s *shared) profiles() []string {
	s.making.Lock()
	defer s.making.Unlock()
	var names []string
	for _, profile := range s.allocating {
		names = append(names, profile.ProfileName())
	}
	return names
}

func (s *shared) wake(ctx context.Context) {
	s.making.Lock()
	defer s.making.Unlock()
	klog.FromContext(ctx).V(2).Info("ResourceSlicePatches changed, waking pods that use devices")
	for _, profile := range s.allocating {
		wakePods(klog.FromContext(ctx), profile)
	}
}
