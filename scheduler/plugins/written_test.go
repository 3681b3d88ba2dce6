package plugins

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// A patch with a NoExecute taint, and the NoSchedule rule that Tollgate writes out for it
// where Kubernetes' own evictor runs. In whatever order they come, in the end the device
// has the taint of the patch and no other, and a pod that tolerates it gets the device,
// though nothing happens any more.
func TestTaintsOfPatchesAreSeenOnce(t *testing.T) {
	t.Parallel()
	hot := resourcev1.DeviceTaint{Key: "example.com/hot", Effect: resourcev1.DeviceTaintEffectNoSchedule, TimeAdded: new(metav1.NewTime(time.Unix(1000, 0)))}
	// Each scheduler has its own: its source of patches writes their version.
	patch := func() *v1alpha1.ResourceSlicePatch {
		patch := modelPatch("one", "A100", 1)
		patch.Spec.Devices.Taints = []v1alpha1.PatchedTaint{{Key: hot.Key, Effect: resourcev1.DeviceTaintEffectNoExecute}}
		return patch
	}
	uid := string(patch().UID)
	rule := func(uid string) *resourcev1.DeviceTaintRule {
		return &resourcev1.DeviceTaintRule{
			ObjectMeta: metav1.ObjectMeta{Name: "one-hot", Labels: map[string]string{v1alpha1.LabelPatch: uid}, OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "ResourceSlicePatch", Name: "one", UID: types.UID(uid), Controller: new(true),
			}}},
			Spec: resourcev1.DeviceTaintRuleSpec{
				DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: new(driver), Pool: new("one"), Device: new("gpu-0")}, Taint: hot,
			},
		}
	}
	const noExecute, both, alone = "NoExecute", "NoSchedule NoExecute", "NoSchedule"
	tests := map[string]struct {
		happen func(h *harness, settle func(effects string))
		waits  bool
		// parkedAlready is set where the pod was made before.
		parkedAlready bool
	}{
		"the patch first": {happen: func(h *harness, settle func(string)) {
			h.patches.Add(patch())
			settle(noExecute)
			h.create(rule(uid))
		}},
		"the rule first": {happen: func(h *harness, settle func(string)) {
			h.create(rule(uid))
			settle(alone)
			h.patches.Add(patch())
		}},
		"the rule first, which a pod is judged by": {parkedAlready: true, happen: func(h *harness, settle func(string)) {
			h.create(rule(uid))
			settle(alone)
			h.createTolerating("pod", hot.Key)
			h.requireParked("pod")
			h.patches.Add(patch())
		}},
		"both at once": {happen: func(h *harness, _ func(string)) {
			h.create(rule(uid))
			h.patches.Add(patch())
		}},
		"the slice last": {happen: func(h *harness, settle func(string)) {
			h.create(rule(uid))
			h.patches.Add(patch())
			settle(noExecute)
			h.write(sliceOf("one", "V100"))
		}},
		"a rule of another patch": {waits: true, happen: func(h *harness, settle func(string)) {
			h.patches.Add(patch())
			h.create(rule("another"))
			settle(both)
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := start(t, setup{objects: []runtime.Object{deviceClass(), node("one"), sliceOf("one", "A100")}, compile: compilePatches})
			settle := func(effects string) {
				t.Helper()
				require.Eventually(t, func() bool { return h.effects() == effects }, scheduleTimeout, time.Millisecond, "effects %s", effects)
			}
			test.happen(h, settle)
			if !test.parkedAlready {
				h.createTolerating("pod", hot.Key)
			}
			if test.waits {
				h.requireParked("pod")
				return
			}
			h.requireOn("one", "pod")
			settle(noExecute)
		})
	}
}

// createTolerating makes a pod that tolerates NoExecute taints with the key, and no others.
func (h *harness) createTolerating(name, key string) {
	h.t.Helper()
	pod, claim := wanting(name, "A100")
	claim.Spec.Devices.Requests[0].Exactly.Tolerations = []resourcev1.DeviceToleration{{
		Key: key, Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoExecute,
	}}
	h.create(claim)
	h.create(pod)
}

// effects are those of the taints of the one device that there is.
func (h *harness) effects() string {
	h.t.Helper()
	listed, err := h.shared.view.ListWithDeviceTaintRules()
	require.NoError(h.t, err)
	var effects []string
	for _, taint := range listed[0].Spec.Devices[0].Taints {
		effects = append(effects, fmt.Sprint(taint.Effect))
	}
	slices.Sort(effects)
	slices.Reverse(effects)
	return strings.Join(effects, " ")
}
