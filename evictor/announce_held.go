package evictor

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
)

// EventHeld and EventReleased are the reasons of events on objects that carry taints, when pods
// that have to leave because of them are held, and when none is held any more. Annotations of
// api/v1alpha1 have the reason of the hold.
const (
	EventHeld     = "EvictionHeld"
	EventReleased = "EvictionReleased"
)

// EventReasonsHeldUp returns the reasons of events on pods whose eviction the API server keeps
// refusing.
func EventReasonsHeldUp() []string { return []string{nodePhrases.heldUp, devicePhrases.heldUp} }

// flushHeld reports holds that have begun or ended, by one event for each group of pods.
func (a *announcer) flushHeld(s *state, uidOf func(tracker.Source) types.UID) {
	now := a.clock.Now()
	begun, over := s.groupChanges(func() bool { return a.holds.AllowN(now, 1) })
	a.held(begun, uidOf, corev1.EventTypeWarning, EventHeld, heldMessage)
	a.held(over, uidOf, corev1.EventTypeNormal, EventReleased, releasedMessage)
}

func (a *announcer) held(groups []heldGroup, uidOf func(tracker.Source) types.UID, eventType, reason string, message func(*heldGroup) string) {
	for i := range groups {
		of := &groups[i]
		annotations := map[string]string{v1alpha1.AnnotationHeldTaint: of.taint, v1alpha1.AnnotationHeldReason: string(of.reason)}
		if of.policy != "" {
			annotations[v1alpha1.AnnotationHeldPolicy] = of.policy
		}
		a.recorder(of.carrier.Kind).AnnotatedEventf(reference(of.carrier, uidOf(of.carrier)), annotations, eventType, reason, "%s", message(of))
	}
}

// heldMessage says how many pods are held, why, and what ends the hold.
func heldMessage(of *heldGroup) string {
	pods := "1 pod that has"
	if of.pods != 1 {
		pods = fmt.Sprintf("%d pods that have", of.pods)
	}
	return fmt.Sprintf("Holding %s to leave because of taint %s: %s", pods, of.taint, of.reason.Explain(of.policy))
}

func releasedMessage(of *heldGroup) string {
	why := string(of.reason)
	if of.policy != "" {
		why += ", EvictionPolicy " + of.policy
	}
	return fmt.Sprintf("No pod that has to leave because of taint %s is held any more (%s)", of.taint, why)
}
