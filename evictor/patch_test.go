package evictor

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
)

// patchUID is the UID of the patch that rules are written out for here.
const patchUID = types.UID("gpu-broken-uid")

// newWritten returns a rule as it is written out for the patch gpu-broken where Kubernetes'
// own evictor runs.
func newWritten(name, device string) *resourcev1.DeviceTaintRule {
	rule := newRule(name, device, deviceTaint("gpu"))
	rule.Spec.Taint.Effect = resourcev1.DeviceTaintEffectNoSchedule
	rule.Labels = map[string]string{v1alpha1.LabelPatch: string(patchUID)}
	rule.Annotations = map[string]string{v1alpha1.AnnotationPatchEffect: string(resourcev1.DeviceTaintEffectNoExecute)}
	rule.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "ResourceSlicePatch", Name: "gpu-broken", UID: patchUID, Controller: new(true),
	}}
	return rule
}

// onTwoDevices has the pods use both devices that rules of the patch taint.
func onTwoDevices(w *world, pods ...string) {
	for _, device := range []string{"gpu-0", "gpu-1"} {
		w.set(newClaim(device, device, nil, pods...))
	}
	for _, name := range pods {
		w.setPod(using(using(newPod(name, "n"), "gpu-0"), "gpu-1"))
	}
}

func TestPatchesEvict(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*world){
		"a pod on two devices of a patch is evicted, told of and counted once for the patch": func(w *world) {
			var mu sync.Mutex
			told := map[string]int{}
			w.options.PatchesChanged = func(patches []string) {
				mu.Lock()
				defer mu.Unlock()
				for _, patch := range patches {
					told[patch]++
				}
			}
			onTwoDevices(w, "a")
			w.set(newWritten("gpu-broken-0", "gpu-0"))
			w.set(newWritten("gpu-broken-1", "gpu-1"))
			w.start()
			w.pass(time.Minute)
			w.leaves(podA)
			for _, uid := range []types.UID{patchUID, "gpu-broken-0-rule-uid", "gpu-broken-1-rule-uid"} {
				require.Equal(w.t, 1, w.evictor.EvictedBy(uid), uid)
			}
			mu.Lock()
			require.Equal(w.t, map[string]int{"gpu-broken": 2}, told, "once when it had to leave, once when it did")
			mu.Unlock()
			events := w.deviceRecorder.took()
			require.Contains(w.t, events, "ResourceSlicePatch gpu-broken Normal DeviceTaintManagerEviction: Evicted 1 pod because of a NoExecute taint")
			require.Zero(w.t, matches(events, "DeviceTaintRule"), "there may be many rules")
		},
		"what was counted for a patch stays when its rules go, until it is forgotten": func(w *world) {
			first, second := newWritten("gpu-broken-0", "gpu-0"), newWritten("gpu-broken-1", "gpu-1")
			onTwoDevices(w, "a", "b")
			w.set(first)
			w.set(second)
			w.start()
			w.pass(time.Minute)
			w.drop(first)
			w.drop(second)
			require.Zero(w.t, w.evictor.EvictedBy("gpu-broken-0-rule-uid"))
			require.Equal(w.t, 2, w.evictor.EvictedBy(patchUID))
			w.kill()
			w.lead()
			require.Equal(w.t, 2, w.evictor.EvictedBy(patchUID))
			w.evictor.Forget(patchUID)
			require.Zero(w.t, w.evictor.EvictedBy(patchUID))
		},
		"a rule that evicts no more for the patch, which the watch has not told of, evicts nobody": func(w *world) {
			rule := newWritten("gpu-broken-0", "gpu-0")
			w.set(rule)
			w.start()
			w.api.devices = nil
			rule.Annotations = nil
			w.set(rule)
			w.evictor.PodsChanged(w.tracker.SetClaim(tracker.ClaimOf(newClaim("c", "gpu-0", nil, "a"))))
			w.setPod(using(newPod("a", "n"), "c"))
			w.pass(time.Minute)
			w.stays(podA)
			require.Equal(w.t, []request{"get devicetaintrules gpu-broken-0"}, w.api.took())
		},
		"pods that only Tollgate finds due are not overdue for others": func(w *world) {
			w.options.Mode = ModeObserve
			rule := newWritten("gpu-broken-0", "gpu-0")
			w.set(rule)
			onTwoDevices(w, "a")
			w.start()
			w.pass(time.Hour)
			require.InDelta(w.t, 1, w.value("tollgate_evictions_pending"), 0)
			require.Zero(w.t, w.evictor.overdue(time.Now()))
			natively := rule.DeepCopy()
			natively.Spec.Taint.Effect = resourcev1.DeviceTaintEffectNoExecute
			w.set(natively)
			require.Equal(w.t, 1, w.evictor.overdue(time.Now()))
		},
		"a rule that says it is a patch's and is not keeps pods off and evicts nobody": func(w *world) {
			rule := newWritten("gpu-broken-0", "gpu-0")
			rule.OwnerReferences = nil
			w.set(rule)
			onTwoDevices(w, "a")
			w.start()
			w.pass(time.Minute)
			w.stays(podA)
		},
		"pods that are held are counted once for the patch, and told of there": func(w *world) {
			w.setPolicy(newPolicy("p", paused))
			onTwoDevices(w, "a", "b")
			w.set(newClaim("other", "gpu-0", nil, "c"))
			w.setPod(using(newPod("c", "n"), "other"))
			w.set(newWritten("gpu-broken-0", "gpu-0"))
			w.set(newWritten("gpu-broken-1", "gpu-1"))
			w.start()
			w.pass(time.Minute)
			for uid, want := range map[types.UID]int{patchUID: 3, "gpu-broken-0-rule-uid": 3, "gpu-broken-1-rule-uid": 2, "another": 0} {
				pods, _, _ := w.evictor.HeldFor(uid)
				require.Equal(w.t, want, pods, uid)
			}
			for _, held := range w.evictor.Held() {
				require.Equal(w.t, tracker.Source{Kind: tracker.SourcePatch, Name: "gpu-broken", UID: patchUID}, held.Carrier)
			}
			events := w.deviceRecorder.took()
			require.Equal(w.t, 1, matches(events, "ResourceSlicePatch gpu-broken Warning EvictionHeld: Holding 3 pods that have to leave because of taint gpu:NoExecute"))
			require.Len(w.t, events, 1)

			w.setPolicy(newPolicy("p", nil))
			w.evictor.PoliciesChanged()
			w.pass(time.Minute)
			pods, _, _ := w.evictor.HeldFor(patchUID)
			require.Zero(w.t, pods)
			require.Equal(w.t, 1, matches(w.deviceRecorder.took(), "ResourceSlicePatch gpu-broken Normal EvictionReleased: "))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, test)
		})
	}
}
