package evictor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

// The tests of this file are those of parity_test.go for Kubernetes' controller for
// device taints. The rules that are about values alone are in
// decide_device_test.go, those about which device a pod uses in the tracker's
// tests.

func TestDeviceParity(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*world){
		"DE-02 no other effect evicts, and a taint that changes to one cancels":                       deviceEffects,
		"DE-03 a pod is looked at when it gets its node":                                              deviceUnscheduled,
		"DE-04 DE-05 a claim generated from a template is used by the pod it was made for":            deviceTemplate,
		"DE-06 DE-07 only who refers to the claim and has it reserved leaves":                         deviceReserved,
		"DE-08 DE-09 a claim reserved for a PodGroup counts where these are served":                   devicePodGroup,
		"DE-10 a pod with a claim behind extended resources leaves too":                               deviceExtended,
		"DE-11 G08 a pod that is over stays, also if its PodGroup keeps the claim":                    deviceFinished,
		"DE-12 a pod on its way out is asked nothing":                                                 deviceTerminating,
		"DE-13 DE-38 DE-39 DE-42 a pod leaves with one patch, one delete and one event":               deviceRequests,
		"DE-16 DE-18 G12 only the newest generation of a pool counts":                                 deviceGenerations,
		"DE-19 G13 a rule evicts without any slice":                                                   deviceRuleAlone,
		"DE-22 G13 deleting the slice or the rule cancels":                                            deviceCancel,
		"DE-32 DE-36 what does not concern the taint leads to no request":                             deviceIrrelevant,
		"DE-33 a claim allocated anew between two looks has its new tolerations":                      deviceReallocated,
		"DE-34 G10 a claim created anew under its name is another claim":                              deviceClaimReplaced,
		"DE-35 G10 a claim that is deallocated, reserved for others or deleted lets the pod stay":     deviceClaimGone,
		"DE-37 a rule that changes its key means leaving since the time that it had":                  deviceRekeyed,
		"DE-43 a pod deleted by somebody else is let go without an event":                             devicePodDeleted,
		"DE-44 a taint taken back and put on again cancels and then evicts":                           deviceTaintAgain,
		"DE-53 nothing is decided on devices before all of them are known":                            deviceNotSynced,
		"DE-54 G06 a restart does not start the clock again":                                          deviceRestart,
		"DE-27 a taint that is due later does not delay one that is due sooner":                       deviceEarliest,
		"DE-29 H01 a taint of the future evicts when its time comes":                                  deviceFuture,
		"G09 a pod that comes to a tainted device leaves by the time of the taint":                    deviceLatePod,
		"G11 of a claim that two hundred and fifty-six pods share, all consumers leave and no others": deviceShared,
		"G06 moving the time of a rule gives pods more time":                                          deviceMoveTime,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, test)
		})
	}
}

// podWithDevice creates pod a with gpu-0 through claim c.
func podWithDevice(w *world, tolerations []resourcev1.DeviceToleration) {
	w.set(newClaim("c", "gpu-0", tolerations, "a"))
	w.setPod(using(newPod("a", "n"), "c"))
}

func deviceEffects(w *world) {
	podWithDevice(w, nil)
	w.start()
	for _, effect := range []resourcev1.DeviceTaintEffect{"None", "NoSchedule", "Unheard-of", ""} {
		taint := deviceTaint("gpu")
		taint.Effect = effect
		w.set(newSlice("s", 1, "gpu-0", taint))
		w.set(newRule("r", "gpu-0", taint))
	}
	w.pass(time.Hour)
	w.stays(podA)
	require.Empty(w.t, w.api.took())
	soon := deviceTaint("gpu")
	soon.TimeAdded = new(metav1.NewTime(time.Now().Add(time.Minute)))
	w.set(newRule("r", "gpu-0", soon))
	require.InDelta(w.t, 1, w.value("tollgate_evictions_pending", "source=devicetaintrule"), 0)
	soon.Effect = resourcev1.DeviceTaintEffectNone
	w.set(newRule("r", "gpu-0", soon))
	w.pass(time.Hour)
	w.stays(podA)
	require.Equal(w.t, []string{"Pod default/a Normal DeviceTaintManagerEviction: Cancelling deletion"}, w.deviceRecorder.took())
}

func deviceUnscheduled(w *world) {
	w.set(newRule("r", "", deviceTaint("gpu")))
	w.set(newClaim("c", "gpu-0", nil, "a"))
	w.setPod(using(newPod("a", ""), "c"))
	w.start()
	w.pass(time.Hour)
	w.stays(podA)
	w.update(podA, func(p *corev1.Pod) { p.Spec.NodeName = "n" })
	w.leaves(podA)
}

