package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/policy/validation"
	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	// maxSliceDevices bounds the devices of a ResourceSlice that are decoded. The API
	// has it that there are at most 128, but judges that after the mutating webhooks.
	maxSliceDevices = 10_000
	// maxTaintElements bounds the values in all taints of a ResourceSlice. The API
	// allows 64 devices with 16 taints of at most six values each.
	maxTaintElements = 50_000
)

// sliceDevices finds the names and the taints of the devices in a ResourceSlice.
// Attributes and capacities, which are most of it, are passed over.
func sliceDevices(raw []byte) ([]validation.Device, error) {
	spec, err := findAt(raw, "spec")
	if err != nil {
		return nil, &badReviewError{fmt.Errorf("decode ResourceSlice: %w", err)}
	}
	list, err := findAt(spec, "devices")
	if err != nil {
		return nil, &badReviewError{fmt.Errorf("decode spec: %w", err)}
	}
	var found []validation.Device
	elements := 0
	err = eachItem(list, func(value []byte) error {
		if len(found) == maxSliceDevices {
			return fmt.Errorf("there are more than %d", maxSliceDevices)
		}
		device, n, err := decodeDevice(value, maxTaintElements-elements)
		if err != nil {
			return fmt.Errorf("device %d: %w", len(found), err)
		}
		found, elements = append(found, device), elements+n
		return nil
	})
	if err != nil {
		return nil, &badReviewError{fmt.Errorf("decode spec.devices: %w", err)}
	}
	return found, nil
}

// decodeDevice returns a device and how many values its taints hold, which may be
// most.
func decodeDevice(raw []byte, most int) (validation.Device, int, error) {
	// One variable is one allocation for each device.
	var found struct{ name, taints json.RawMessage }
	if err := findMembers(raw, member{"name", &found.name}, member{"taints", &found.taints}); err != nil {
		return validation.Device{}, 0, err
	}
	var device validation.Device
	var err error
	if device.Name, err = decodeString(found.name); err != nil {
		return device, 0, fmt.Errorf("name: %w", err)
	}
	if isNull(found.taints) {
		return device, 0, nil
	}
	n := countElements(found.taints)
	if n > most {
		return device, n, fmt.Errorf("taints: more than %d values in all devices", maxTaintElements)
	}
	if err := unmarshal(found.taints, &device.Taints); err != nil {
		return device, n, fmt.Errorf("taints: %w", err)
	}
	return device, n, nil
}

// sliceOrigin returns of a ResourceSlice, without its name, the driver, the pool and the node;
// empty for none.
func sliceOrigin(raw []byte) (tracker.Slice, error) {
	var origin tracker.Slice
	var found struct{ driver, node, pool, poolName json.RawMessage }
	spec, err := findAt(raw, "spec")
	if err != nil {
		return origin, &badReviewError{fmt.Errorf("decode ResourceSlice: %w", err)}
	}
	if err := findMembers(spec, member{"driver", &found.driver}, member{"nodeName", &found.node}, member{"pool", &found.pool}); err != nil {
		return origin, &badReviewError{fmt.Errorf("decode spec: %w", err)}
	}
	if err := findMembers(found.pool, member{"name", &found.poolName}); err != nil {
		return origin, &badReviewError{fmt.Errorf("decode spec.pool: %w", err)}
	}
	if origin.Driver, err = decodeString(found.driver); err != nil {
		return origin, &badReviewError{fmt.Errorf("decode spec.driver: %w", err)}
	}
	if origin.Node, err = decodeString(found.node); err != nil {
		return origin, &badReviewError{fmt.Errorf("decode spec.nodeName: %w", err)}
	}
	if origin.Pool, err = decodeString(found.poolName); err != nil {
		return origin, &badReviewError{fmt.Errorf("decode spec.pool.name: %w", err)}
	}
	return origin, nil
}

// sliceHandler reviews the taints of ResourceSlices, as they stand in the slice that is
// written. The removal of a whole slice is not judged: that it is deleted, or that another one
// of its pool is written with a later generation, which makes it void. Its devices go with their
// taints. A user who may write slices of others could let the devices come back without: RBAC
// prevents that.
type sliceHandler struct {
	clock    clock.PassiveClock
	enforcer *taintEnforcer
	preview  *Preview
}

// mutate writes into the taints of ResourceSlices since when they count. Tests of the device's
// name and of the taint's key keep a time from another taint than it is for.
func (h *sliceHandler) mutate(_ context.Context, req *admission.Request) (jsonPatch, error) {
	current, old, err := decodeBoth(req, sliceDevices)
	if err != nil {
		return nil, err
	}
	stamps := validation.StampSlice(current, old, h.clock.Now())
	out := make(jsonPatch, 0, 3*len(stamps))
	named := -1
	for _, stamp := range stamps {
		device := &current[stamp.Device]
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

// validate implements handler.
func (h *sliceHandler) validate(ctx context.Context, req *admission.Request) (Result, error) {
	current, old, err := decodeBoth(req, sliceDevices)
	if err != nil {
		return Result{}, err
	}
	found := findings(validation.ValidateSlice(current, old))
	warnings := validation.SliceWarnings(current, old, h.clock.Now())
	origin, err := sliceOrigin(req.Object.Raw)
	if err != nil {
		return Result{}, err
	}
	origin.Name = req.Name
	if h.enforcer.isSelf(req) {
		return decided(policy.Decide(found), warnings, nil), nil
	}
	policies, writes := &policyset.Set{}, []taint.Write(nil) // none for a driver
	if !taint.PublishesSlice(&req.UserInfo, origin.Node) || h.preview.poolOfOthers(&origin) {
		if policies, err = inForce(h.enforcer.policies); err != nil {
			return Result{}, err
		}
		writes = taint.SliceWrites(origin.Driver, current, old)
	}
	in := h.enforcer.input(req, writes)
	return h.enforcer.decide(ctx, policies, in, found, warnings, func() (previewed, error) {
		return h.preview.slice(ctx, req, policies.Taints, in, old, current)
	})
}
