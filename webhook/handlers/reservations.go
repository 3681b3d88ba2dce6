package handlers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// maxStatusElements bounds the values in the allocation of a claim and in its
// consumers. The API allows 32 devices, each with up to 16 tolerations, and 256
// consumers.
const maxStatusElements = 100_000

// deviceTaints says which taints are in the way of a use of devices.
type deviceTaints interface {
	// Untolerated returns the taints with effect NoSchedule or NoExecute that the
	// allocation does not tolerate now; false when the devices are not known yet.
	Untolerated(devices []tracker.AllocatedDevice, now time.Time) ([]tracker.Obstacle, bool)
}

// errDevicesUnknown is why nothing can be decided right after the start.
var errDevicesUnknown = errors.New("the devices have not been read yet")

// validateReservation refuses to let more pods use an allocated claim while one of its
// devices has a taint that the claim does not tolerate. The scheduler judges taints
// when it allocates; KEP-5055 promises the same for a claim that is allocated
// already, where it does not.
//
// A claim that is reserved for a PodGroup gains no consumer when another pod of the
// group comes to use it (VS-09): nothing is written that could be refused, so such
// pods are not judged here. The evictor looks at each of them. Neither is a write that allocates
// the claim, or that only takes consumers away.
func (r request) validateReservation(context.Context) (Result, error) {
	if r.DeviceTaints == nil || r.At(r.Old, "status", "allocation").IsNull() { // Device taints are not followed, or nothing is allocated.
		return allowed(), nil
	}
	gained := r.gainedConsumers()
	if len(gained) == 0 {
		return allowed(), nil
	}
	obstacles, known := r.DeviceTaints.Untolerated(r.allocation(), r.ServerClock.Now())
	if !known {
		return Result{}, errDevicesUnknown
	}
	return decided(reservationFindings(gained, obstacles), nil, nil), nil
}

// consumer is a new consumer of a claim, and its index in status.reservedFor.
type consumer struct {
	reference resourcev1.ResourceClaimConsumerReference
	index     int
}

// gainedConsumers returns the consumers that the claim did not have. Only the UID
// tells them apart (DE-06).
func (r request) gainedConsumers() []consumer {
	var now, before []resourcev1.ResourceClaimConsumerReference
	r.IntoWithin(maxStatusElements, &now, r.New, "status", "reservedFor")
	r.IntoWithin(maxStatusElements, &before, r.Old, "status", "reservedFor")
	had := make(sets.Set[types.UID], len(before))
	for _, reference := range before {
		had.Insert(reference.UID)
	}
	var gained []consumer
	for i, reference := range now {
		if !had.Has(reference.UID) {
			gained = append(gained, consumer{reference, i})
		}
	}
	return gained
}

// allocation returns the devices that the claim has.
func (r request) allocation() []tracker.AllocatedDevice {
	var requests []resourcev1.DeviceRequest
	var results []resourcev1.DeviceRequestAllocationResult
	r.IntoWithin(maxRequestElements, &requests, r.Old, "spec", "devices", "requests")
	r.IntoWithin(maxStatusElements, &results, r.Old, "status", "allocation", "devices", "results")
	return tracker.AllocatedDevices(requests, results)
}

// reservationFindings returns the obstacles of the consumers as findings. The obstacles are the
// same for all of them, so one finding tells each.
func reservationFindings(gained []consumer, obstacles []tracker.Obstacle) []policy.Finding {
	path := field.NewPath("status", "reservedFor")
	found := make([]policy.Finding, 0, len(obstacles))
	for _, obstacle := range obstacles {
		found = append(found, policy.Finding{
			Reason:  policy.ReservationNotTolerated,
			Field:   path.Index(gained[0].index).String(),
			Value:   consumersText(gained),
			Problem: obstacleText(obstacle),
			Remedy: "more pods can use the claim once the taint is gone. An allocation keeps its devices and " +
				"its tolerations: a claim with others has to be allocated anew",
		})
	}
	return found
}

func consumersText(gained []consumer) string {
	const most = 3
	names := make([]string, 0, most+1)
	for i, c := range gained {
		if i == most {
			names = append(names, fmt.Sprintf("and %d more", len(gained)-most))
			break
		}
		names = append(names, review.Clip(c.reference.Resource)+"/"+review.Clip(c.reference.Name))
	}
	return strings.Join(names, ", ")
}

func obstacleText(o tracker.Obstacle) string {
	source := o.Taint.Author()
	tolerates := "does not tolerate"
	if !o.Until.IsZero() {
		tolerates = "tolerated until " + o.Until.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("device %s has the taint %s from %s %s, which the claim %s", o.Device, o.Taint, source.Kind.Object(), source.Name, tolerates)
}
