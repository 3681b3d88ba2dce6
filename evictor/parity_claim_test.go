package evictor

import (
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The tests of this file are about who uses a claim. They are run by
// TestDeviceParity.

func deviceTemplate(w *world) {
	w.set(newRule("r", "", deviceTaint("gpu")))
	generated := func(name, pod string) *corev1.Pod {
		p := newPod(pod, "n")
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "mine", ResourceClaimTemplateName: new("template")}}
		p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "mine", ResourceClaimName: &name}}
		return p
	}
	claim := newClaim("generated", "gpu-0", nil, "a", "b")
	claim.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "a", UID: "a-uid", Controller: new(true)}}
	w.set(claim)
	w.setPod(generated("generated", "a"))
	w.setPod(generated("generated", "b"))
	unneeded := generated("", "unneeded")
	unneeded.Status.ResourceClaimStatuses[0].ResourceClaimName = nil
	w.setPod(unneeded)
	w.start()
	w.pass(time.Minute)
	w.leaves(podA)
	w.stays(podB)
	w.stays("default/unneeded")
}

func deviceReserved(w *world) {
	w.set(newRule("r", "", deviceTaint("gpu")))
	w.set(newClaim("c", "gpu-0", nil, "a", "b"))
	w.setPod(using(newPod("a", "n"), "c"))
	w.setPod(newPod("b", "n"))
	w.setPod(using(newPod("waiting", "n"), "c"))
	w.start()
	w.pass(time.Minute)
	w.leaves(podA)
	w.stays(podB)
	w.stays("default/waiting")
	w.set(newClaim("c", "gpu-0", nil, "a", "b", "waiting"))
	w.leaves("default/waiting")
}

func devicePodGroup(w *world) {
	w.set(newRule("r", "", deviceTaint("gpu")))
	claim := newClaim("c", "gpu-0", nil)
	claim.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "team"}}
	w.set(claim)
	member := using(newPod("a", "n"), "c")
	member.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("team")}
	w.setPod(member)
	w.setPod(using(newPod("b", "n"), "c"))
	w.start()
	w.pass(time.Minute)
	w.stays(podA)
	w.evictor.PodsChanged(w.tracker.SetPodGroups(true))
	w.pass(0)
	w.leaves(podA)
	w.stays(podB)
}

func deviceExtended(w *world) {
	w.set(newRule("r", "", deviceTaint("gpu")))
	claim := newClaim("c", "gpu-0", nil, "a")
	claim.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "a", UID: "a-uid", Controller: new(true)}}
	w.set(claim)
	w.setPod(newPod("a", "n"))
	w.start()
	w.pass(time.Minute)
	w.stays(podA)
	w.update(podA, func(p *corev1.Pod) {
		p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "c"}
	})
	w.leaves(podA)
}

func deviceReallocated(w *world) {
	podWithDevice(w, tolerated("gpu", 60))
	w.set(newRule("r", "", deviceTaint("gpu")))
	w.start()
	w.set(newClaim("c", "gpu-0", tolerated("gpu", 600), "a"))
	w.pass(seconds(600))
	w.stays(podA)
	w.pass(seconds(1))
	w.leaves(podA)
}

func deviceClaimReplaced(w *world) {
	podWithDevice(w, tolerated("gpu", 60))
	w.set(newRule("r", "", deviceTaint("gpu")))
	w.start()
	again := newClaim("c", "gpu-0", nil, "b")
	again.UID = "another"
	w.set(again)
	w.pass(time.Hour)
	w.stays(podA)
	again = newClaim("c", "gpu-0", nil, "a")
	again.UID = "a third"
	w.set(again)
	w.leaves(podA)
}

func deviceClaimGone(w *world) {
	w.set(newRule("r", "", deviceTaint("gpu")))
	w.start()
	for _, change := range []func(claim *resourcev1.ResourceClaim){
		func(claim *resourcev1.ResourceClaim) { claim.Status.Allocation = nil; w.set(claim) },
		func(claim *resourcev1.ResourceClaim) { claim.Status.ReservedFor[0].UID = "b-uid"; w.set(claim) },
		func(claim *resourcev1.ResourceClaim) { w.drop(claim) },
	} {
		podWithDevice(w, tolerated("gpu", 600))
		require.InDelta(w.t, 1, w.value("tollgate_evictions_pending"), 0)
		change(newClaim("c", "gpu-0", tolerated("gpu", 600), "a"))
		require.Zero(w.t, w.value("tollgate_evictions_pending"))
		require.Len(w.t, w.deviceRecorder.took(), 1)
	}
	w.pass(time.Hour)
	w.stays(podA)
	require.Empty(w.t, w.api.took())
}

func deviceShared(w *world) {
	var consumers []string
	for i := range 256 {
		consumers = append(consumers, "p"+string(rune('a'+i/26))+string(rune('a'+i%26)))
	}
	w.set(newClaim("c", "gpu-0", nil, consumers...))
	for _, name := range append([]string{"other"}, consumers...) {
		w.setPod(using(newPod(name, "n"), "c"))
	}
	w.start()
	w.set(newRule("r", "gpu-0", deviceTaint("gpu")))
	for _, name := range consumers {
		w.leaves("default/" + name)
	}
	w.stays("default/other")
	requests := w.api.took()
	require.Equal(w.t, 1, matches(requests, "get devicetaintrules r"))
	require.Len(w.t, requests, 1+2*256)
	require.InDelta(w.t, 256, w.value("device_taint_eviction_controller_pod_deletions_total"), 0)
	require.Equal(w.t, 256, w.evictor.EvictedBy("r-rule-uid"))
}
