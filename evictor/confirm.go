package evictor

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/tracker"
)

// confirmer makes sure that what is known of a node is not older than a few
// seconds. A watch may lag or be silently dead, and the process may have been
// frozen; what it does to pods is checked by resource version, but the taint
// stands on another object. So the node is read before pods are evicted from it,
// once for all of them (INV-3, G03, H05).
type confirmer struct {
	nodes   corev1client.NodesGetter
	tracker *tracker.Tracker
	clock   clock.PassiveClock
	// maxAge is how old an answer may be.
	maxAge time.Duration
	flight singleflight.Group

	mu sync.Mutex
	// read holds when each node was last asked for. Entries that are too old are
	// dropped by sweep.
	read map[string]time.Time
}

// confirm reads a node if that has not been done just now, and returns the pods
// whose fate is changed by what it found.
func (c *confirmer) confirm(ctx context.Context, name string) ([]tracker.Key, error) {
	if c.fresh(name) {
		return nil, nil
	}
	keys, err, _ := c.flight.Do(name, func() (any, error) { return c.load(ctx, name) })
	if err != nil {
		return nil, fmt.Errorf("confirm node: %w", err)
	}
	return keys.([]tracker.Key), nil
}

func (c *confirmer) load(ctx context.Context, name string) ([]tracker.Key, error) {
	if c.fresh(name) {
		return nil, nil
	}
	asked := c.clock.Now()
	node, err := c.nodes.Nodes().Get(ctx, name, metav1.GetOptions{})
	switch classify(err) {
	case NoFailure:
	case NotFound:
		return c.tracker.DeleteNode(name, ""), nil
	case Conflict, Throttled, Denied, Invalid, Timeout, Unavailable:
		return nil, err
	}
	return c.saw(node, asked), nil
}

// saw takes in a node that the API server returned to a request made at asked.
func (c *confirmer) saw(node *corev1.Node, asked time.Time) []tracker.Key {
	keys := c.tracker.SetNode(tracker.NodeOf(node), asked)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read[node.Name] = asked
	return keys
}

func (c *confirmer) fresh(name string) bool {
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	asked, ok := c.read[name]
	age := now.Sub(asked)
	return ok && age >= 0 && age <= c.maxAge
}

// sweep forgets what is too old to be used.
func (c *confirmer) sweep() {
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, asked := range c.read {
		if now.Sub(asked) > c.maxAge {
			delete(c.read, name)
		}
	}
}
