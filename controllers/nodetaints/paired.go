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

	// workers is how many nodes are written at once: evictions wait for it.
	workers = 8
)

// nodeClient reads and writes nodes at the API server.
type nodeClient interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Node, error)
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*corev1.Node, error)
}

// PairingOptions are what a Controller works with. All are required.
type PairingOptions struct {
	// Cache holds nodes with their labels, their taints and the annotation
	// v1alpha1.AnnotationTwins.
	Cache nodes
	// Nodes reads and writes nodes.
	Nodes nodeClient
	// Policies are those in force.
	Policies policies
	// Window says that Tollgate is in mode Window. If not, nothing is added, and what
	// was added before is removed.
	Window bool
	// Local is the clock of this machine.
	Local clock.WithTicker
	Leads func() bool
	// Timeout bounds a step, see controllers.LoopOptions.
	Timeout  time.Duration
	Recorder recorder
	Metrics  *PairingMetrics
}

// PairingController adds and removes twins of the taints of nodes.
type PairingController struct {
	options PairingOptions
	loop    *controllers.Loop[string]
}

// NewPairing returns a controller. It starts nothing: that is what Start does.
func NewPairing(options PairingOptions) *PairingController {
	c := &PairingController{options: options}
	c.loop = controllers.NewLoop(controllers.LoopOptions[string]{
		Name: pairedQueueName, Clock: options.Local, Leads: options.Leads, Timeout: options.Timeout, Workers: workers, Step: c.step,
	})
	return c
}

// Start works until ctx is done.
func (c *PairingController) Start(ctx context.Context) error {
	changed, unsubscribe := c.options.Policies.Subscribe()
	defer unsubscribe()
	handler := toolscache.ResourceEventHandlerFuncs{AddFunc: c.see, UpdateFunc: func(_, obj any) { c.see(obj) }}
	var following sync.WaitGroup
	c.loop.Run(ctx, func() {
		following.Go(func() { controllers.Watch(ctx, c.options.Cache, &corev1.Node{}, handler, c.options.Local) })
		following.Go(func() { c.follow(ctx, changed) })
	})
	following.Wait()
	return nil
}

// see has a node looked at, if there can be anything to do.
func (c *PairingController) see(obj any) {
	if node, ok := obj.(*corev1.Node); ok && concerns(node) {
		c.loop.Add(node.Name)
	}
}

// follow has all nodes looked at when the policies change.
func (c *PairingController) follow(ctx context.Context, changed <-chan struct{}) {
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
			c.see(&list.Items[i])
		}
	}
}
