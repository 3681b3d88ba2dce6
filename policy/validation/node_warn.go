package validation

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// backDatedAfter is how old the time of a NoExecute taint may be, when it is given,
// before the user is warned: clocks and queues account for less.
const backDatedAfter = time.Minute

// NodeWarnings says which of the taints that a request brings begin in the past. It is
// legal to give such a time, and how a taint is moved to another node without
// granting its pods their seconds once more; but whoever mistypes it evicts pods that
// were meant to stay for a while. A time that the same taint had before, or that the
// node lifecycle controller's taints hand to each other, is not the request's doing.
func NodeWarnings(taints, old []corev1.Taint, now time.Time) []string {
	if unchanged(taints, old) {
		return nil
	}
	var warnings []string
	before := standingOf(old)
	for i := range taints {
		t := &taints[i]
		at, ok := timeOf(t)
		if !ok || t.Effect != corev1.TaintEffectNoExecute || !at.Before(now.Add(-backDatedAfter)) {
			continue
		}
		p := pairOf(t)
		if since := earliest(before.since[p], before.sinceTwin(p)); !since.IsZero() && !at.Before(since) {
			continue
		}
		warnings = append(warnings, fmt.Sprintf(
			"spec.taints[%d]: %s has been there for %s by its timeAdded %s: pods that tolerate it for a while may be due at once",
			i, t.ToString(), now.Sub(at).Truncate(time.Second), at.UTC().Format(time.RFC3339)))
	}
	return warnings
}
