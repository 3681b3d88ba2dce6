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
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/tracker"
)

// errReplaced is the error for an object that was recreated during the request, or whose answer is
// outdated because the machine was suspended. It counts as a conflict.
var errReplaced = errors.New("object changed while it was read")

// confirmer reads objects that carry taints from the API server, unless the last answer is a few
// seconds old at most. A watch may lag or have died silently, and the process may have been
// suspended. The preconditions of a request protect the pod, but the taint is on another object. So
// that object is read before pods are evicted because of it, once for all of them (INV-3, G03,
// H05).
//
// The watch may be faster than an answer. An answer updates only the object with its UID: it does
// not restore a deleted object (NE-14), and does not delete a recreated one (G14).
type confirmer struct {
	options  *Options
	carriers map[tracker.SourceKind]carrier
	// patience is the maximum age of an answer to a request of the same attempt. With MaxAge
	// instead, a slow API server would delay every eviction.
	patience time.Duration
	flight   singleflight.Group

	mu sync.Mutex
	// read has the last answer about each object, by kind and name. Sweep removes old ones.
	read map[tracker.Source]reading
}

func newConfirmer(o *Options) *confirmer {
	return &confirmer{options: o, carriers: carriersOf(o), patience: max(o.MaxAge, o.AttemptTimeout), read: map[tracker.Source]reading{}}
}

// reading is an answer about an object.
type reading struct {
	uid types.UID
	// asked is the time of the request, and server the same time by the clock of the API server.
	asked  instant
	server time.Time
}

// freshness is how new an answer about an object has to be for a pod.
type freshness struct {
	// Bound is when the pod was bound. An older answer does not show whether the object had the
	// taint then (G03). The actual time is up to a second later.
	Bound time.Time
	// Since is when the pod was first decided about. An answer to a later request is new enough,
	// whatever the clock of the API server says.
	Since time.Time
}

// Confirm reads an object, which is named without its UID, unless the last answer is new enough. It
// returns the pods that the answer concerns, also with an error.
func (c *confirmer) Confirm(ctx context.Context, object tracker.Source, wanted freshness) ([]tracker.Key, error) {
	if c.fresh(object, c.options.MaxAge, wanted) {
		return nil, nil
	}
	var keys []tracker.Key
	for range 2 { // The shared request of another worker may have begun before the pod was bound.
		changed, err, _ := c.flight.Do(string(object.Kind)+"/"+object.Name, func() (any, error) { return c.load(ctx, object, wanted) })
		keys = append(keys, changed.([]tracker.Key)...)
		switch {
		case err != nil:
			return keys, fmt.Errorf("confirm %s: %w", object.Kind, err)
		case c.options.Tracker.UIDOf(object) == "" || c.fresh(object, c.patience, wanted):
			return keys, nil
		}
	}
	conflict := apierrors.NewConflict(c.carriers[object.Kind].resource, object.Name, errReplaced)
	return keys, fmt.Errorf("confirm %s: %w", object.Kind, conflict)
}

func (c *confirmer) load(ctx context.Context, object tracker.Source, wanted freshness) ([]tracker.Key, error) {
	if c.fresh(object, c.options.MaxAge, wanted) {
		return nil, nil
	}
	uid, before := c.options.Tracker.UIDOf(object), c.options.Tracker.VersionOf(object)
	asked := instantOf(c.options.Local.Now())
	found, err := c.carriers[object.Kind].read(ctx, object.Name)
	if act.Classify(err) == act.NotFound { // A proxy may answer a single 404.
		found, err = c.carriers[object.Kind].read(ctx, object.Name)
	}
	switch {
	case act.Classify(err) == act.NotFound:
		return c.gone(object, uid), nil
	case err != nil:
		return nil, err
	}
	return c.saw(object, found, uid, before, asked), nil
}

// SawNode updates the tracker with a node that the API server returned. asked is the time of the
// request, and uid the UID that the tracker had for the name then. It returns the pods that the node
// concerns.
func (c *confirmer) SawNode(node *corev1.Node, uid types.UID, asked instant) []tracker.Key {
	return c.saw(tracker.Source{Kind: tracker.SourceNode, Name: node.Name}, nodeAnswer(c.options.Tracker, node), uid, "", asked)
}

// saw updates the tracker with an object that the API server returned. asked is the time of the
// request; uid and before are the UID and the version that the tracker had for the name then.
func (c *confirmer) saw(object tracker.Source, found answer, uid types.UID, before string, asked instant) []tracker.Key {
	var keys []tracker.Key
	if found.uid != uid {
		keys = c.gone(object, uid)
	}
	now := c.options.Clock.Now()
	keys = append(keys, found.refresh(before, now)...)
	_, took := elapsed(asked, instantOf(c.options.Local.Now()))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read[object] = reading{uid: found.uid, asked: asked, server: now.Add(-took)}
	return keys
}

// gone removes an object with a UID from the tracker.
func (c *confirmer) gone(object tracker.Source, uid types.UID) []tracker.Key {
	c.mu.Lock()
	if c.read[object].uid == uid {
		delete(c.read, object)
	}
	c.mu.Unlock()
	return c.carriers[object.Kind].forget(object.Name, uid)
}

// fresh reports whether the tracked object with a name was read at most age ago, and late enough for
// a need.
func (c *confirmer) fresh(object tracker.Source, age time.Duration, wanted freshness) bool {
	uid := c.options.Tracker.UIDOf(object)
	now := instantOf(c.options.Local.Now())
	c.mu.Lock()
	defer c.mu.Unlock()
	last, ok := c.read[object]
	return ok && last.uid == uid && within(age, last.asked, now) &&
		(!last.asked.monotonic.Before(wanted.Since) || !last.server.Before(wanted.Bound.Add(time.Second)))
}

// Recent reports whether the tracked object with a name was read recently enough for a request
// because of it now.
func (c *confirmer) Recent(object tracker.Source) bool {
	return c.fresh(object, c.patience, freshness{})
}

// Sweep removes answers that are too old to be used.
func (c *confirmer) Sweep() {
	now := instantOf(c.options.Local.Now())
	c.mu.Lock()
	defer c.mu.Unlock()
	for object, last := range c.read {
		if !within(c.patience, last.asked, now) {
			delete(c.read, object)
		}
	}
}
