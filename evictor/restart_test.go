package evictor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/checks"
)

// What a replica saw in its last term says nothing about when the nodes came back.
func TestATermBeginsWithoutWhatAnEarlierOneSawOfNodesNE07(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.setNode("a", noExecute(corev1.TaintNodeUnreachable))
		w.setNode("b", noExecute(corev1.TaintNodeUnreachable))
		w.setPod(newPod("a", "a", tolerationFor(corev1.TaintNodeUnreachable, 300)))
		w.pass(10 * time.Second) // All nodes are down.
		w.kill()
		w.setNode("b")
		w.pass(200 * time.Second)
		w.lead()
		w.pass(93 * time.Second)
		w.leaves(podA)
	})
}

// A relist of nodes takes away what is gone before it adds what is new.
func TestARelistThatShowsOnlyANodeThatIsDownStartsNoTimerAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.setNode("a", noExecute(corev1.TaintNodeUnreachable))
		w.setNode("b")
		w.setPod(newPod("a", "a", tolerationFor(corev1.TaintNodeUnreachable, 300)))
		w.pass(200 * time.Second)
		w.drop(w.api.node("b"))
		w.pass(time.Second)
		w.setNode("c")
		w.pass(103 * time.Second)
		w.leaves(podA)
	})
}

// A ResourceSlicePatch is deleted and made anew while pods are held because of it, and its
// rule is adopted in place: the same rule with another owner.
func TestAPatchThatIsMadeAnewWhilePodsAreHeldLetsThemGo(t *testing.T) {
	inWorld(t, func(w *world) {
		w.setPolicy(newPolicy("p", paused))
		w.set(newClaim("gpu-0", "gpu-0", nil, "a"))
		w.setPod(using(newPod("a", "n"), "gpu-0"))
		rule := newWritten("gpu-broken-0", "gpu-0")
		w.set(rule)
		w.start()
		w.pass(time.Second)
		w.holds(checks.Paused, 1)

		const second types.UID = "uid-of-the-second"
		again := rule.DeepCopy()
		again.Labels[v1alpha1.LabelPatch] = string(second)
		again.OwnerReferences[0].UID = second
		w.set(again)
		w.pass(time.Second)
		w.holds(checks.Paused, 1)

		w.setPolicy(newPolicy("p", nil))
		w.pass(time.Second)
		w.leaves(podA)
	})
}

// A rule of a patch loses its label while pods are held because of the patch.
func TestNobodyIsHeldForAPatchThatARuleIsNotOfAnyMore(t *testing.T) {
	inWorld(t, func(w *world) {
		w.setPolicy(newPolicy("p", paused))
		w.set(newClaim("gpu-0", "gpu-0", nil, "a"))
		w.setPod(using(newPod("a", "n"), "gpu-0"))
		rule := newWritten("gpu-broken-0", "gpu-0")
		rule.Spec.Taint.Effect = "NoExecute" // as in mode Replace
		rule.Annotations = nil
		w.set(rule)
		w.start()
		w.pass(2 * time.Second)
		again := rule.DeepCopy()
		again.Labels = nil
		w.set(again)
		w.pass(time.Second)
		w.setPolicy(newPolicy("p", nil))
		w.pass(time.Minute)
		w.leaves(podA)
		pods, reason, _ := w.evictor.HeldFor(patchUID)
		require.Zero(t, pods, "pods are still held for the patch: %s", reason)
	})
}
