package confirm

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
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/tracker"
)

// errReplaced means that an answer is about another object than the one that is
// known by now, or that it was overtaken by a suspend. It counts as a conflict.
var errReplaced = errors.New("object changed while it was read")

// Options configure a Confirmer.
type Options struct {
	Tracker *tracker.Tracker
	Nodes   corev1client.NodesGetter
	// Carriers reads ResourceSlices and DeviceTaintRules.
	Carriers Carriers
	// Clock has the time of the API server and dates what is first seen. Local is the clock of this
	// machine and measures how old an answer is.
	Clock, Local clock.PassiveClock
	// MaxAge is how old the last answer about an object may be when an attempt to evict a pod
	// begins, AttemptTimeout how long an attempt may take.
	MaxAge, AttemptTimeout time.Duration
}

// Confirmer makes sure that what is known of an object that carries taints is not
// older than a few seconds. A watch may lag or be silently dead, and the process
// may have been frozen; what it does to pods is checked by resource version, but
// the taint stands on another object. So that one is read before pods are evicted
// because of it, once for all of them (INV-3, G03, H05).
//
// An answer may be overtaken by the watch while it is on its way. It is taken in
// for the object with its UID and no other: it neither brings back one that is
// deleted (NE-14) nor deletes one that was created anew (G14).
type Confirmer struct {
	options  Options
	carriers map[tracker.SourceKind]carrier
	// patience is how old an answer may be that was waited for: with the limit of
	// MaxAge, an API server that is slow would hold up every eviction.
	patience time.Duration
	flight   singleflight.Group

	mu sync.Mutex
	// read holds the last answer about each object, by its kind and name. Entries that are too old are
	// dropped by Sweep.
	read map[tracker.Source]reading
}

// New returns a Confirmer that has read nothing.
func New(o Options) *Confirmer {
	return &Confirmer{options: o, carriers: carriersOf(o), patience: max(o.MaxAge, o.AttemptTimeout), read: map[tracker.Source]reading{}}
}

// reading is an answer about an object.
type reading struct {
	uid types.UID
	// asked is when the request was made, and server what the API server's clock said
	// then.
	asked  Instant
	server time.Time
}

// Need is what is asked of an answer about an object on behalf of a pod.
type Need struct {
	// Bound is when the pod came. An answer from before says nothing of whether it came
	// to an object that was tainted (G03). It stands for an instant up to a second later.
	Bound time.Time
	// Since is when the pod was first decided about: an answer that was asked for after
	// that is good whatever the API server's clock says.
	Since time.Time
}

// met reports whether an answer is as new as is needed.
func (n Need) met(by reading) bool {
	return !by.asked.monotonic.Before(n.Since) || !by.server.Before(n.Bound.Add(time.Second))
}

// Confirm reads an object, which is named without its UID, if that has not been done just now, as it is
// needed. It returns the pods whose fate is changed by what it found, also when there is
// an error.
func (c *Confirmer) Confirm(ctx context.Context, object tracker.Source, wanted Need) ([]tracker.Key, error) {
	if c.fresh(object, c.options.MaxAge, wanted) {
		return nil, nil
	}
	var keys []tracker.Key
	for range 2 { // The request of another worker may have been under way already when the pod came.
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

func (c *Confirmer) load(ctx context.Context, object tracker.Source, wanted Need) ([]tracker.Key, error) {
	if c.fresh(object, c.options.MaxAge, wanted) {
		return nil, nil
	}
	uid, before := c.options.Tracker.UIDOf(object), c.options.Tracker.VersionOf(object)
	asked := InstantOf(c.options.Local.Now())
	found, err := c.carriers[object.Kind].read(ctx, object.Name)
	if act.Classify(err) == act.NotFound { // Who answers for the API server may be wrong once.
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

// SawNode updates the tracker with a node that the API server returned to a request made at asked,
// when the node of that name was known as uid. It returns the pods that this may concern.
func (c *Confirmer) SawNode(node *corev1.Node, uid types.UID, asked Instant) []tracker.Key {
	return c.saw(tracker.Source{Kind: tracker.SourceNode, Name: node.Name}, nodeAnswer(c.options.Tracker, node), uid, "", asked)
}

// saw takes in an object that the API server returned to a request made at asked,
// when the object of that name was known as uid and in the version before.
func (c *Confirmer) saw(object tracker.Source, found answer, uid types.UID, before string, asked Instant) []tracker.Key {
	var keys []tracker.Key
	if found.uid != uid {
		keys = c.gone(object, uid)
	}
	now := c.options.Clock.Now()
	keys = append(keys, found.takeIn(before, now)...)
	_, took := elapsed(asked, InstantOf(c.options.Local.Now()))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read[object] = reading{uid: found.uid, asked: asked, server: now.Add(-took)}
	return keys
}

// gone takes in that the object known as uid does not exist any more.
func (c *Confirmer) gone(object tracker.Source, uid types.UID) []tracker.Key {
	c.mu.Lock()
	if c.read[object].uid == uid {
		delete(c.read, object)
	}
	c.mu.Unlock()
	return c.carriers[object.Kind].forget(object.Name, uid)
}

// fresh reports whether the object that is known under a name was read no longer
// than age ago, and as it is needed.
func (c *Confirmer) fresh(object tracker.Source, age time.Duration, wanted Need) bool {
	uid := c.options.Tracker.UIDOf(object)
	now := InstantOf(c.options.Local.Now())
	c.mu.Lock()
	defer c.mu.Unlock()
	last, ok := c.read[object]
	return ok && last.uid == uid && within(age, last.asked, now) && wanted.met(last)
}

// Recent reports whether the object that is known under a name was read recently enough for a
// request that is made now because of it.
func (c *Confirmer) Recent(object tracker.Source) bool { return c.fresh(object, c.patience, Need{}) }

// Len returns how many answers are remembered.
func (c *Confirmer) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.read)
}

// Sweep forgets what is too old to be used.
func (c *Confirmer) Sweep() {
	now := InstantOf(c.options.Local.Now())
	c.mu.Lock()
	defer c.mu.Unlock()
	for object, last := range c.read {
		if !within(c.patience, last.asked, now) {
			delete(c.read, object)
		}
	}
}
