package preview

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// UnpublishedError means that the devices do not exist.
type UnpublishedError struct {
	// Devices are the requested devices, Instead describes existing ones.
	Devices, Instead string
}

// Error implements error.
func (e *UnpublishedError) Error() string {
	return fmt.Sprintf("device %q: no ResourceSlice publishes such a device; %s", e.Devices, e.Instead)
}

// Published returns an UnpublishedError if no ResourceSlice publishes a device that the target
// selects. It returns nil where ResourceSlices could not be read.
func (t *Teller) Published(ctx context.Context, target *Target) error {
	if t.cluster.Unread("resourceslices") {
		return nil
	}
	if target.Conditional() {
		patch := &v1alpha1.ResourceSlicePatch{}
		patch.Name, patch.Spec.Devices.Filter = unnamed, target.Filter()
		ids, err := t.cluster.Selected(ctx, patch)
		if err != nil {
			return &UnforetoldError{err}
		}
		if len(ids) > 0 {
			return nil
		}
	} else if len(t.published(target.Driver, target.Pool, target.Device)) > 0 {
		return nil
	}
	return &UnpublishedError{Devices: target.String(), Instead: t.publishedInstead(target)}
}

// published returns the published devices with these names; an empty name matches all.
func (t *Teller) published(driver, pool, name string) []device.ID {
	target := Target{Driver: driver, Pool: pool, Device: name}
	selector, _ := device.SelectorOf(target.DeviceSelector())
	return t.cluster.Tracker.Devices(selector)
}

// publishedInstead describes existing devices: those of the target's pool, else the pools of its
// driver, else the drivers.
func (t *Teller) publishedInstead(target *Target) string {
	if target.Driver != "" && target.Pool != "" && target.Device != "" {
		if ids := t.published(target.Driver, target.Pool, ""); len(ids) > 0 {
			return listed(fmt.Sprintf("pool %q has the devices", target.Pool), ids, func(id device.ID) string { return id.Name })
		}
	}
	if target.Driver != "" && target.Pool != "" {
		if ids := t.published(target.Driver, "", ""); len(ids) > 0 {
			return listed(fmt.Sprintf("driver %q has the pools", target.Driver), ids, func(id device.ID) string { return id.Pool })
		}
	}
	ids := t.published("", "", "")
	if len(ids) == 0 {
		return "there are no published devices"
	}
	return listed("there are devices of", ids, func(id device.ID) string { return id.Driver })
}

// listed lists distinct names of devices, up to a limit.
func listed(text string, ids []device.ID, name func(device.ID) string) string {
	const most = 5
	var names []string
	for i := range ids {
		names = append(names, name(ids[i]))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("%d more", more))
	}
	return text + " " + strings.Join(names, ", ")
}
