package status

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
)

// writeOut writes a rule of a patch and sends its event.
func (w *approvalWorld) writeOut(name, patch string) {
	w.tracker.SetRule(tracker.RuleOf(&resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: "rule-uid", CreationTimestamp: metav1.Now(), Labels: map[string]string{v1alpha1.LabelPatch: "uid"},
			Annotations: map[string]string{v1alpha1.AnnotationPatchEffect: "NoExecute"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "ResourceSlicePatch", Name: patch, UID: "uid", Controller: new(true),
			}},
		},
		Spec: resourcev1.DeviceTaintRuleSpec{Taint: resourcev1.DeviceTaint{
			Key: "broken", Effect: resourcev1.DeviceTaintEffectNoSchedule, TimeAdded: new(metav1.Now()),
		}},
	}), time.Now())
	w.controller.RuleChanged(name)
	w.controller.PatchesChanged([]string{patch})
	rest(time.Second)
}

func TestAnApprovalOfAPatch(t *testing.T) {
	t.Parallel()
	runWith(t, func(spec *v1alpha1.EvictionApprovalSpec) { spec.Node, spec.ResourceSlicePatch = "", "gpu-broken" }, func(t *testing.T, w *approvalWorld) {
		t.Helper()
		rest(time.Minute)
		w.writeOut("other-1", "other")
		w.requireState(t, reasonOpen)
		w.mu.Lock()
		w.left = 3
		w.mu.Unlock()
		w.writeOut("gpu-broken-1", "gpu-broken")
		w.requireState(t, reasonUsed)
		rest(time.Minute)
		_, status := w.state()
		require.EqualValues(t, 3, status.Evicted)
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, source := range w.asked {
			require.Equal(t, tracker.Source{Kind: tracker.SourcePatch, Name: "gpu-broken"}, source)
		}
	})
}

// An existing patch may be widened after its approval: the approval is for that.
func TestAnApprovalOfAPatchThatIsWidened(t *testing.T) {
	t.Parallel()
	runApprovals(t, false, func(t *testing.T, w *approvalWorld) {
		t.Helper()
		w.writeOut("gpu-broken-1", "gpu-broken")
		rest(time.Minute)
		w.mu.Lock()
		fresh := w.approval.DeepCopy()
		fresh.UID, fresh.CreationTimestamp = "b", metav1.Now()
		fresh.Spec.Node, fresh.Spec.ResourceSlicePatch = "", "gpu-broken"
		w.approval = fresh
		handler := w.handlers["approval"]
		w.mu.Unlock()
		handler.OnUpdate(nil, fresh)
		rest(time.Minute)
		w.requireState(t, reasonOpen)
		w.writeOut("gpu-broken-2", "gpu-broken")
		w.requireState(t, reasonUsed)
	})
}
