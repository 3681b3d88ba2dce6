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
	// policiesPause is how long nodes wait for the policies to be read.
	policiesPause = time.Second
)

// nodes is what is used of a cache of nodes.
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

// policies hands out those in force, and says when they changed.
type policies interface {
	Current() *policyset.Set
	Subscribe() (changed <-chan struct{}, stop func())
}

// recorder writes events. It must not block.
type recorder interface {
	Eventf(object runtime.Object, eventType, reason, format string, args ...any)
}

// RegisterOptions are what a Controller works with. All of them are required.
type RegisterOptions struct {
	// Cache holds nodes with their metadata and taints, and TaintPolicies.
	Cache nodes
	// Nodes writes nodes, and Pods lists pods, at the API server.
	Nodes patcher
	Pods  lister
	// Policies are those in force.
	Policies policies
	// Limits are asked before a node is given a taint of effect NoExecute, which is
	// written as the user Self.
	Limits judge
	Self   string
	// Since returns since when nodes may have been created that no leader has seen. It
	// is asked when Start begins.
	Since func() time.Time
	// Clock tells the time of the API server, Local that of this machine.
	Clock clock.PassiveClock
	Local clock.WithTicker
	Leads func() bool
	// Timeout bounds a step, see controllers.LoopOptions.
	Timeout  time.Duration
	Recorder recorder
	Metrics  *RegisterMetrics
}

// RegisterController gives nodes the taints that they lack.
type RegisterController struct {
	options   RegisterOptions
	loop      *controllers.Loop[string]
	newcomers newcomers
	// calm are the turns of nodes that are given taints which evict nobody, and evicting
	// those of the others: what a limit holds back must not keep the former waiting.
	calm, evicting turns
	held           held
	names          names
	// since is that of Options, as of the last start.
	since atomic.Pointer[time.Time]
}

// NewRegister returns a controller. It starts nothing: that is what Start does.
func NewRegister(options RegisterOptions) *RegisterController {
	c := &RegisterController{options: options, held: held{count: options.Metrics.held}}
	c.reset()
	c.loop = controllers.NewLoop(controllers.LoopOptions[string]{
		Name: queueName, Clock: options.Local, Leads: options.Leads, Timeout: options.Timeout, Workers: 2, Step: c.step,
	})
	return c
}

// reset forgets what was before.
func (c *RegisterController) reset() {
	c.newcomers.reset()
	c.calm.reset()
	c.evicting.reset()
	c.held.reset()
	c.names.reset()
}

// Start works until ctx is done.
func (c *RegisterController) Start(ctx context.Context) error {
	c.reset()
	defer c.held.reset() // What is held is for the leader to say.
	c.since.Store(new(c.options.Since()))
	changed, unsubscribe := c.options.Policies.Subscribe()
	defer unsubscribe()
	var following sync.WaitGroup
	c.loop.Run(ctx, func() {
		following.Go(func() { controllers.Watch(ctx, c.options.Cache, &corev1.Node{}, c, c.options.Local) })
		following.Go(func() { c.follow(ctx, changed) })
	})
	following.Wait()
	return nil
}

// follow has all nodes looked at when the policies change.
func (c *RegisterController) follow(ctx context.Context, changed <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		var list corev1.NodeList
		if err := c.options.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			continue // It has not been synced; every node is still to be announced.
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
		c.newcomers.welcome(node.UID)
	}
	// Here and not in the step, which may come when the taint is off again.
	c.newcomers.see(node.UID, node.Spec.Taints)
	c.loop.Add(node.Name)
}

// OnUpdate implements cache.ResourceEventHandler. A node that was replaced under its
// name while the watch was away comes as an update too.
func (c *RegisterController) OnUpdate(old, obj any) {
	was, ok := old.(*corev1.Node)
	node, same := obj.(*corev1.Node)
	if !ok || !same {
		return
	}
	if was.UID != node.UID {
		c.leave(was.UID)
		c.newcomers.welcome(node.UID)
	}
	c.newcomers.see(node.UID, node.Spec.Taints)
	c.loop.Add(node.Name)
}

// OnDelete implements cache.ResourceEventHandler.
func (c *RegisterController) OnDelete(obj any) {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	if node, ok := obj.(*corev1.Node); ok {
		c.leave(node.UID)
		c.loop.Add(node.Name) // A step that is under way may take it in again.
	}
}

func (c *RegisterController) leave(uid types.UID) {
	c.newcomers.leave(uid)
	c.satisfied(uid)
}
