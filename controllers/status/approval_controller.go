package status

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/controllers"
	"github.com/tollgate-dev/tollgate/tracker"
)

// approvalQueueName is the name label of the workqueue metrics.
const approvalQueueName = "tollgate-approvals"

// approvalObjects is what is used of a cache of approvals and nodes.
type approvalObjects interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
	Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error
}

// statuses writes the status of approvals.
type statuses interface {
	Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error
}

// ApprovalOptions are what a Controller works with. All but Standing and Left are required.
type ApprovalOptions struct {
	// Cache holds approvals, and nodes with their metadata.
	Cache approvalObjects
	// Status writes the status of approvals.
	Status statuses
	// Standing returns the NoExecute taint with a key that a node or a rule has, or the
	// last of the rules of a patch; nil where taints are not followed, and no limit can be looked at. Who knows of a
	// change to a rule calls RuleChanged, and PatchesChanged for the patch of one.
	Standing func(source tracker.Source, key string) (tracker.Taint, bool)
	// Left returns how many pods have left because of a taint with a key on an object
	// since a time; nil where evictions are not followed.
	Left func(source tracker.Source, key string, since time.Time) int
	// Clock tells the time of the API server, Local that of this machine.
	Clock clock.PassiveClock
	Local clock.WithTicker
	Leads func() bool
	// Timeout bounds a step, see controllers.LoopOptions.
	Timeout time.Duration
	Metrics *Metrics
}

// ApprovalController keeps the status of approvals.
type ApprovalController struct {
	options ApprovalOptions
	loop    *controllers.Loop[string]

	mu sync.Mutex
	// memories are what is remembered of approvals.
	memories map[types.UID]*memory
}

// memory is what is remembered of an approval.
type memory struct {
	name string
	spec v1alpha1.EvictionApprovalSpec
	// open is true once the approval was seen before it was used.
	open bool
	// counted is true once carried is known: how many pods had gone that nobody knows of
	// any more but by the status.
	counted bool
	carried int32
}

// NewApprovals returns a controller. It starts nothing: that is what Start does.
func NewApprovals(options ApprovalOptions) *ApprovalController {
	c := &ApprovalController{options: options, memories: map[types.UID]*memory{}}
	c.loop = controllers.NewLoop(controllers.LoopOptions[string]{
		Name: approvalQueueName, Clock: options.Local, Leads: options.Leads, Timeout: options.Timeout, Step: c.step,
	})
	return c
}

// Start works until ctx is done.
func (c *ApprovalController) Start(ctx context.Context) error {
	c.mu.Lock()
	clear(c.memories) // Some may have been deleted while another replica led.
	c.mu.Unlock()
	handlers := map[client.Object]toolscache.ResourceEventHandlerFuncs{
		&v1alpha1.EvictionApproval{}: {AddFunc: c.approval, UpdateFunc: func(_, obj any) { c.approval(obj) }, DeleteFunc: c.forget},
		&corev1.Node{}:               {AddFunc: c.node, UpdateFunc: func(_, obj any) { c.node(obj) }},
	}
	var following sync.WaitGroup
	c.loop.Run(ctx, func() {
		for object, handler := range handlers {
			following.Go(func() { controllers.Watch(ctx, c.options.Cache, object, handler, c.options.Local) })
		}
	})
	following.Wait()
	return nil
}

func (c *ApprovalController) approval(obj any) {
	if approval, ok := obj.(*v1alpha1.EvictionApproval); ok {
		c.loop.Add(approval.Name)
	}
}

func (c *ApprovalController) forget(obj any) {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	if approval, ok := obj.(*v1alpha1.EvictionApproval); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.memories, approval.UID)
	}
}

func (c *ApprovalController) node(obj any) {
	if node, ok := obj.(*corev1.Node); ok {
		c.naming(func(spec *v1alpha1.EvictionApprovalSpec) bool { return spec.Node == node.Name })
	}
}

// RuleChanged names a rule that was created, changed or deleted. It does not block.
func (c *ApprovalController) RuleChanged(name string) {
	c.naming(func(spec *v1alpha1.EvictionApprovalSpec) bool { return spec.DeviceTaintRule == name })
}

// PatchesChanged names ResourceSlicePatches whose rules were created, changed or deleted.
// It does not block.
func (c *ApprovalController) PatchesChanged(names []string) {
	for _, name := range names {
		c.naming(func(spec *v1alpha1.EvictionApprovalSpec) bool { return spec.ResourceSlicePatch == name })
	}
}

// naming has the approvals looked at that name an object.
func (c *ApprovalController) naming(it func(*v1alpha1.EvictionApprovalSpec) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.memories {
		if it(&m.spec) {
			c.loop.Add(m.name)
		}
	}
}