func deviceFinished(w *world) {
	w.set(newRule("r", "", deviceTaint("gpu")))
	w.set(newClaim("c", "gpu-0", tolerated("gpu", 60), "a", "b"))
	w.setPod(using(newPod("a", "n"), "c"))
	over := using(newPod("b", "n"), "c")
	over.Status.Phase = corev1.PodFailed
	w.setPod(over)
	w.start()
	w.pass(seconds(30))
	w.update(podA, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	w.pass(time.Hour)
	w.stays(podA)
	w.stays(podB)
	require.Zero(w.t, w.value("tollgate_evictions_pending"))
}

func deviceTerminating(w *world) {
	w.set(newRule("r", "", deviceTaint("gpu")))
	w.set(newClaim("c", "gpu-0", nil, "a"))
	pod := using(newPod("a", "n"), "c")
	pod.DeletionTimestamp = new(metav1.Now())
	w.setPod(pod)
	w.start()
	w.pass(time.Hour)
	require.Empty(w.t, w.api.took())
	require.Empty(w.t, w.deviceRecorder.took())
	require.Zero(w.t, w.value("device_taint_eviction_controller_pod_deletions_total"))
}

func deviceRequests(w *world) {
	podWithDevice(w, nil)
	w.set(newRule("r", "", deviceTaint("gpu")))
	w.start()
	w.leaves(podA)
	require.Equal(w.t, []request{
		"get devicetaintrules r", "patch pods/status default/a", "delete pods default/a",
	}, w.api.took(), "the pod is not read")
	require.Equal(w.t, []string{"Pod default/a Normal DeviceTaintManagerEviction: Marking for deletion"}, w.deviceRecorder.took())
	require.Equal(w.t, []corev1.ObjectReference{{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: "a", UID: "a-uid"}}, w.deviceRecorder.refs)
	require.Empty(w.t, w.recorder.took())
	condition := tracker.PodOf(w.api.pod(podA)).Disruption
	require.Equal(w.t, "DeletionByDeviceTaintManager", condition.Reason)
	require.Equal(w.t, "Device Taint manager: deleting due to NoExecute taint", condition.Message)
	require.Equal(w.t, corev1.ConditionTrue, condition.Status)
}

func deviceGenerations(w *world) {
	podWithDevice(w, tolerated("gpu", 60))
	w.set(newSlice("old", 1, "gpu-0", deviceTaint("gpu")))
	newer := newSlice("new", 2, "gpu-1")
	w.start()
	w.pass(seconds(30))
	w.set(newer)
	w.pass(time.Hour)
	w.stays(podA)
	w.drop(newer)
	w.leaves(podA)
	require.Equal(w.t, 1, matches(w.api.took(), "get resourceslices old"))
}

func deviceRuleAlone(w *world) {
	podWithDevice(w, nil)
	w.start()
	w.set(newRule("other", "gpu-1", deviceTaint("gpu")))
	nothing := newRule("nothing", "", deviceTaint("gpu"))
	nothing.Spec.DeviceSelector = nil
	w.set(nothing)
	w.pass(time.Hour)
	w.stays(podA)
	everything := newRule("everything", "", deviceTaint("gpu"))
	everything.Spec.DeviceSelector = &resourcev1.DeviceTaintSelector{}
	w.set(everything)
	w.leaves(podA)
}

func deviceCancel(w *world) {
	podWithDevice(w, tolerated("gpu", 60))
	slice, rule := newSlice("s", 1, "gpu-0", deviceTaint("gpu")), newRule("r", "", deviceTaint("gpu"))
	w.set(slice)
	w.set(rule)
	w.start()
	w.drop(slice)
	require.InDelta(w.t, 1, w.value("tollgate_evictions_pending", "source=devicetaintrule"), 0)
	w.drop(rule)
	require.Zero(w.t, w.value("tollgate_evictions_pending"))
	w.pass(time.Hour)
	w.stays(podA)
	require.Empty(w.t, w.api.took(), "what is cancelled leads to no request (DE-49)")
	require.Equal(w.t, []string{"Pod default/a Normal DeviceTaintManagerEviction: Cancelling deletion"}, w.deviceRecorder.took())
}

func deviceIrrelevant(w *world) {
	podWithDevice(w, tolerated("gpu", 3600))
	slice := newSlice("s", 1, "gpu-0", deviceTaint("gpu"))
	w.set(slice)
	w.start()
	slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: "gpu-9", Taints: []resourcev1.DeviceTaint{deviceTaint("gpu")}})
	w.set(slice)
	w.update(podA, func(p *corev1.Pod) { p.Status.Message = "well" })
	claim := newClaim("c", "gpu-0", tolerated("gpu", 3600), "a")
	claim.Labels = map[string]string{"a": "b"}
	w.set(claim)
	w.pass(time.Minute)
	require.Empty(w.t, w.api.took())
	require.Empty(w.t, w.deviceRecorder.took())
	require.InDelta(w.t, 1, w.value("tollgate_evictions_pending", "source=resourceslice"), 0)
}

func deviceRekeyed(w *world) {
	podWithDevice(w, tolerated("gpu", 3600))
	rule := newRule("r", "", deviceTaint("gpu"))
	w.set(rule)
	w.start()
	w.pass(time.Minute)
	w.stays(podA)
	rule.Spec.Taint.Key = "net"
	w.set(rule)
	w.leaves(podA)
}

