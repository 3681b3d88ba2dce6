package handlers

import (
	"context"
	"fmt"
	"strconv"

	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/policy/validation"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

const (
	// maxSliceDevices bounds the devices of a ResourceSlice that are decoded. The API
	// has it that there are at most 128, but judges that after the mutating webhooks.
	maxSliceDevices = 10_000
	// maxTaintElements bounds the values in all taints of a ResourceSlice. The API
	// allows 64 devices with 16 taints of at most six values each.
	maxTaintElements = 50_000
)

// slice is a ResourceSlice with the fields that admission looks at. Attributes and capacities,
// which are most of it, are passed over.
type slice struct {
	// origin has driver, pool, generation and node; empty for none.
	origin  tracker.Slice
	devices []validation.Device
}

func readSlice(f *review.Fields, v review.Value) slice {
	spec := f.At(v, "spec")
	s := slice{origin: tracker.Slice{Driver: f.Text(spec, "driver"), Node: f.Text(spec, "nodeName"), Pool: f.Text(spec, "pool", "name")}}
	f.Into(&s.origin.Generation, spec, "pool", "generation")
	values := 0
	for i, item := range f.Items(spec, "devices") {
		taints := f.At(item, "taints")
		values += taints.Size()
		if i == maxSliceDevices || values > maxTaintElements {
			f.Fail(f.At(spec, "devices"), fmt.Errorf("there are more than %d, or more than %d values in their taints", maxSliceDevices, maxTaintElements))
			return s
		}
		device := validation.Device{Name: f.Text(item, "name")}
		f.IntoWithin(maxTaintElements, &device.Taints, taints)
		s.devices = append(s.devices, device)
	}
	return s
}

// published returns the slice as the tracker has it.
func (s *slice) published(name string) *tracker.Slice {
	out := s.origin
	out.Name, out.Devices = name, make([]tracker.Device, 0, len(s.devices))
	for _, device := range s.devices {
		out.Devices = append(out.Devices, tracker.Device(device))
	}
	return &out
}

// mutateSlice writes into the taints of ResourceSlices since when they count. Tests of the device's
// name and of the taint's key keep a time from another taint than it is for.
func (r request) mutateSlice(context.Context) (jsonPatch, error) {
	current, old := readBoth(r, readSlice)
	stamps := validation.StampSlice(current.devices, old.devices, r.ServerClock.Now())
	out := make(jsonPatch, 0, 3*len(stamps))
	named := -1
	for _, stamp := range stamps {
		device := &current.devices[stamp.Device]
		key := device.Taints[stamp.Taint].Key
		if device.Name == "" || key == "" {
			continue // invalid, and a test of a field that is not there would fail
		}
		path := "/spec/devices/" + strconv.Itoa(stamp.Device)
		if named != stamp.Device {
			out.test(path+"/name", device.Name)
			named = stamp.Device
		}
		out.stamp(path+"/taints/"+strconv.Itoa(stamp.Taint), key, stamp.TimeAdded)
	}
	return out, nil
}

// validateSlice judges the taints of ResourceSlices, as they stand in the slice that is
// written. The removal of a whole slice is not judged: that it is deleted, or that another one
// of its pool is written with a later generation, which makes it void. Its devices go with their
// taints. A user who may write slices of others could let the devices come back without: RBAC
// prevents that.
func (r request) validateSlice(ctx context.Context) (Result, error) {
	current, old := readBoth(r, readSlice)
	found := findings(validation.ValidateSlice(current.devices, old.devices))
	warnings := validation.SliceWarnings(current.devices, old.devices, r.ServerClock.Now())
	if r.isSelf() {
		return decided(found, warnings, nil), nil
	}
	var writes []taint.Write
	if !taint.PublishesSlice(&r.UserInfo, current.origin.Node) || r.Preview.poolOfOthers(current.published(r.Name)) {
		writes = taint.SliceWrites(current.origin.Driver, current.devices, old.devices)
	} else {
		r.policies = &policyset.Set{} // none for a driver
	}
	in := r.taintInput(writes)
	return r.enforce(ctx, in, found, warnings, func() (previewed, error) {
		return r.Preview.slice(ctx, r, in, &old, &current)
	})
}
