package rulestatus

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
)

// remember returns the memory of a rule. A rule that was recreated under its name gets a
// new one (DE-75).
func (c *Controller) remember(rule *tracker.Rule, now moment) *memory {
	known, former := c.remembered(rule.Name)
	if known != nil && known.uid == rule.UID {
		known.advance(rule.Generation, now)
		return known
	}
	if former != nil && former.uid != rule.UID {
		former = nil
	}
	fresh := recall(rule, former, c.options.Evicted(rule.UID), now)
	c.replace(rule.Name, fresh)
	return fresh
}

// forget removes the state of a deleted rule.
func (c *Controller) forget(name string) {
	c.backoff.Forget(name)
	c.replace(name, nil)
}

func (c *Controller) remembered(name string) (known, former *memory) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.memories[name], c.former[name]
}

// replace replaces all state of a name by a memory, nil for none. It drops the counts of
// earlier rules of that name.
func (c *Controller) replace(name string, by *memory) {
	known, former := c.remembered(name)
	c.mu.Lock()
	delete(c.former, name)
	if by == nil {
		delete(c.memories, name)
	} else {
		c.memories[name] = by
	}
	c.mu.Unlock()
	gone := map[types.UID]struct{}{}
	for _, m := range []*memory{known, former} {
		if m != nil && (by == nil || m.uid != by.uid) {
			gone[m.uid] = struct{}{}
		}
	}
	for uid := range gone {
		c.options.Forget(uid)
	}
}