func devicePodDeleted(w *world) {
	podWithDevice(w, tolerated("gpu", 60))
	w.set(newRule("r", "", deviceTaint("gpu")))
	w.start()
	w.update(podA, func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) })
	w.pass(seconds(1))
	w.api.remove(podA)
	w.pass(time.Hour)
	require.Empty(w.t, w.api.took())
	require.Empty(w.t, w.deviceRecorder.took())
	require.InDelta(w.t, 1, w.value("tollgate_evictions_total", "outcome=terminating", "source=devicetaintrule"), 0)
}

func deviceTaintAgain(w *world) {
	podWithDevice(w, tolerated("gpu", 60))
	rule := newRule("r", "", deviceTaint("gpu"))
	w.set(rule)
	w.start()
	w.drop(rule)
	w.pass(seconds(30))
	w.set(newRule("r", "", deviceTaint("gpu")))
	w.pass(seconds(60))
	w.stays(podA)
	w.pass(seconds(1))
	w.leaves(podA)
	w.pass(announceTick)
	require.Equal(w.t, []string{
		"Pod default/a Normal DeviceTaintManagerEviction: Cancelling deletion",
		"Pod default/a Normal DeviceTaintManagerEviction: Marking for deletion",
		"DeviceTaintRule r Normal DeviceTaintManagerEviction: Evicted 1 pod because of a NoExecute taint",
	}, w.deviceRecorder.took())
}

func deviceNotSynced(w *world) {
	w.start()
	w.tracker.SetDevicesKnown(false)
	podWithDevice(w, nil)
	w.set(newRule("r", "", deviceTaint("gpu")))
	w.setNode("n", noExecute("disk"))
	w.setPod(newPod("b", "n"))
	w.leaves(podB)
	w.leaves(podA)
	w.setPod(using(newPod("later", "m"), "c"))
	w.set(newClaim("c", "gpu-0", nil, "a", "later"))
	w.pass(time.Hour)
	w.stays("default/later")
	w.evictor.PodsChanged(w.tracker.SetDevicesKnown(true))
	w.pass(0)
	w.leaves("default/later")
}

func deviceRestart(w *world) {
	podWithDevice(w, tolerated("gpu", 60))
	w.set(newSlice("s", 1, "gpu-0", deviceTaint("gpu")))
	w.start()
	w.pass(seconds(50))
	w.restart()
	w.pass(seconds(10))
	w.stays(podA)
	w.pass(seconds(1))
	w.leaves(podA)
	w.setPod(using(newPod("b", "n"), "c"))
	w.set(newClaim("c", "gpu-0", tolerated("gpu", 60), "b"))
	w.kill()
	w.pass(time.Hour)
	w.start()
	w.leaves(podB)
}

func deviceEarliest(w *world) {
	w.set(newClaim("c", "gpu-0", tolerated("gpu", 60), "a"))
	w.set(newClaim("d", "gpu-1", tolerated("gpu", 30), "a"))
	w.setPod(using(using(newPod("a", "n"), "c"), "d"))
	sooner := newRule("sooner", "gpu-1", deviceTaint("gpu"))
	w.set(newRule("later", "gpu-0", deviceTaint("gpu")))
	w.set(sooner)
	w.start()
	w.pass(seconds(20))
	w.drop(sooner)
	w.pass(seconds(40))
	w.stays(podA)
	w.pass(seconds(1))
	w.leaves(podA)
}

func deviceFuture(w *world) {
	podWithDevice(w, nil)
	taint := deviceTaint("gpu")
	taint.TimeAdded = new(metav1.NewTime(time.Now().Add(40 * time.Second)))
	w.set(newRule("r", "", taint))
	w.start()
	w.pass(seconds(39))
	w.stays(podA)
	w.pass(seconds(1))
	w.leaves(podA)
}

func deviceLatePod(w *world) {
	w.set(newRule("r", "", deviceTaint("gpu")))
	w.start()
	w.pass(seconds(40))
	podWithDevice(w, tolerated("gpu", 60))
	w.pass(seconds(20))
	w.stays(podA)
	w.pass(seconds(1))
	w.leaves(podA)
}

func deviceMoveTime(w *world) {
	podWithDevice(w, tolerated("gpu", 60))
	w.set(newClaim("d", "gpu-1", tolerated("gpu", 600), "b"))
	w.setPod(using(newPod("b", "n"), "d"))
	rule := newRule("r", "", deviceTaint("gpu"))
	w.set(rule)
	w.start()
	w.pass(seconds(30))
	rule.Spec.Taint.TimeAdded = new(metav1.NewTime(time.Now().Truncate(time.Second)))
	w.set(rule)
	w.pass(seconds(60))
	w.stays(podA)
	w.pass(seconds(1))
	w.leaves(podA)
	w.stays(podB)
	rule.Spec.Taint.TimeAdded = new(metav1.NewTime(time.Now().Add(-10 * time.Minute)))
	w.set(rule)
	w.stays(podB)
	w.pass(seconds(1))
	w.leaves(podB)
}
