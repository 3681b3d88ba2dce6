package handlers

import (
	"context"
	"fmt"
	"strconv"

	"github.com/tollgate-dev/tollgate/policy"
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

func decodeSlice(v review.Value) (slice, error) {
	var f review.Fields
	spec := f.At(v, "spec")
	s := slice{origin: tracker.Slice{Driver: f.Text(spec, "driver"), Node: f.Text(spec, "nodeName"), Pool: f.Text(spec, "pool", "name")}}
	f.Into(&s.origin.Generation, spec, "pool", "generation")
	values := 0
	for i, item := range f.Items(spec, "devices") {
		taints := f.At(item, "taints")
		values += taints.Size()
		if i == maxSliceDevices || values > maxTaintElements {
			return s, &review.BadError{Err: fmt.Errorf("decode spec.devices: there are more than %d, or more than %d values in their taints", maxSliceDevices, maxTaintElements)}
		}
		device := validation.Device{Name: f.Text(item, "name")}
		f.IntoWithin(maxTaintElements, &device.Taints, taints)
		s.devices = append(s.devices, device)
	}
	return s, f.Err()
}

// published returns the slice as the tracker has it.
func (s *slice) published(name string) *tracker.Slice {
	out := s.origin
	out.Name, out.Devices = name, make([]tracker.Device, 0, len(s.devices))
	for i := range s.devices {
		out.Devices = append(out.Devices, tracker.Device{Name: s.devices[i].Name, Taints: s.devices[i].Taints})
	}
	return &out
}

// sliceHandler reviews the taints of ResourceSlices, as they stand in the slice that is
// written. The removal of a whole slice is not judged: that it is deleted, or that another one
// of its pool is written with a later generation, which makes it void. Its devices go with their
// taints. A user who may write slices of others could let the devices come back without: RBAC
// prevents that.
type sliceHandler struct{ *reviewer }

// mutate writes into the taints of ResourceSlices since when they count. Tests of the device's
// name and of the taint's key keep a time from another taint than it is for.
func (h *sliceHandler) mutate(_ context.Context, req *review.Request) (jsonPatch, error) {
	current, old, err := decodeBoth(req, decodeSlice)
	if err != nil {
		return nil, err
	}
	stamps := validation.StampSlice(current.devices, old.devices, h.ServerClock.Now())
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

// validate implements Handler.
func (h *sliceHandler) validate(ctx context.Context, req *review.Request) (Result, error) {
	current, old, err := decodeBoth(req, decodeSlice)
	if err != nil {
		return Result{}, err
	}
	found := findings(validation.ValidateSlice(current.devices, old.devices))
	warnings := validation.SliceWarnings(current.devices, old.devices, h.ServerClock.Now())
	if h.isSelf(req) {
		return decided(policy.Decide(found), warnings, nil), nil
	}
	policies, writes := &policyset.Set{}, []taint.Write(nil) // none for a driver
	if !taint.PublishesSlice(&req.UserInfo, current.origin.Node) || h.Preview.poolOfOthers(current.published(req.Name)) {
		if policies, err = h.inForce(); err != nil {
			return Result{}, err
		}
		writes = taint.SliceWrites(current.origin.Driver, current.devices, old.devices)
	}
	in := h.taintInput(req, writes)
	return enforce(ctx, policies, in, found, warnings, func() (previewed, error) {
		return h.Preview.slice(ctx, req, policies.Taints, in, &old, &current)
	})
}
