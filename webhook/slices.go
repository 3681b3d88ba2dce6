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
	"github.com/tollgate-dev/tollgate/policy/devices"
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
func decodeSlices(req admission.Request) (now, old []devices.Device, err error) {
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
func sliceDevices(raw []byte) ([]devices.Device, error) {
	var spec, list json.RawMessage
	if err := findMembers(raw, member{"spec", &spec}); err != nil {
		return nil, &badReviewError{fmt.Errorf("decode ResourceSlice: %w", err)}
	}
	if err := findMembers(spec, member{"devices", &list}); err != nil {
		return nil, &badReviewError{fmt.Errorf("decode spec: %w", err)}
	}
	var found []devices.Device
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
func decodeDevice(raw []byte, most int) (devices.Device, int, error) {
	var name, taints json.RawMessage
	if err := findMembers(raw, member{"name", &name}, member{"taints", &taints}); err != nil {
		return devices.Device{}, 0, err
	}
	var device devices.Device
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

// sliceJudge judges the taints of ResourceSlices.
type sliceJudge struct {
	clock clock.PassiveClock
}

// Judge implements judge.
func (j *sliceJudge) Judge(_ context.Context, req admission.Request) (admission.Response, error) {
	current, old, err := decodeSlices(req)
	if err != nil {
		return admission.Response{}, err
	}
	found := findings(devices.ValidateSlice(current, old))
	return respond(policy.Decide(found), devices.SliceWarnings(current, old, j.clock.Now())), nil
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
	response.Patches = slicePatches(current, devices.StampSlice(current, old, j.clock.Now()))
	return response, nil
}

// slicePatches returns the patch that writes stamps. Tests of the device's name and
// of the taint's key keep a time from another taint than it is for.
func slicePatches(current []devices.Device, stamps []devices.TimeAdded) []jsonpatch.JsonPatchOperation {
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
