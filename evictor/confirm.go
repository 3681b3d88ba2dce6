package evictor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/tracker"
)

// errReplaced says that an answer is about another node than the one that is known
// by now, or that it was overtaken by a suspend. It counts as a conflict.
var errReplaced = errors.New("node changed while it was read")

// confirmer makes sure that what is known of a node is not older than a few
// seconds. A watch may lag or be silently dead, and the process may have been
// frozen; what it does to pods is checked by resource version, but the taint
// stands on another object. So the node is read before pods are evicted from it,
// once for all of them (INV-3, G03, H05).
//
// An answer may be overtaken by the watch while it is on its way. It is taken in
// for the node with its UID and no other: it neither brings back a node that is
// deleted (NE-14) nor deletes one that was created anew.
type confirmer struct {
	nodes   corev1client.NodesGetter
	tracker *tracker.Tracker
	// clock dates what is first seen, local measures how old an answer is.
	clock clock.PassiveClock
	local clock.PassiveClock
	// maxAge is how old an answer may be that was asked for by others.
	maxAge time.Duration
	// patience is how old an answer may be that was waited for: with the limit of
	// maxAge, an API server that is slow would hold up every eviction.
	patience time.Duration
	flight   singleflight.Group

	mu sync.Mutex
	// read holds the last answer about each node. Entries that are too old are
	// dropped by sweep.
	read map[string]reading
}

// reading is an answer about a node.
type reading struct {
	uid types.UID
	// asked is when the request was made.
	asked instant
}

// confirm reads a node if that has not been done just now, and returns the pods
// whose fate is changed by what it found, also when there is an error.
func (c *confirmer) confirm(ctx context.Context, name string) ([]tracker.Key, error) {
	if c.fresh(name, c.maxAge) {
		return nil, nil
	}
	changed, err, _ := c.flight.Do(name, func() (any, error) { return c.load(ctx, name) })
	if err != nil {
		return nil, fmt.Errorf("confirm node: %w", err)
	}
	keys := changed.([]tracker.Key)
	if uid, _ := c.tracker.Taints(name); uid != "" && !c.fresh(name, c.patience) {
		return keys, fmt.Errorf("confirm node: %w", apierrors.NewConflict(corev1.Resource("nodes"), name, errReplaced))
	}
	return keys, nil
}

func (c *confirmer) load(ctx context.Context, name string) ([]tracker.Key, error) {
	if c.fresh(name, c.maxAge) {
		return nil, nil
	}
	uid, _ := c.tracker.Taints(name)
	asked := instantOf(c.local.Now())
	node, err := c.nodes.Nodes().Get(ctx, name, metav1.GetOptions{})
	switch classify(err) {
	case NoFailure:
	case NotFound:
		return c.gone(name, uid), nil
	case Conflict, Throttled, Denied, Invalid, Timeout, Unavailable:
		return nil, err
	}
	return c.saw(node, uid, asked), nil
}

// saw takes in a node that the API server returned to a request made at asked,
// when the node of that name was known as uid.
func (c *confirmer) saw(node *corev1.Node, uid types.UID, asked instant) []tracker.Key {
	var keys []tracker.Key
	if node.UID != uid {
		keys = c.gone(node.Name, uid)
	}
	keys = append(keys, c.tracker.RefreshNode(tracker.NodeOf(node), c.clock.Now())...)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read[node.Name] = reading{uid: node.UID, asked: asked}
	return keys
}

// gone takes in that the node known as uid does not exist any more.
func (c *confirmer) gone(name string, uid types.UID) []tracker.Key {
	c.mu.Lock()
	if c.read[name].uid == uid {
		delete(c.read, name)
	}
	c.mu.Unlock()
	return c.tracker.DeleteNode(name, uid)
}

// fresh reports whether the node that is known under name was read no longer than
// age ago.
func (c *confirmer) fresh(name string, age time.Duration) bool {
	uid, _ := c.tracker.Taints(name)
	now := instantOf(c.local.Now())
	c.mu.Lock()
	defer c.mu.Unlock()
	last, ok := c.read[name]
	return ok && last.uid == uid && within(age, last.asked, now)
}

// sweep forgets what is too old to be used.
func (c *confirmer) sweep() {
	now := instantOf(c.local.Now())
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, last := range c.read {
		if !within(c.maxAge, last.asked, now) {
			delete(c.read, name)
		}
	}
}
