package app

import "github.com/tollgate-dev/tollgate/tracker"

// listeners are the functions that a source of changes calls, in the order in which they joined.
// All of them join before the source starts, and none may block.
type listeners[T any] struct{ functions []func(T) }

func (l *listeners[T]) join(listen func(T)) { l.functions = append(l.functions, listen) }

func (l *listeners[T]) notify(change T) {
	for _, listen := range l.functions {
		listen(change)
	}
}

// changeListeners are the listeners of the changes that watches and the evictor report. They are
// made before both.
type changeListeners struct {
	pods  listeners[[]tracker.Key]
	nodes listeners[string]
	// rules are DeviceTaintRules that were created, changed or deleted, and patches the
	// ResourceSlicePatches whose rules were.
	rules   listeners[string]
	patches listeners[[]string]
	// evictingRules and evictingPatches are those because of which other pods have to leave than
	// before, or were evicted.
	evictingRules, evictingPatches listeners[[]string]
}

// PodsChanged implements the listeners of package informer.
func (c *changeListeners) PodsChanged(keys []tracker.Key) { c.pods.notify(keys) }

// NodeChanged implements a listener of package informer.
func (c *changeListeners) NodeChanged(name string) { c.nodes.notify(name) }

// RuleChanged implements a listener of package informer.
func (c *changeListeners) RuleChanged(name string) { c.rules.notify(name) }
