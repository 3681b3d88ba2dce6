package validation

import (
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// deviceRestampWindow is how near to now a given time must be to be taken for one that
// means "now". The API server fills in such a time where a client gives none.
const deviceRestampWindow = 5 * time.Second

// DeviceTimeAdded is the time that a taint of a slice is to have.
type DeviceTimeAdded struct {
	// Device and Taint are indices: of the device in the slice, of the taint in the
	// device.
	Device, Taint int
	TimeAdded     metav1.Time
}

// StampSlice returns the times that the taints of a ResourceSlice are to have where
// the request has others, in the order of the taints; old are the devices before the
// write (none when the slice is created). Only taints that the request adds or
// changes get one, of every effect, in whole seconds:
//
//   - without a time: that of the old taint with the same device, key, value and
//     effect, else now;
//   - with one that only says "now" (within 5 s of it): that of the same old taint if
//     it is older, because the API server has given the present to every taint
//     that came without a time (AV-06), and a driver that publishes a taint once more
//     must not start all timers again;
//   - with any other: as given. A time in the future is legal.
//
// To start a taint's time again, remove it and add it in a second write, or give a
// time that is further than 5 s from now.
//
// Devices that are invalid get times like others. Stamping the outcome again changes
// nothing.
func StampSlice(devices, old []Device, now time.Time) []DeviceTimeAdded {
	var times []DeviceTimeAdded
	before := byName(old)
	for i := range devices {
		stood, ok := before[devices[i].Name]
		if len(devices[i].Taints) == 0 || (ok && equal(stood, devices[i].Taints)) {
			continue
		}
		history := historyOf(stood)
		for j := range devices[i].Taints {
			t := &devices[i].Taints[j]
			if history.has(t) {
				continue
			}
			at := history.timeFor(t, now.Truncate(time.Second))
			if t.TimeAdded == nil || !t.TimeAdded.Time.Equal(at) {
				times = append(times, DeviceTimeAdded{Device: i, Taint: j, TimeAdded: metav1.NewTime(at)})
			}
		}
	}
	return times
}

// StampRule returns the time that the taint of a DeviceTaintRule is to have, and
// false if it has it already. Old is the taint before the write, nil when the rule is
// created. The time is when the effect took hold, so it becomes now when the effect
// changes and the client leaves the time as it was (AV-17); a change of key or value
// does not move it (DE-37). Every other time that is given stands.
func StampRule(taint, old *resourcev1.DeviceTaint, now time.Time) (metav1.Time, bool) {
	given, ok := deviceTimeOf(taint)
	at := given
	if !ok || effectChanged(taint, old) {
		at = now.Truncate(time.Second)
	}
	if ok && taint.TimeAdded.Time.Equal(at) {
		return metav1.Time{}, false
	}
	return metav1.NewTime(at), true
}

// effectChanged reports whether the effect is another one while the time is the old
// one.
func effectChanged(taint, old *resourcev1.DeviceTaint) bool {
	if old == nil || taint.Effect == old.Effect {
		return false
	}
	at, ok := deviceTimeOf(taint)
	stood, stoodOK := deviceTimeOf(old)
	return ok == stoodOK && at.Equal(stood)
}

// history is what a device had for taints before the request.
type history struct {
	stamps map[deviceStamp]struct{}
	// since holds the earliest time of each mark that has one.
	since map[mark]time.Time
}

func historyOf(taints []resourcev1.DeviceTaint) history {
	h := history{stamps: make(map[deviceStamp]struct{}, len(taints)), since: make(map[mark]time.Time, len(taints))}
	for i := range taints {
		t := &taints[i]
		h.stamps[deviceStampOf(t)] = struct{}{}
		if at, ok := deviceTimeOf(t); ok {
			if since, known := h.since[markOf(t)]; !known || at.Before(since) {
				h.since[markOf(t)] = at
			}
		}
	}
	return h
}

// has reports whether t stood there as it is.
func (h history) has(t *resourcev1.DeviceTaint) bool {
	_, ok := h.stamps[deviceStampOf(t)]
	return ok
}

// timeFor returns the time of a taint that is added or changed.
func (h history) timeFor(t *resourcev1.DeviceTaint, now time.Time) time.Time {
	since, stood := h.since[markOf(t)]
	given, ok := deviceTimeOf(t)
	switch {
	case !ok && stood:
		return since
	case !ok:
		return now
	case stood && since.Before(given) && now.Sub(given).Abs() <= deviceRestampWindow:
		return since
	default:
		return given
	}
}
