package history

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// used is a device that a pod has.
type used struct {
	driver, pool, device string
	tolerations          []resourcev1.DeviceToleration
}

// usedBy returns the devices that a pod has by a version of its claim.
func usedBy(pod *corev1.Pod, claim *resourcev1.ResourceClaim) []used {
	reserved := slices.ContainsFunc(claim.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool {
		return r.APIGroup == "" && r.Resource == "pods" && r.UID == pod.UID
	})
	if !reserved || claim.Status.Allocation == nil {
		return nil
	}
	var devices []used
	for _, result := range claim.Status.Allocation.Devices.Results {
		devices = append(devices, used{result.Driver, result.Pool, result.Device, result.Tolerations})
	}
	return devices
}

// claimsOf returns the names of the claims of a pod.
func claimsOf(pod *corev1.Pod) []name {
	var names []name
	for _, c := range pod.Spec.ResourceClaims {
		if c.ResourceClaimName != nil {
			names = append(names, name{kindClaim, pod.Namespace, *c.ResourceClaimName})
		}
	}
	for _, c := range pod.Status.ResourceClaimStatuses {
		if c.ResourceClaimName != nil {
			names = append(names, name{kindClaim, pod.Namespace, *c.ResourceClaimName})
		}
	}
	return names
}

// onSlice returns the reasons that a version of a slice is to leave for who has a
// device.
func onSlice(v *Version, u used) []reason {
	slice, _ := v.Object.(*resourcev1.ResourceSlice)
	if slice.Spec.Driver != u.driver || slice.Spec.Pool.Name != u.pool {
		return nil
	}
	var reasons []reason
	for i := range slice.Spec.Devices {
		if slice.Spec.Devices[i].Name != u.device {
			continue
		}
		for j := range slice.Spec.Devices[i].Taints {
			reasons = appendDevice(reasons, v, &slice.Spec.Devices[i].Taints[j], u)
		}
	}
	return reasons
}

// onRule returns the reason that a version of a rule is to leave for who has a
// device.
func onRule(v *Version, u used) []reason {
	rule, _ := v.Object.(*resourcev1.DeviceTaintRule)
	s := rule.Spec.DeviceSelector
	if s == nil || differs(s.Driver, u.driver) || differs(s.Pool, u.pool) || differs(s.Device, u.device) {
		return nil
	}
	return appendDevice(nil, v, &rule.Spec.Taint, u)
}

func differs(want *string, got string) bool { return want != nil && *want != got }

func appendDevice(reasons []reason, v *Version, taint *resourcev1.DeviceTaint, u used) []reason {
	if taint.Effect != resourcev1.DeviceTaintEffectNoExecute {
		return reasons
	}
	since := v.Seen.Add(-delivery)
	if taint.TimeAdded != nil {
		since = taint.TimeAdded.Time
	}
	at, leaves := deviceDeadline(since, u.tolerations, taint)
	if !leaves {
		return reasons
	}
	return append(reasons, reason{
		carrier: nameOf(v), target: v1alpha1.TaintTargetDevice, driver: u.driver, key: taint.Key, value: taint.Value, at: at, by: at,
	})
}

// deviceDeadline returns when the tolerations of an allocation end: one without end is
// enough, else the shortest counts.
func deviceDeadline(since time.Time, tolerations []resourcev1.DeviceToleration, taint *resourcev1.DeviceTaint) (at time.Time, leaves bool) {
	tolerated := false
	for i := range tolerations {
		t := &tolerations[i]
		if !toleratesDevice(t, taint) {
			continue
		}
		var seconds *int64
		// Without an effect, seconds mean nothing.
		if t.Effect != "" {
			seconds = t.TolerationSeconds
		}
		end, ever := after(since, seconds)
		if !ever {
			return time.Time{}, false
		}
		if !tolerated || end.Before(at) {
			at, tolerated = end, true
		}
	}
	if !tolerated {
		return since, true
	}
	return at, true
}

func toleratesDevice(t *resourcev1.DeviceToleration, taint *resourcev1.DeviceTaint) bool {
	if t.Effect != "" && t.Effect != taint.Effect {
		return false
	}
	if t.Operator == resourcev1.DeviceTolerationOpExists {
		return t.Key == "" || t.Key == taint.Key
	}
	return t.Key == taint.Key && t.Value == taint.Value
}

// reasons returns all that may have been taken for a reason to evict a pod by
// somebody who acted at a revision and knew what was true no earlier than since.
func (x *index) reasons(pod *corev1.Pod, since time.Time, revision int64) []reason {
	if !evictable(pod) {
		return nil
	}
	var reasons []reason
	for _, node := range x.current(name{kindNode, "", pod.Spec.NodeName}, since, revision) {
		reasons = append(reasons, x.onNode(pod, node)...)
	}
	for _, n := range claimsOf(pod) {
		for _, v := range x.current(n, since, revision) {
			claim, _ := v.Object.(*resourcev1.ResourceClaim)
			for _, u := range usedBy(pod, claim) {
				reasons = append(reasons, x.onDevice(u, since, revision)...)
			}
		}
	}
	return reasons
}

func (x *index) onDevice(u used, since time.Time, revision int64) []reason {
	var reasons []reason
	for _, n := range x.named[kindSlice] {
		for _, v := range x.current(n, since, revision) {
			reasons = append(reasons, onSlice(v, u)...)
		}
	}
	for _, n := range x.named[kindRule] {
		for _, v := range x.current(n, since, revision) {
			reasons = append(reasons, onRule(v, u)...)
		}
	}
	return reasons
}
