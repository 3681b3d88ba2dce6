package status

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/controllers"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// queueName is the name label of the workqueue metrics.
const queueName = "tollgate-policy-status"

// informers is what is used of a cache.
type informers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// objects is what is used of a client: it reads from the cache.
type objects interface {
	Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error
	Status() client.SubResourceWriter
}

// policies hands out those in force, and says when they changed.
type policies interface {
	Current() *policyset.Set
	Subscribe() (changed <-chan struct{}, stop func())
}

// ReadyOptions are what a Controller works with. All of them are required.
type ReadyOptions struct {
	Cache  informers
	Client objects
	// Clock tells the time of the API server, Local that of this machine.
	Clock clock.PassiveClock
	Local clock.WithTicker
	Leads func() bool
	// Timeout bounds a write, see controllers.LoopOptions.
	Timeout time.Duration
	// Enabled reports whether the feature gate of a kind is on. Policies are those in force.
	Enabled  func(kind policyset.Kind) bool
	Policies policies
}

// ReadyController keeps the condition Ready of policies.
type ReadyController struct {
	options ReadyOptions
	kinds   []policyset.Kind
	loop    *controllers.Loop[key]

	mu sync.Mutex
	// said is what was last found of each policy: to compile it again because its
	// status changed would be a waste.
	said map[key]verdict
	// waiting are the policies that this replica does not judge by yet.
	waiting map[key]waiting
}

// waiting is a policy as it is to be judged by.
type waiting struct {
	uid        types.UID
	generation int64
}

// key names a policy by the position of its kind.
type key struct {
	kind int
	name string
}

// verdict is what a policy is to say of itself.
type verdict struct {
	uid       types.UID
	condition metav1.Condition
}

// NewReady returns a controller. It starts nothing: that is what Start does.
func NewReady(options ReadyOptions) *ReadyController {
	c := &ReadyController{options: options, kinds: policyset.Kinds()}
	c.loop = controllers.NewLoop(controllers.LoopOptions[key]{
		Name: queueName, Clock: options.Local, Leads: options.Leads, Timeout: options.Timeout, Workers: 2, Step: c.step,
		Describe: func(k key) string { return c.kinds[k.kind].Name + "/" + k.name },
	})
	return c
}

// Start writes until ctx is done.
func (c *ReadyController) Start(ctx context.Context) error {
	c.mu.Lock()
	c.said, c.waiting = map[key]verdict{}, map[key]waiting{}
	c.mu.Unlock()
	changed, unsubscribe := c.options.Policies.Subscribe()
	defer unsubscribe()
	var watching sync.WaitGroup
	c.loop.Run(ctx, func() {
		for i := range c.kinds {
			watching.Go(func() { c.watch(ctx, i) })
		}
		watching.Go(func() { c.follow(ctx, changed) })
	})
	watching.Wait()
	return nil
}

// watch has the policies of a kind looked at until ctx is done.
func (c *ReadyController) watch(ctx context.Context, position int) {
	add := func(obj any) {
		if name, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			c.loop.Add(key{position, name})
		}
	}
	controllers.Watch(ctx, c.options.Cache, c.kinds[position].New(), toolscache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, obj any) { add(obj) }, DeleteFunc: add,
	}, c.options.Local)
}

// follow has the policies looked at that have come into force, when some have.
func (c *ReadyController) follow(ctx context.Context, changed <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			c.loop.Add(c.arrived()...)
		}
	}
}

// arrived returns those of the waiting policies that are in force.
func (c *ReadyController) arrived() []key {
	current := c.options.Policies.Current()
	c.mu.Lock()
	defer c.mu.Unlock()
	var keys []key
	for k, w := range c.waiting {
		if current.Holds(w.uid, w.generation) {
			keys = append(keys, k)
		}
	}
	return keys
}

// inForce reports whether this replica judges by a policy. One that it does not is
// looked at again when it does.
func (c *ReadyController) inForce(k key, object client.Object) bool {
	w := waiting{uid: object.GetUID(), generation: object.GetGeneration()}
	// Before the look, so that none comes into force unnoticed.
	c.mu.Lock()
	c.waiting[k] = w
	c.mu.Unlock()
	if !c.options.Policies.Current().Holds(w.uid, w.generation) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, k)
	return true
}

// step writes the condition of one policy where it differs.
func (c *ReadyController) step(ctx context.Context, k key) (time.Duration, error) {
	kind := &c.kinds[k.kind]
	object := kind.New()
	if err := c.options.Client.Get(ctx, types.NamespacedName{Name: k.name}, object); err != nil {
		c.forget(k)
		return 0, client.IgnoreNotFound(err)
	}
	if c.options.Enabled(*kind) && !c.inForce(k, object) {
		return 0, nil
	}
	before := object.DeepCopyObject().(client.Object)
	condition := c.condition(k, object)
	condition.LastTransitionTime = metav1.NewTime(c.options.Clock.Now())
	observed, conditions := kind.Status(object)
	changed := meta.SetStatusCondition(conditions, condition)
	if !changed && *observed == object.GetGeneration() {
		return 0, nil
	}
	*observed = object.GetGeneration()
	err := c.options.Client.Status().Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("write status of %s %s: %w", kind.Name, k.name, err)
	}
	logr.FromContextOrDiscard(ctx).V(1).Info("wrote status", "kind", kind.Name, "policy", k.name, "reason", condition.Reason)
	return 0, nil
}

// condition returns what a policy is to say.
func (c *ReadyController) condition(k key, object policyset.Object) metav1.Condition {
	c.mu.Lock()
	known, ok := c.said[k]
	c.mu.Unlock()
	if ok && known.uid == object.GetUID() && known.condition.ObservedGeneration == object.GetGeneration() {
		return known.condition
	}
	kind := &c.kinds[k.kind]
	condition := readyCondition(kind, c.options.Enabled(*kind), object)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said[k] = verdict{uid: object.GetUID(), condition: condition}
	return condition
}

func (c *ReadyController) forget(k key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.said, k)
	delete(c.waiting, k)
}
