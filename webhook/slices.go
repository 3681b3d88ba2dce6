package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
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

// decodeSlices returns the devices of the ResourceSlice of a request and, on an
// update, the devices that it had.
func decodeSlices(req admission.Request) (now, old []validation.Device, err error) {
	if now, err = sliceDevices(req.Object.Raw); err != nil {
		return nil, nil, err
	}
	if req.Operation == admissionv1.Update {
		if old, err = sliceDevices(req.OldObject.Raw); err != nil {
			return nil, nil, err
		}
	}
	return now, old, nil
}

// sliceDevices finds the names and the taints of the devices in a ResourceSlice.
// Attributes and capacities, which are most of it, are passed over.
func sliceDevices(raw []byte) ([]validation.Device, error) {
	var spec, list json.RawMessage
	if err := findMembers(raw, member{"spec", &spec}); err != nil {
		return nil, &badReviewError{fmt.Errorf("decode ResourceSlice: %w", err)}
	}
	if err := findMembers(spec, member{"devices", &list}); err != nil {
		return nil, &badReviewError{fmt.Errorf("decode spec: %w", err)}
	}
	var found []validation.Device
	elements := 0
	err := eachItem(list, func(value []byte) error {
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
	var name, taints json.RawMessage
	if err := findMembers(raw, member{"name", &name}, member{"taints", &taints}); err != nil {
		return validation.Device{}, 0, err
	}
	var device validation.Device
	var err error
	if device.Name, err = decodeString(name); err != nil {
		return device, 0, fmt.Errorf("name: %w", err)
	}
	if isNull(taints) {
		return device, 0, nil
	}
	n := countElements(taints)
	if n > most {
		return device, n, fmt.Errorf("taints: more than %d values in all devices", maxTaintElements)
	}
	if err := unmarshal(taints, &device.Taints); err != nil {
		return device, n, fmt.Errorf("taints: %w", err)
	}
	return device, n, nil
}

// sliceOrigin returns of a ResourceSlice, without its name, the driver, the pool and the node;
// empty for none.
func sliceOrigin(raw []byte) (tracker.Slice, error) {
	var origin tracker.Slice
	var spec, driver, node, pool, poolName json.RawMessage
	if err := findMembers(raw, member{"spec", &spec}); err != nil {
		return origin, &badReviewError{fmt.Errorf("decode ResourceSlice: %w", err)}
	}
	if err := findMembers(spec, member{"driver", &driver}, member{"nodeName", &node}, member{"pool", &pool}); err != nil {
		return origin, &badReviewError{fmt.Errorf("decode spec: %w", err)}
	}
	if err := findMembers(pool, member{"name", &poolName}); err != nil {
		return origin, &badReviewError{fmt.Errorf("decode spec.pool: %w", err)}
	}
	for _, f := range []struct {
		path string
		raw  json.RawMessage
		into *string
	}{{"spec.driver", driver, &origin.Driver}, {"spec.nodeName", node, &origin.Node}, {"spec.pool.name", poolName, &origin.Pool}} {
		var err error
		if *f.into, err = decodeString(f.raw); err != nil {
			return origin, &badReviewError{fmt.Errorf("decode %s: %w", f.path, err)}
		}
	}
	return origin, nil
}

// sliceJudge judges the taints of ResourceSlices, as they stand in the slice that is
// written. What takes a whole slice away is not judged: that it is deleted, or that
// another one of its pool is written with a later generation, which makes it void. Its
// devices go with their taints. Who may write slices that are not their own could let
// the devices come back without: it is RBAC that keeps them from it.
type sliceJudge struct {
	clock    clock.PassiveClock
	governor *governor
	preview  *Preview
}

// Judge implements judge.
func (j *sliceJudge) Judge(ctx context.Context, req admission.Request) (admission.Response, error) {
	current, old, err := decodeSlices(req)
	if err != nil {
		return admission.Response{}, err
	}
	found := findings(validation.ValidateSlice(current, old))
	warnings := validation.SliceWarnings(current, old, j.clock.Now())
	origin, err := sliceOrigin(req.Object.Raw)
	if err != nil {
		return admission.Response{}, err
	}
	origin.Name = req.Name
	if j.governor.isSelf(&req) {
		return respond(ctx, policy.Decide(found), warnings), nil
	}
	policies, writes := &policyset.Set{}, []taint.Write(nil) // none for a driver
	if !taint.PublishesSlice(&req.UserInfo, origin.Node) || j.preview.poolOfOthers(&origin) {
		if policies, err = j.governor.current(); err != nil {
			return admission.Response{}, err
		}
		writes = taint.SliceWrites(origin.Driver, current, old)
	}
	in := j.governor.input(&req, writes)
	judged, fault := j.governor.judge(ctx, policies.Taints, in)
	decision := policy.Decide(append(found, judged...))
	if fault != nil && decision.Verdict != policy.Denied {
		return admission.Response{}, fault
	}
	if decision.Verdict == policy.Denied {
		return judgedBy(respond(ctx, decision, warnings), policies), nil
	}
	seen, err := j.preview.slice(ctx, req, policies.Taints, in, old, current)
	if err != nil {
		return admission.Response{}, err
	}
	return judgedBy(seen.respond(ctx, decision, warnings), policies), nil
}

// sliceStamper writes into the taints of ResourceSlices since when they count. It
// never refuses.
type sliceStamper struct {
	clock clock.PassiveClock
}

// Judge implements judge.
func (j *sliceStamper) Judge(_ context.Context, req admission.Request) (admission.Response, error) {
	current, old, err := decodeSlices(req)
	if err != nil {
		return admission.Response{}, err
	}
	response := allowed()
	response.Patches = slicePatches(current, validation.StampSlice(current, old, j.clock.Now()))
	return response, nil
}

// slicePatches returns the patch that writes stamps. Tests of the device's name and
// of the taint's key keep a time from another taint than it is for.
func slicePatches(current []validation.Device, stamps []validation.DeviceTimeAdded) []jsonpatch.JsonPatchOperation {
	patches := make([]jsonpatch.JsonPatchOperation, 0, 3*len(stamps))
	named := -1
	for _, stamp := range stamps {
		device := &current[stamp.Device]
		key := device.Taints[stamp.Taint].Key
		if device.Name == "" || key == "" {
			continue // invalid, and a test of a field that is not there would fail
		}
		path := "/spec/devices/" + strconv.Itoa(stamp.Device)
		if named != stamp.Device {
			patches, named = append(patches, jsonpatch.NewOperation("test", path+"/name", device.Name)), stamp.Device
		}
		path += "/taints/" + strconv.Itoa(stamp.Taint)
		patches = append(patches,
			jsonpatch.NewOperation("test", path+"/key", key),
			jsonpatch.NewOperation("add", path+"/timeAdded", stamp.TimeAdded.UTC().Format(time.RFC3339)))
	}
	return patches
}
