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

// settlement is what was found under the name of a twin when it was asked for. What is
// known of rules does not say whom they are owned by.
type settlement struct {
	// found is the rule that was there, and owner for whom the twin is to be.
	found, owner types.UID
	// ours says that it was made here, and blocked that somebody else's is in the way.
	ours, blocked bool
	// until is when it is asked for again: who changes labels and owners is not seen.
	until time.Time
}

// settled reports whether nothing is to be asked for, because the rule of that name is
// the one that was found and still does what it did.
func (c *Controller) settled(known *tracker.Rule, wanted *twin) bool {
	s, ok := c.settlements[wanted.name]
	if !ok || s.found != known.UID || s.owner != wanted.owner.UID {
		return false
	}
	return c.options.Local.Now().Before(s.until) && (s.blocked || wanted.same(known))
}

// settle takes in that a rule is as the twin is to be.
func (c *Controller) settle(stored *resourcev1.DeviceTaintRule, wanted *twin, ours bool) {
	c.settlements[wanted.name] = settlement{
		found: stored.UID, owner: wanted.owner.UID, ours: ours, until: c.options.Local.Now().Add(recheck),
	}
}

// ours reports whether a rule was made here. One that was found to be stays it while it
// does the same, though it lost its label or owner.
func (c *Controller) ours(stored *resourcev1.DeviceTaintRule, wanted *twin, same bool) bool {
	if owner, ok := OwnerOf(stored); ok {
		return owner.Kind == wanted.owner.Kind
	}
	before := c.settlements[wanted.name]
	return same && before.ours && before.found == stored.UID
}

// blocked says, once, that somebody else has the name.
func (c *Controller) blocked(ctx context.Context, stored *resourcev1.DeviceTaintRule, wanted *twin, about *corev1.ObjectReference) {
	before := c.settlements[wanted.name]
	c.settlements[wanted.name] = settlement{
		found: stored.UID, owner: wanted.owner.UID, blocked: true, until: c.options.Local.Now().Add(recheck),
	}
	if before.blocked && before.found == stored.UID && before.owner == wanted.owner.UID {
		return
	}
	c.options.Recorder.Eventf(about, corev1.EventTypeWarning, "NoSchedulePairBlocked",
		"Pods that tolerate the taint for a while can come back to the device again and again: the rule %s that keeps them away cannot be made, because there is one of that name", wanted.name)
	logr.FromContextOrDiscard(ctx).Info("cannot pair a taint of devices with NoSchedule: the name is taken", "rule", about.Name, "pair", wanted.name)
}
