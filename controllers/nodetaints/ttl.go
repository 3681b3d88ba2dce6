package nodetaints

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/controllers"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/tracker"
)

// ttlQueueName is the name label of the workqueue metrics.
const ttlQueueName = "tollgate-ttl"

// patches writes ResourceSlicePatches.
type patches interface {
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*unstructured.Unstructured, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions, subresources ...string) error
}

// rules reads DeviceTaintRules; tracker.Tracker implements it.
type rules interface {
	Rules() []string
	Rule(name string) (tracker.Rule, bool)
}

// deleter deletes a rule with the UID and resourceVersion that were read. Paired reports
// whether the rule is the paired rule of another rule or of a published taint that still
// exists.
type deleter interface {
	Paired(ctx context.Context, current *policyset.Set, rule *tracker.Rule) (bool, error)
	DeleteRule(ctx context.Context, rule *tracker.Rule) error
}

// TTLOptions configures a TTLController. All fields are required, except Patches, Rules
// and Deleter.
type TTLOptions struct {
	// Cache holds nodes with their metadata and taints, and ResourceSlicePatches.
	Cache nodes
	// Nodes writes nodes.
	Nodes patcher
	// Patches writes ResourceSlicePatches; nil if their feature gate is off.
	Patches patches
	// Rules reads DeviceTaintRules, and Deleter deletes them; nil where rules are not
	// watched. The component that updates Rules must call RuleChanged.
	Rules   rules
	Deleter deleter
	// Policies returns the policies in force.
	Policies policies
	// Clock is the clock of the API server, Local that of this machine.
	Clock clock.PassiveClock
	Local clock.WithTicker
	Leads func() bool
	// Timeout bounds a step, see controllers.LoopOptions.
	Timeout  time.Duration
	Recorder recorder
	Metrics  *TTLMetrics
}

// TTLController removes expired taints.
type TTLController struct {
	options TTLOptions
	loop    *controllers.Loop[key]
}

// key names a node, a rule or a ResourceSlicePatch; source is a value of the label source.
type key struct{ source, name string }

func (k key) describe() string {
	return map[string]string{sourceNode: "Node", sourceRule: "DeviceTaintRule", sourcePatch: kindPatch}[k.source] + "/" + k.name
}

// NewTTL returns a controller; Start starts it.
func NewTTL(options TTLOptions) *TTLController {
	c := &TTLController{options: options}
	c.loop = controllers.NewLoop(controllers.LoopOptions[key]{
		Name: ttlQueueName, Clock: options.Local, Leads: options.Leads, Timeout: options.Timeout, Workers: 2, Step: c.step,
		Describe: key.describe,
	})
	return c
}

// Start runs the controller until ctx is done.
func (c *TTLController) Start(ctx context.Context) error {
	changed, unsubscribe := c.options.Policies.Subscribe()
	defer unsubscribe()
	add := func(obj any) {
		switch object := obj.(type) {
		case *corev1.Node:
			c.loop.Add(key{sourceNode, object.Name})
		case *v1alpha1.ResourceSlicePatch:
			c.loop.Add(key{sourcePatch, object.Name})
		}
	}
	handler := toolscache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, obj any) { add(obj) }}
	var background sync.WaitGroup
	c.loop.Run(ctx, func() {
		c.addRules()
		background.Go(func() { controllers.Watch(ctx, c.options.Cache, &corev1.Node{}, handler, c.options.Local) })
		if c.options.Patches != nil {
			background.Go(func() {
				controllers.Watch(ctx, c.options.Cache, &v1alpha1.ResourceSlicePatch{}, handler, c.options.Local)
			})
		}
		background.Go(func() { c.followPolicies(ctx, changed) })
	})
	background.Wait()
	return nil
}

// RuleChanged queues a rule that was created or changed. It does not block.
func (c *TTLController) RuleChanged(name string) { c.loop.Add(key{sourceRule, name}) }

// followPolicies queues all nodes, rules and patches when the policies change.
func (c *TTLController) followPolicies(ctx context.Context, changed <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		c.addRules()
		c.addPatches(ctx)
		var list corev1.NodeList
		if err := c.options.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			continue // The cache is not synced; the informer will add every node.
		}
		for i := range list.Items {
			c.loop.Add(key{sourceNode, list.Items[i].Name})
		}
	}
}

func (c *TTLController) addPatches(ctx context.Context) {
	var list v1alpha1.ResourceSlicePatchList
	if c.options.Patches == nil || c.options.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy) != nil {
		return // The informer will add every patch, as for nodes.
	}
	for i := range list.Items {
		c.loop.Add(key{sourcePatch, list.Items[i].Name})
	}
}

func (c *TTLController) addRules() {
	if c.options.Rules == nil {
		return
	}
	for _, name := range c.options.Rules.Rules() {
		c.RuleChanged(name)
	}
}
