package nodetaints

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/controllers"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

const (
	// queueName is the name label of the workqueue metrics.
	queueName = "tollgate-register"
	// policiesPause is how long a key waits until the policies are loaded.
	policiesPause = time.Second
)

// nodes is the part of a cache of nodes that the controllers use.
type nodes interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
	Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error
	List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error
}

// patcher writes nodes.
type patcher interface {
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*corev1.Node, error)
}

// lister lists pods.
type lister interface {
	List(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error)
}

// policies returns the policies in force, and signals changes.
type policies interface {
	Current() *policyset.Set
	Subscribe() (changed <-chan struct{}, stop func())
}

// recorder writes events. It must not block.
type recorder interface {
	Eventf(object runtime.Object, eventType, reason, format string, args ...any)
}

// RegisterOptions configures a RegisterController. All fields are required.
type RegisterOptions struct {
	// Cache holds nodes with their metadata and taints, and TaintPolicies.
	Cache nodes
	// Nodes writes nodes, and Pods lists pods, at the API server.
	Nodes patcher
	Pods  lister
	// Policies returns the policies in force.
	Policies policies
	// Limits checks taints of effect NoExecute before a node gets them; Self is the user
	// name that writes them.
	Limits limitChecker
	Self   string
	// Since returns the time since which nodes may have been created that no leader has
	// seen. Start calls it once.
	Since func() time.Time
	// Clock is the clock of the API server, Local that of this machine.
	Clock clock.PassiveClock
	Local clock.WithTicker
	Leads func() bool
	// Timeout bounds a step, see controllers.LoopOptions.
	Timeout  time.Duration
	Recorder recorder
	Metrics  *RegisterMetrics
}

// RegisterController adds registered taints to nodes that lack them.
type RegisterController struct {
	options   RegisterOptions
	loop      *controllers.Loop[string]
	newcomers newcomers
	// Taints that evict pods have a limiter of their own: nodes that a limit holds back
	// must not delay the others.
	nonEvicting, evicting nodeLimiter
	heldNodes             heldNodes
	nodeUIDs              nodeUIDs
	// since is the result of Options.Since at the last Start.
	since atomic.Pointer[time.Time]
}

// NewRegister returns a controller; Start starts it.
func NewRegister(options RegisterOptions) *RegisterController {
	c := &RegisterController{options: options, heldNodes: heldNodes{count: options.Metrics.heldNodes}}
	c.reset()
	c.loop = controllers.NewLoop(controllers.LoopOptions[string]{
		Name: queueName, Clock: options.Local, Leads: options.Leads, Timeout: options.Timeout, Workers: 2, Step: c.step,
	})
	return c
}

// reset clears the state of an earlier term of leadership.
func (c *RegisterController) reset() {
	c.newcomers.reset()
	c.nonEvicting.reset()
	c.evicting.reset()
	c.heldNodes.reset()
	c.nodeUIDs.reset()
}

// Start runs the controller until ctx is done.
func (c *RegisterController) Start(ctx context.Context) error {
	c.reset()
	defer c.heldNodes.reset() // Only the leader exports the metric.
	c.since.Store(new(c.options.Since()))
	changed, unsubscribe := c.options.Policies.Subscribe()
	defer unsubscribe()
	var background sync.WaitGroup
	c.loop.Run(ctx, func() {
		background.Go(func() { controllers.Watch(ctx, c.options.Cache, &corev1.Node{}, c, c.options.Local) })
		background.Go(func() { c.followPolicies(ctx, changed) })
	})
	background.Wait()
	return nil
}

// followPolicies queues all nodes when the policies change.
func (c *RegisterController) followPolicies(ctx context.Context, changed <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		var list corev1.NodeList
		if err := c.options.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			continue // The cache is not synced; the informer will add every node.
		}
		for i := range list.Items {
			c.loop.Add(list.Items[i].Name)
		}
	}
}

// OnAdd implements cache.ResourceEventHandler.
func (c *RegisterController) OnAdd(obj any, initial bool) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return
	}
	if since := c.since.Load(); !initial || since != nil && !node.CreationTimestamp.Time.Before(*since) {
		c.newcomers.add(node.UID)
	}
	// The step may run only after the taint was removed again.
	c.newcomers.observe(node.UID, node.Spec.Taints)
	c.loop.Add(node.Name)
}

// OnUpdate implements cache.ResourceEventHandler. A node that was recreated under its name
// while the watch was down arrives as an update too.
func (c *RegisterController) OnUpdate(old, obj any) {
	was, ok := old.(*corev1.Node)
	node, same := obj.(*corev1.Node)
	if !ok || !same {
		return
	}
	if was.UID != node.UID {
		c.remove(was.UID)
		c.newcomers.add(node.UID)
	}
	c.newcomers.observe(node.UID, node.Spec.Taints)
	c.loop.Add(node.Name)
}

// OnDelete implements cache.ResourceEventHandler.
func (c *RegisterController) OnDelete(obj any) {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	if node, ok := obj.(*corev1.Node); ok {
		c.remove(node.UID)
		c.loop.Add(node.Name) // A concurrent step may add its state again.
	}
}

func (c *RegisterController) remove(uid types.UID) {
	c.newcomers.remove(uid)
	c.clearWaiting(uid)
}
