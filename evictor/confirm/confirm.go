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
	// Clock has the time of the API server, Local that of this machine.
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
	carriers map[tracker.SourceKind]carrier
	tracker  *tracker.Tracker
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
	// read holds the last answer about each object. Entries that are too old are
	// dropped by Sweep.
	read map[Object]reading
}

// New returns a Confirmer that has read nothing.
func New(o Options) *Confirmer {
	return &Confirmer{
		carriers: map[tracker.SourceKind]carrier{
			tracker.SourceNode:  newNodeCarrier(o.Tracker, o.Nodes),
			tracker.SourceSlice: newSliceCarrier(o.Tracker, o.Carriers),
			tracker.SourceRule:  newRuleCarrier(o.Tracker, o.Carriers),
		},
		tracker: o.Tracker, clock: o.Clock, local: o.Local,
		maxAge: o.MaxAge, patience: max(o.MaxAge, o.AttemptTimeout), read: map[Object]reading{},
	}
}

// Object names an object that carries taints, whatever its UID.
type Object struct {
	Kind tracker.SourceKind
	Name string
}

// ObjectOf returns the object that carries the taints of a source.
func ObjectOf(source tracker.Source) Object { return Object{Kind: source.Kind, Name: source.Name} }

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

// Confirm reads the object behind a source if that has not been done just now, as it is
// needed, and returns the pods whose fate is changed by what it found, also when there is
// an error.
func (c *Confirmer) Confirm(ctx context.Context, object Object, wanted Need) ([]tracker.Key, error) {
	if c.fresh(object, c.maxAge, wanted) {
		return nil, nil
	}
	var keys []tracker.Key
	for range 2 { // The request of another worker may have been under way already when the pod came.
		changed, err := c.join(ctx, object, wanted)
		keys = append(keys, changed...)
		switch {
		case err != nil:
			return keys, fmt.Errorf("confirm %s: %w", object.Kind, err)
		case c.known(object) == "" || c.fresh(object, c.patience, wanted):
			return keys, nil
		}
	}
	conflict := apierrors.NewConflict(c.carriers[object.Kind].resource, object.Name, errReplaced)
	return keys, fmt.Errorf("confirm %s: %w", object.Kind, conflict)
}

// join loads an object, or waits for who does so already.
func (c *Confirmer) join(ctx context.Context, object Object, wanted Need) ([]tracker.Key, error) {
	changed, err, _ := c.flight.Do(string(object.Kind)+"/"+object.Name, func() (any, error) { return c.load(ctx, object, wanted) })
	if err != nil {
		return nil, err
	}
	return changed.([]tracker.Key), nil
}

func (c *Confirmer) load(ctx context.Context, object Object, wanted Need) ([]tracker.Key, error) {
	if c.fresh(object, c.maxAge, wanted) {
		return nil, nil
	}
	uid, before := c.known(object), c.tracker.VersionOf(tracker.Source{Kind: object.Kind, Name: object.Name})
	asked := InstantOf(c.local.Now())
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
	return c.saw(Object{Kind: tracker.SourceNode, Name: node.Name}, nodeAnswer(c.tracker, node), uid, "", asked)
}

// saw takes in an object that the API server returned to a request made at asked,
// when the object of that name was known as uid and in the version before.
func (c *Confirmer) saw(object Object, found answer, uid types.UID, before string, asked Instant) []tracker.Key {
	var keys []tracker.Key
	if found.uid != uid {
		keys = c.gone(object, uid)
	}
	now := c.clock.Now()
	keys = append(keys, found.takeIn(before, now)...)
	_, took := elapsed(asked, InstantOf(c.local.Now()))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read[object] = reading{uid: found.uid, asked: asked, server: now.Add(-took)}
	return keys
}

// gone takes in that the object known as uid does not exist any more.
func (c *Confirmer) gone(object Object, uid types.UID) []tracker.Key {
	c.mu.Lock()
	if c.read[object].uid == uid {
		delete(c.read, object)
	}
	c.mu.Unlock()
	return c.carriers[object.Kind].forget(object.Name, uid)
}

// known returns the UID of the object that is known under a name, empty for none.
func (c *Confirmer) known(object Object) types.UID {
	return c.tracker.UIDOf(tracker.Source{Kind: object.Kind, Name: object.Name})
}

// fresh reports whether the object that is known under a name was read no longer
// than age ago, and as it is needed.
func (c *Confirmer) fresh(object Object, age time.Duration, wanted Need) bool {
	uid := c.known(object)
	now := InstantOf(c.local.Now())
	c.mu.Lock()
	defer c.mu.Unlock()
	last, ok := c.read[object]
	return ok && last.uid == uid && within(age, last.asked, now) && wanted.met(last)
}

// Recent reports whether the object that is known under a name was read recently enough for a
// request that is made now because of it.
func (c *Confirmer) Recent(object Object) bool { return c.fresh(object, c.patience, Need{}) }

// Len returns how many answers are remembered.
func (c *Confirmer) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.read)
}

// Sweep forgets what is too old to be used.
func (c *Confirmer) Sweep() {
	now := InstantOf(c.local.Now())
	c.mu.Lock()
	defer c.mu.Unlock()
	for object, last := range c.read {
		if !within(c.patience, last.asked, now) {
			delete(c.read, object)
		}
	}
}
