package devicetaints

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
)

// readResult is the result of the last read of a paired rule from the API server. The
// tracker does not have the owners of rules.
type readResult struct {
	// found is the UID of the rule that was read, and owner that of the wanted owner.
	found, owner types.UID
	// managed is true for a rule of this controller, and blocked for a conflicting rule of
	// another writer.
	managed, blocked bool
	// until is the time of the next read: the tracker misses changes of labels and owners.
	until time.Time
}

// upToDate reports whether no read is needed, because the tracked rule is the one that was
// read and still matches, or is blocked.
func (c *Controller) upToDate(tracked *tracker.Rule, wanted *pairedRule) bool {
	s, ok := c.readResults[wanted.name]
	if !ok || s.found != tracked.UID || s.owner != wanted.owner.UID {
		return false
	}
	return c.options.Local.Now().Before(s.until) && (s.blocked || wanted.matches(tracked))
}

// recordMatch records that the stored rule matches the wanted one.
func (c *Controller) recordMatch(stored *resourcev1.DeviceTaintRule, wanted *pairedRule, managed bool) {
	c.readResults[wanted.name] = readResult{
		found: stored.UID, owner: wanted.owner.UID, managed: managed, until: c.options.Local.Now().Add(recheck),
	}
}

// isManaged reports whether this controller created a rule. A rule that was managed stays
// so while it matches, even without its label or owner.
func (c *Controller) isManaged(stored *resourcev1.DeviceTaintRule, wanted *pairedRule, matches bool) bool {
	if owner, ok := OwnerOf(stored); ok {
		return owner.Kind == wanted.owner.Kind
	}
	before := c.readResults[wanted.name]
	return matches && before.managed && before.found == stored.UID
}

// reportConflict reports, once, that a rule of another writer has the name.
func (c *Controller) reportConflict(ctx context.Context, stored *resourcev1.DeviceTaintRule, wanted *pairedRule, about *corev1.ObjectReference) {
	before := c.readResults[wanted.name]
	c.readResults[wanted.name] = readResult{
		found: stored.UID, owner: wanted.owner.UID, blocked: true, until: c.options.Local.Now().Add(recheck),
	}
	if before.blocked && before.found == stored.UID && before.owner == wanted.owner.UID {
		return
	}
	c.options.Recorder.Eventf(about, corev1.EventTypeWarning, "NoSchedulePairBlocked",
		"Pods that tolerate the taint for a while can come back to the device again and again: the rule %s that keeps them away cannot be made, because there is one of that name", wanted.name)
	logr.FromContextOrDiscard(ctx).Info("cannot pair a taint of devices with NoSchedule: the name is taken", "rule", about.Name, "pair", wanted.name)
}
