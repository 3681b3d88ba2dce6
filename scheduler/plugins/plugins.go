package plugins

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tollgate-dev/tollgate/scheduler/view"
)

// Registry are the plugins by name, for app.WithPlugin. They share one view of the
// devices, so there must be one registry in a process, and one scheduler with it;
// that may have many profiles.
// The feature gate that comes with them has to be known before the command of the
// scheduler is made, which reads gates from its flags.
func Registry() frameworkruntime.Registry {
	addGates()
	return (&shared{informer: informerOfPatches, leases: leasesOf, compile: view.CompilePatches}).registry()
}

func (s *shared) registry() frameworkruntime.Registry {
	return frameworkruntime.Registry{
		DynamicResourcesName: func(ctx context.Context, args runtime.Object, stock fwk.Handle) (fwk.Plugin, error) {
			patched, err := s.handle(ctx, stock)
			if err != nil {
				return nil, err
			}
			s.wakeWith(&waker{handle: stock})
			return newDynamicResources(ctx, args, patched)
		},
		FitName: func(ctx context.Context, args runtime.Object, stock fwk.Handle) (fwk.Plugin, error) {
			patched, err := s.handle(ctx, stock)
			if err != nil {
				return nil, err
			}
			return newFit(ctx, args, patched)
		},
		BalancedAllocationName: func(ctx context.Context, args runtime.Object, stock fwk.Handle) (fwk.Plugin, error) {
			patched, err := s.handle(ctx, stock)
			if err != nil {
				return nil, err
			}
			return newBalancedAllocation(ctx, args, patched)
		},
	}
}
