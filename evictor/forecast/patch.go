package forecast

import (
	"time"

	"github.com/tollgate-dev/tollgate/tracker"
)

// Patch returns what would change for pods if a ResourceSlicePatch had other taints, or
// selected other devices. The error is ErrUnread or ErrUnfollowed.
func (v *View) Patch(patch tracker.PatchedTaints, now time.Time) ([]tracker.Change, error) {
	if err := v.read(v.options.DevicesKnown); err != nil {
		return nil, err
	}
	return v.options.Tracker.IfPatch(patch, now), nil
}
