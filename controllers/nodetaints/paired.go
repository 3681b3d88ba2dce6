package nodetaints

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/controllers"
)

const (
	// pairedQueueName is the name label of the workqueue metrics.
	pairedQueueName = "tollgate-twins"

	// workers is the number of concurrent steps. Evictions wait for paired taints.
	workers = 8
)

// nodeClient reads and writes nodes at the API server.
type nodeClient interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Node, error)
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*corev1.Node, error)
}

// PairingOptions configures a PairingController. All fields are required.
type PairingOptions struct {
	// Cache holds nodes with their labels, their taints and the annotation
	// v1alpha1.AnnotationTwins.
	Cache nodes
	// Nodes reads and writes nodes.
	Nodes nodeClient
	// Policies returns the policies in force.
	Policies policies
	// Window is true in mode Window. If false, the controller adds no taint and removes
	// the paired taints that exist.
	Window bool
	// Local is the clock of this machine.
	Local clock.WithTicker
	Leads func() bool
	// Timeout bounds a step, see controllers.LoopOptions.
	Timeout  time.Duration
	Recorder recorder
	Metrics  *PairingMetrics
}

// PairingController adds and removes the paired taints of nodes.
type PairingController struct {
	options PairingOptions
	loop    *controllers.Loop[string]
}

// NewPairing returns a controller; Start starts it.
func NewPairing(options PairingOptions) *PairingController {
	c := &PairingController{options: options}
	c.loop = controllers.NewLoop(controllers.LoopOptions[string]{
		Name: pairedQueueName, Clock: options.Local, Leads: options.Leads, Timeout: options.Timeout, Workers: workers, Step: c.step,
	})
	return c
}

// Start runs the controller until ctx is done.
func (c *PairingController) Start(ctx context.Context) error {
	changed, unsubscribe := c.options.Policies.Subscribe()
	defer unsubscribe()
	handler := toolscache.ResourceEventHandlerFuncs{AddFunc: c.enqueue, UpdateFunc: func(_, obj any) { c.enqueue(obj) }}
	var background sync.WaitGroup
	c.loop.Run(ctx, func() {
		background.Go(func() { controllers.Watch(ctx, c.options.Cache, &corev1.Node{}, handler, c.options.Local) })
		background.Go(func() { c.followPolicies(ctx, changed) })
	})
	background.Wait()
	return nil
}

// enqueue queues a node that has taints to pair or an annotation.
func (c *PairingController) enqueue(obj any) {
	if node, ok := obj.(*corev1.Node); ok && mayNeedPairing(node) {
		c.loop.Add(node.Name)
	}
}

// followPolicies queues all nodes when the policies change.
func (c *PairingController) followPolicies(ctx context.Context, changed <-chan struct{}) {
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
			c.enqueue(&list.Items[i])
		}
	}
}
