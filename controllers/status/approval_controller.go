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

// approvalObjects is the part of a cache of approvals and nodes that the controller uses.
type approvalObjects interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
	Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error
}

// statuses writes the status of approvals.
type statuses interface {
	Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error
}

// ApprovalOptions configures an ApprovalController. All fields but Standing and Left are
// required.
type ApprovalOptions struct {
	// Cache holds approvals, and nodes with their metadata.
	Cache approvalObjects
	// Status writes the status of approvals.
	Status statuses
	// Standing returns the NoExecute taint with a key of a node or a rule, or the last one
	// of the rules of a patch. It is nil where taints are not watched; then no use of an
	// approval for a taint is seen. The component that watches rules must call
	// RuleChanged, and PatchesChanged for their patches.
	Standing func(source tracker.Source, key string) (tracker.Taint, bool)
	// Left returns the number of pods that left because of a taint with a key on an object
	// since a time; nil where evictions are not watched.
	Left func(source tracker.Source, key string, since time.Time) int
	// Clock is the clock of the API server, Local that of this machine.
	Clock clock.PassiveClock
	Local clock.WithTicker
	Leads func() bool
	// Timeout bounds a step, see controllers.LoopOptions.
	Timeout time.Duration
	Metrics *Metrics
}

// ApprovalController writes the status of approvals.
type ApprovalController struct {
	options ApprovalOptions
	loop    *controllers.Loop[string]

	mu sync.Mutex
	// states are by the UID of the approval.
	states map[types.UID]*approvalState
}

// approvalState is the state of an approval between steps.
type approvalState struct {
	name string
	spec v1alpha1.EvictionApprovalSpec
	// open is true after a step saw the approval unused.
	open bool
	// counted is true once carried is set: the number of pods in the status beyond those
	// that Left knows.
	counted bool
	carried int32
}

// NewApprovals returns a controller; Start starts it.
func NewApprovals(options ApprovalOptions) *ApprovalController {
	c := &ApprovalController{options: options, states: map[types.UID]*approvalState{}}
	c.loop = controllers.NewLoop(controllers.LoopOptions[string]{
		Name: approvalQueueName, Clock: options.Local, Leads: options.Leads, Timeout: options.Timeout, Step: c.step,
	})
	return c
}

// Start runs the controller until ctx is done.
func (c *ApprovalController) Start(ctx context.Context) error {
	c.mu.Lock()
	clear(c.states) // Some may have been deleted while another replica led.
	c.mu.Unlock()
	handlers := map[client.Object]toolscache.ResourceEventHandlerFuncs{
		&v1alpha1.EvictionApproval{}: {AddFunc: c.enqueueApproval, UpdateFunc: func(_, obj any) { c.enqueueApproval(obj) }, DeleteFunc: c.forget},
		&corev1.Node{}:               {AddFunc: c.enqueueForNode, UpdateFunc: func(_, obj any) { c.enqueueForNode(obj) }},
	}
	var background sync.WaitGroup
	c.loop.Run(ctx, func() {
		for object, handler := range handlers {
			background.Go(func() { controllers.Watch(ctx, c.options.Cache, object, handler, c.options.Local) })
		}
	})
	background.Wait()
	return nil
}

func (c *ApprovalController) enqueueApproval(obj any) {
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
		delete(c.states, approval.UID)
	}
}

func (c *ApprovalController) enqueueForNode(obj any) {
	if node, ok := obj.(*corev1.Node); ok {
		c.enqueueMatching(func(spec *v1alpha1.EvictionApprovalSpec) bool { return spec.Node == node.Name })
	}
}

// RuleChanged queues the approvals for a rule that was created, changed or deleted. It
// does not block.
func (c *ApprovalController) RuleChanged(name string) {
	c.enqueueMatching(func(spec *v1alpha1.EvictionApprovalSpec) bool { return spec.DeviceTaintRule == name })
}

// PatchesChanged queues the approvals for ResourceSlicePatches whose rules were created,
// changed or deleted. It does not block.
func (c *ApprovalController) PatchesChanged(names []string) {
	for _, name := range names {
		c.enqueueMatching(func(spec *v1alpha1.EvictionApprovalSpec) bool { return spec.ResourceSlicePatch == name })
	}
}

// enqueueMatching queues the approvals whose spec matches.
func (c *ApprovalController) enqueueMatching(it func(*v1alpha1.EvictionApprovalSpec) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.states {
		if it(&m.spec) {
			c.loop.Add(m.name)
		}
	}
}
